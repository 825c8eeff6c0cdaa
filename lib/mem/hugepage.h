/// Memory on hugepages, for rings and registered buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hugepage_pool.h"
#include "uroce/result.h"

namespace uroce::mem {

/// A zeroed, page-aligned block of memory, all of it present before it is handed out.
///
/// Threads: any. Lifetime: movable owner; unmapped by the destructor. The pages lie on the NUMA node of the
/// thread that allocates (first touch).
class HugeBuffer {
 public:
  /// Takes 1 GiB pages where they divide `bytes` and are free, else 2 MiB pages; with `no_huge` ordinary
  /// pages, which the kernel may join behind the scenes.
  /// @param bytes  rounded up to whole pages: size() tells
  /// @return kInvalid for 0 bytes, kNoHugepages with the command that sets pages up, kNoMemory.
  static Result<HugeBuffer> allocate(std::size_t bytes, bool no_huge);

  HugeBuffer() noexcept = default;
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }

 private:
  HugeBuffer(std::byte* data, std::size_t size, std::size_t page_bytes) noexcept
      : data_(data), size_(size), page_bytes_(page_bytes) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t page_bytes_ = 0;
};

}  // namespace uroce::mem
