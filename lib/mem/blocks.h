/// Memory for what an application has thousands of.
#pragma once

#include <cstddef>

namespace uroce::mem {

/// A block of whole cache lines. Small ones lie side by side in large pages where the kernel has such
/// (transparent hugepages): spread over ordinary pages, thousands of QPs would each cost a page walk when
/// their turn comes.
///
/// Threads: any.
/// @return aligned to 64 bytes; bad_alloc is thrown if there is no memory
[[nodiscard]] void* take_block(std::size_t bytes);
/// Gives it back. The memory is kept for blocks of the same size. @param bytes  as it was taken
void give_block(void* block, std::size_t bytes) noexcept;

/// A base for classes whose objects are such blocks: aligned to cache lines, or to less.
///
/// Without forms that take an alignment: the one of delete that also takes the size is not called if a
/// constructor throws, and the block would be lost. C++20 7.6.2.8 (28).
class InBlocks {
 public:
  static void* operator new(std::size_t bytes) { return take_block(bytes); }
  static void operator delete(void* object, std::size_t bytes) noexcept { give_block(object, bytes); }
};

}  // namespace uroce::mem
