/// Memory that ends where it ends: one byte further is a crash, with or without a sanitizer.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>

namespace uroce::test {

/// Shows copies of byte strings that lie directly before an inaccessible page.
///
/// Lifetime: each copy until the next call of hold().
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t capacity) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    usable_ = (capacity + page_ - 1) / page_ * page_;
    void* memory = mmap(nullptr, usable_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc{};
    base_ = static_cast<std::byte*>(memory);
    if (mprotect(base_ + usable_, page_, PROT_NONE) != 0) throw std::bad_alloc{};
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(base_, usable_ + page_); }

  /// `size` bytes (at most the capacity) up to the guard page.
  [[nodiscard]] std::span<std::byte> room(std::size_t size) noexcept {
    return {base_ + usable_ - size, size};
  }
  /// A copy of `bytes` up to the guard page.
  [[nodiscard]] std::span<const std::byte> hold(std::span<const std::byte> bytes) noexcept {
    const auto copy = room(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.begin());
    return copy;
  }

 private:
  std::size_t page_ = 0;
  std::size_t usable_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace uroce::test
