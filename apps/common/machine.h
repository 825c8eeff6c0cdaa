/// What a machine is like, as far as latencies depend on it, and what to do about it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace uroce::apps {

struct Interface {
  std::string name{};
  std::string driver{};  ///< empty: none, as of virtual ones
  unsigned mtu = 0;
  bool is_up = false;
};

/// Facts. Text that the system does not tell is empty.
struct Machine {
  std::string cpu{};  ///< model
  std::string kernel{};
  std::string command_line{};
  std::vector<int> cores{};             ///< that this process may use
  std::vector<int> isolated{};          ///< of all cores
  std::vector<std::string> siblings{};  ///< of each of `cores`: those of its physical core
  std::string governor{};               ///< of the first of `cores`
  std::string clock_source{};
  std::string transparent_hugepages{};
  bool is_virtual = false;
  bool has_invariant_tsc = false;
  bool has_wide_crc = false;  ///< VPCLMULQDQ
  unsigned numa_nodes = 0;
  std::optional<std::uint64_t> free_hugepages{};  ///< of 2 MiB; none: the kernel has none of them
  bool is_root = false;
  std::vector<Interface> interfaces{};
};

/// @param root   of the file system to read /proc and /sys from
/// @param cores  that the process may use
[[nodiscard]] Machine read_machine(const std::filesystem::path& root, std::vector<int> cores);

/// How often and how long a thread that never sleeps is kept from running, by interrupts, other programs or
/// the host of a virtual machine.
struct Hiccups {
  double seconds = 0;  ///< looked for so long
  std::uint64_t count = 0;
  double longest_us = 0;
  double lost_percent = 0;  ///< of the time
};

constexpr std::uint64_t kHiccupNs = 10'000;  ///< what matters to those who look at p99.9 and beyond

/// Spins on the calling thread's core for `ns`. @param least_ns  what is shorter is none
[[nodiscard]] Hiccups look_for_hiccups(std::uint64_t ns, std::uint64_t least_ns = kHiccupNs);

enum class Grade : std::uint8_t { kGood, kCouldBeBetter, kWrong };

struct Finding {
  std::string what{};
  Grade grade{};
  std::string found{};
  std::string mend{};  ///< empty if it is good, or nothing can be done
};

/// @param no_huge  as configured: hugepages are not asked for
[[nodiscard]] std::vector<Finding> judge(const Machine& machine, bool no_huge);
/// Of kHiccupNs or longer.
[[nodiscard]] Finding judge(const Hiccups& hiccups, int core);

}  // namespace uroce::apps
