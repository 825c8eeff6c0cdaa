/// The system's pools of hugepages, as the kernel reports them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace uroce {

/// All hugepages of one size.
struct HugepagePool {
  std::uint64_t page_bytes = 0;
  std::uint64_t total = 0;  ///< pages set up
  std::uint64_t free = 0;   ///< pages that nobody holds or has reserved
};

inline constexpr std::uint64_t kHugepageBytes = 2U << 20;

/// Reads every pool, smallest pages first. Empty without hugepage support.
inline std::vector<HugepagePool> hugepage_pools(const std::string& root = "/sys/kernel/mm/hugepages") {
  const auto read = [](const std::filesystem::path& file) {
    std::uint64_t value = 0;
    std::ifstream(file) >> value;
    return value;
  };
  std::vector<HugepagePool> pools;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    constexpr std::string_view kPrefix = "hugepages-";  // hugepages-2048kB
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const std::uint64_t kib = std::strtoull(name.c_str() + kPrefix.size(), nullptr, 10);
    const std::uint64_t unused = read(entry.path() / "free_hugepages");
    const std::uint64_t reserved = read(entry.path() / "resv_hugepages");
    pools.push_back({.page_bytes = kib << 10,
                     .total = read(entry.path() / "nr_hugepages"),
                     .free = unused - std::min(unused, reserved)});
  }
  std::sort(pools.begin(), pools.end(),
            [](const HugepagePool& a, const HugepagePool& b) { return a.page_bytes < b.page_bytes; });
  return pools;
}

/// Free pages of 2 MiB.
inline std::uint64_t hugepages_free() {
  for (const HugepagePool& pool : hugepage_pools()) {
    if (pool.page_bytes == kHugepageBytes) return pool.free;
  }
  return 0;
}

/// One line for an error: what is missing, and the commands that mend it.
inline std::string hugepage_shortage(std::uint64_t bytes) {
  HugepagePool pool{.page_bytes = kHugepageBytes, .total = 0, .free = 0};
  for (const HugepagePool& each : hugepage_pools()) {
    if (each.page_bytes == kHugepageBytes) pool = each;
  }
  const std::uint64_t needed = (bytes + kHugepageBytes - 1) / kHugepageBytes;
  const std::uint64_t enough = std::max<std::uint64_t>(256, pool.total - pool.free + needed);
  return std::to_string(needed) + " hugepages of 2 MiB are needed, " + std::to_string(pool.free) +
         " are free; run: sudo config/hugepages " + std::to_string(enough) +
         "   or add --no-huge (UROCE_NO_HUGE=1)";
}

}  // namespace uroce
