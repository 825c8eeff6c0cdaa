/// Memory that somebody else changes all the time.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace uroce::test {

/// Bytes that another process counts up, all to the same number, for as long as this lives.
class Restless {
 public:
  explicit Restless(std::size_t size) : size_(size) {
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc{};
    bytes_ = static_cast<std::byte*>(memory);
    child_ = fork();
    if (child_ < 0) throw std::bad_alloc{};
    if (child_ == 0) change();
  }
  Restless(const Restless&) = delete;
  Restless& operator=(const Restless&) = delete;
  ~Restless() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    munmap(bytes_, size_);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_, size_}; }

 private:
  [[noreturn]] void change() const noexcept {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    volatile std::byte* const bytes = bytes_;
    for (std::uint8_t number = 0;; ++number) {
      for (std::size_t i = 0; i < size_; ++i) bytes[i] = std::byte{number};
    }
  }

  std::size_t size_;
  std::byte* bytes_ = nullptr;
  pid_t child_ = -1;
};

}  // namespace uroce::test
