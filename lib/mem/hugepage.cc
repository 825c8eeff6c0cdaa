#include "mem/hugepage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace uroce::mem {
namespace {

constexpr int kLog2Of2Mib = 21;
constexpr int kLog2Of1Gib = 30;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

/// Makes every page present. A hugepage that a memory cgroup refuses would else be a SIGBUS at first touch.
bool populate(std::byte* data, std::size_t size, std::size_t page_bytes) noexcept {
  if (madvise(data, size, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  for (std::size_t offset = 0; offset < size; offset += page_bytes) {  // older kernel
    const_cast<volatile std::byte&>(data[offset]) = std::byte{0};
  }
  return true;
}

/// @return nullptr if the pages are not there.
std::byte* map(std::size_t size, std::size_t page_bytes, int flags) noexcept {
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  auto* data = static_cast<std::byte*>(address);
  if (flags == 0) madvise(data, size, MADV_HUGEPAGE);
  if (populate(data, size, page_bytes)) return data;
  munmap(address, size);
  return nullptr;
}

}  // namespace

Result<HugeBuffer> HugeBuffer::allocate(std::size_t bytes, bool no_huge) {
  if (bytes == 0) return Error{Errc::kInvalid, "a buffer of 0 bytes was asked for"};
  if (bytes > SIZE_MAX / 2) return Error{Errc::kNoMemory, "a buffer of " + std::to_string(bytes) + " bytes"};

  if (no_huge) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t size = round_up(bytes, page);
    if (std::byte* data = map(size, page, 0)) return HugeBuffer(data, size, page);
    return Error{Errc::kNoMemory,
                 "no memory for " + std::to_string(bytes) + " bytes: " + std::strerror(errno)};
  }

  constexpr std::size_t kGib = std::size_t{1} << kLog2Of1Gib;
  if (bytes % kGib == 0) {
    if (std::byte* data = map(bytes, kGib, MAP_HUGETLB | (kLog2Of1Gib << MAP_HUGE_SHIFT))) {
      return HugeBuffer(data, bytes, kGib);
    }
  }
  const std::size_t size = round_up(bytes, kHugepageBytes);
  if (std::byte* data = map(size, kHugepageBytes, MAP_HUGETLB | (kLog2Of2Mib << MAP_HUGE_SHIFT))) {
    return HugeBuffer(data, size, kHugepageBytes);
  }
  return Error{Errc::kNoHugepages,
               "no room for " + std::to_string(bytes) + " bytes: " + hugepage_shortage(size)};
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      page_bytes_(std::exchange(other.page_bytes_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(page_bytes_, other.page_bytes_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace uroce::mem
