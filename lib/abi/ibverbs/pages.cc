#include "abi/ibverbs/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>

namespace uroce::abi {

namespace {

// Since Linux 5.14.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;

struct Range {
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;
};

/// The pages that it lies in. Nothing lies behind the last page of the address space.
Range pages_of(std::span<const std::byte> memory) noexcept {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = std::bit_cast<std::uintptr_t>(memory.data());
  return {first & ~(page - 1), ((first + memory.size() - 1) | (page - 1)) + 1};
}

/// What the kernel says of the process' mappings. Where it says nothing everything is.
bool is_mapped(Range wanted, bool writes) noexcept {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(
      std::fopen("/proc/self/maps", "re"), [](std::FILE* file) { return std::fclose(file); });
  if (maps == nullptr) return true;
  Range one;
  char rights[5] = {};
  while (wanted.first < wanted.end &&
         std::fscanf(maps.get(), "%" SCNxPTR "-%" SCNxPTR " %4s%*[^\n]", &one.first, &one.end, rights) == 3) {
    if (one.end <= wanted.first) continue;
    const bool has_rights = rights[0] == 'r' && (!writes || rights[1] == 'w');
    if (one.first > wanted.first || !has_rights) return false;
    wanted.first = one.end;
  }
  return wanted.first >= wanted.end;
}

}  // namespace

int make_present(std::span<const std::byte> memory, bool writes) noexcept {
  if (memory.empty()) return 0;
  const Range pages = pages_of(memory);
  void* const at = std::bit_cast<void*>(pages.first);
  if (pages.end <= pages.first) return EFAULT;
  if (madvise(at, pages.end - pages.first, writes ? kPopulateWrite : kPopulateRead) == 0) return 0;
  // A read or write would be answered by SIGBUS: behind the end of a file, or of the hugepages.
  if (errno == EFAULT || errno == EHWPOISON) return EFAULT;
  const int why = errno;
  if (!is_mapped(pages, writes)) return EFAULT;
  return why == ENOMEM ? ENOMEM : 0;  // 0: memory of a device, or a kernel that does not know how to
}

}  // namespace uroce::abi
