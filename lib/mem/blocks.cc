#include "mem/blocks.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace uroce::mem {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kLargest = 16U << 10U;     // of those that share pages, bytes
constexpr std::size_t kFirstChunk = 64U << 10U;  // a program with few QPs needs no large page
constexpr std::size_t kLargePage = 2U << 20U;

constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
  return (std::max(bytes, kLine) + kLine - 1) / kLine * kLine;
}

void* allocate(std::size_t bytes) {
  void* const memory = std::aligned_alloc(kLine, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Pages of the system's, in large ones if it has such. @param bytes  a power of two, which they are aligned
/// to
std::byte* map_chunk(std::size_t bytes) {
  void* const all =
      ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(all);
  const std::size_t before = -std::bit_cast<std::uintptr_t>(begin) & (bytes - 1);
  if (before != 0) ::munmap(begin, before);
  std::byte* const chunk = begin + before;
  if (before != bytes) ::munmap(chunk + bytes, bytes - before);
  if (bytes == kLargePage) ::madvise(chunk, bytes, MADV_HUGEPAGE);
  return chunk;
}

/// Small blocks, cut from chunks that are never given back.
class Pool {
 public:
  /// Lives as long as the process: QPs may be destroyed after everything else.
  static Pool& of_process() {
    static Pool& pool = *new Pool;
    return pool;
  }

  /// @param bytes  whole cache lines, at most kLargest
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Free*& free = free_of(bytes);
    if (free == nullptr) return cut(bytes);
    void* const block = free;
    free = free->next;
    return block;
  }
  void give(void* block, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    keep(block, bytes);
  }

 private:
  struct Free {
    Free* next;
  };

  Pool() {
    // A child that is forked meanwhile finds the pool whole.
    pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                   [] { of_process().mutex_.unlock(); });
  }

  Free*& free_of(std::size_t bytes) noexcept { return free_[bytes / kLine - 1]; }
  void keep(void* block, std::size_t bytes) noexcept {
    Free*& free = free_of(bytes);
    free = new (block) Free{free};
  }
  void* cut(std::size_t bytes) {
    if (left_ < bytes) {
      std::byte* const chunk = map_chunk(chunk_bytes_);
      if (left_ != 0) keep(next_, left_);
      next_ = chunk;
      left_ = chunk_bytes_;
      chunk_bytes_ = std::min(2 * chunk_bytes_, kLargePage);
    }
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
  }

  std::mutex mutex_;
  std::array<Free*, kLargest / kLine> free_{};  // by size
  std::byte* next_ = nullptr;                   // of the newest chunk
  std::size_t left_ = 0;                        // bytes of it, less than kLargest when the next one comes
  std::size_t chunk_bytes_ = kFirstChunk;
};

/// The address sanitizer finds what is used after its end only if every block is one of its own.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPools = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kPools = false;
#else
constexpr bool kPools = true;
#endif
#else
constexpr bool kPools = true;
#endif

constexpr bool is_pooled(std::size_t bytes) noexcept {
  return kPools && bytes <= kLargest;
}

}  // namespace

void* take_block(std::size_t bytes) {
  const std::size_t lines = whole_lines(bytes);
  return is_pooled(lines) ? Pool::of_process().take(lines) : allocate(lines);
}

void give_block(void* block, std::size_t bytes) noexcept {
  const std::size_t lines = whole_lines(bytes);
  is_pooled(lines) ? Pool::of_process().give(block, lines) : std::free(block);
}

}  // namespace uroce::mem
