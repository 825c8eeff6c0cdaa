#include "apps/common/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "apps/common/clock.h"
#include "apps/common/stop.h"
#include "uroce/config.h"

namespace uroce::apps {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string whole(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// "a [b] c" -> "b"
std::string chosen_of(const std::string& line) {
  const auto begin = line.find('[');
  const auto end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? ""
                                                                : line.substr(begin + 1, end - begin - 1);
}

/// None where the kernel lists none.
std::vector<int> cores_in(const std::string& list) {
  const auto cores = parse_core_list(list);
  return cores ? std::vector<int>(cores->begin(), cores->end()) : std::vector<int>();
}

/// A line "name : value" of /proc/cpuinfo.
std::string cpu_field(const std::string& info, const std::string& name) {
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const auto colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

bool has_word(const std::string& text, const std::string& word) {
  std::istringstream words(text);
  return std::find(std::istream_iterator<std::string>(words), {}, word) !=
         std::istream_iterator<std::string>();
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

std::vector<Interface> interfaces_of(const fs::path& folder) {
  std::vector<Interface> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const fs::path& path = entry.path();
    if (path.filename() == "lo" || !fs::exists(path / "mtu", none)) continue;
    const fs::path driver = fs::read_symlink(path / "device/driver", none);
    found.push_back({.name = path.filename(),
                     .driver = driver.filename(),
                     .mtu = static_cast<unsigned>(number_in(path / "mtu").value_or(0)),
                     .is_up = first_line(path / "operstate") == "up"});
  }
  std::ranges::sort(found, {}, &Interface::name);
  return found;
}

unsigned count_nodes(const fs::path& folder) {
  std::error_code none;
  const auto entries = fs::directory_iterator(folder, none);
  return static_cast<unsigned>(std::count_if(fs::begin(entries), fs::end(entries), [](const auto& entry) {
    const std::string name = entry.path().filename();
    return name.starts_with("node") && name.size() > 4 && std::isdigit(name[4]) != 0;
  }));
}

}  // namespace

Machine read_machine(const fs::path& root, std::vector<int> cores) {
  const fs::path cpus = root / "sys/devices/system/cpu";
  const std::string info = whole(root / "proc/cpuinfo");
  const std::string flags = cpu_field(info, "flags");
  Machine machine{.cpu = cpu_field(info, "model name"),
                  .kernel = first_line(root / "proc/sys/kernel/osrelease"),
                  .command_line = first_line(root / "proc/cmdline"),
                  .cores = std::move(cores),
                  .isolated = cores_in(first_line(cpus / "isolated"))};
  for (const int core : machine.cores)
    machine.siblings.push_back(first_line(cpus / fmt::format("cpu{}/topology/thread_siblings_list", core)));
  if (!machine.cores.empty())
    machine.governor = first_line(cpus / fmt::format("cpu{}/cpufreq/scaling_governor", machine.cores[0]));
  machine.clock_source = first_line(root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
  machine.transparent_hugepages = chosen_of(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  machine.is_virtual = has_word(flags, "hypervisor");
  machine.has_invariant_tsc = has_word(flags, "nonstop_tsc");
  machine.has_wide_crc = has_word(flags, "vpclmulqdq");
  machine.numa_nodes = count_nodes(root / "sys/devices/system/node");
  machine.free_hugepages = number_in(root / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  machine.is_root = geteuid() == 0;
  machine.interfaces = interfaces_of(root / "sys/class/net");
  return machine;
}

Hiccups look_for_hiccups(std::uint64_t ns, std::uint64_t least_ns) {
  const std::uint64_t begin = now_ns();
  std::uint64_t last = begin;
  std::uint64_t lost_ns = 0;
  std::uint64_t longest_ns = 0;
  Hiccups found;
  while (last - begin < ns && !is_stopped()) {
    const std::uint64_t now = now_ns();
    const std::uint64_t gap = now - last;
    last = now;
    if (gap < least_ns) continue;
    ++found.count;
    lost_ns += gap;
    longest_ns = std::max(longest_ns, gap);
  }
  if (last == begin) return found;
  found.seconds = static_cast<double>(last - begin) / 1e9;
  found.longest_us = static_cast<double>(longest_ns) / 1000;
  found.lost_percent = static_cast<double>(lost_ns) / static_cast<double>(last - begin) * 100;
  return found;
}

namespace {

Finding cores_finding(const Machine& machine) {
  const std::set<std::string> physical(machine.siblings.begin(), machine.siblings.end());
  const std::string found = fmt::format("{} that this process may use", machine.cores.size());
  if (machine.cores.size() < 2)
    return {"cores", Grade::kCouldBeBetter, found, "allow two: both ends of a link share this one (taskset)"};
  if (physical.size() < 2 && !physical.contains(""))
    return {"cores", Grade::kCouldBeBetter, found + ", all on one physical core",
            "allow one on another: siblings slow each other down"};
  return {"cores", Grade::kGood, found, ""};
}

Finding isolation_finding(const Machine& machine) {
  std::vector<int> both;
  std::ranges::copy_if(machine.cores, std::back_inserter(both),
                       [&](int core) { return std::ranges::count(machine.isolated, core) > 0; });
  if (!both.empty())
    return {"isolation", Grade::kGood, fmt::format("cores {}: name them in --lcores", fmt::join(both, ",")),
            ""};
  if (!machine.isolated.empty())
    return {"isolation", Grade::kCouldBeBetter,
            fmt::format("cores {}, none for this process", fmt::join(machine.isolated, ",")),
            fmt::format("taskset -c {} uroce ...", fmt::join(machine.isolated, ","))};
  const std::size_t most = machine.cores.size();
  if (most < 4)
    return {"isolation", Grade::kCouldBeBetter, "none", "with four cores or more, two can be isolated"};
  const auto list = fmt::format("{},{}", machine.cores[most - 2], machine.cores[most - 1]);
  return {"isolation", Grade::kCouldBeBetter, "none",
          fmt::format("boot with isolcpus={0} nohz_full={0} rcu_nocbs={0}", list)};
}

Finding governor_finding(const Machine& machine) {
  if (machine.governor.empty()) return {"governor", Grade::kGood, "not this kernel's matter", ""};
  if (machine.governor == "performance") return {"governor", Grade::kGood, machine.governor, ""};
  return {"governor", Grade::kCouldBeBetter, machine.governor, "cpupower frequency-set -g performance"};
}

Finding clock_finding(const Machine& machine) {
  const auto found =
      fmt::format("{}{}", machine.clock_source.empty() ? "unknown" : machine.clock_source,
                  machine.has_invariant_tsc ? ", invariant TSC" : ", the TSC may change its pace");
  if (machine.has_invariant_tsc && machine.clock_source != "hpet" && machine.clock_source != "acpi_pm")
    return {"clock", Grade::kGood, found, ""};
  return {"clock", Grade::kCouldBeBetter, found,
          "to read it takes long: boot with tsc=reliable if the CPU allows it"};
}

Finding hugepages_finding(const Machine& machine, bool no_huge) {
  constexpr std::uint64_t kEnough = 64;  // for the commands of uroce
  const std::uint64_t free = machine.free_hugepages.value_or(0);
  const auto found = fmt::format("{} of 2 MiB are free", free);
  if (no_huge) return {"hugepages", Grade::kGood, found + ", and done without", ""};
  if (free >= kEnough) return {"hugepages", Grade::kGood, found, ""};
  return {"hugepages", Grade::kCouldBeBetter, found, "config/hugepages, or --no-huge to do without"};
}

Finding crc_finding(const Machine& machine) {
  if (machine.has_wide_crc) return {"ICRC", Grade::kGood, "VPCLMULQDQ", ""};
  return {"ICRC", Grade::kCouldBeBetter, "no VPCLMULQDQ: long messages take longer", ""};
}

Finding rights_finding(const Machine& machine) {
  if (machine.is_root) return {"rights", Grade::kGood, "root: every port", ""};
  return {"rights", Grade::kCouldBeBetter, "no root: shm, memif, vhost and virtio_user only",
          "run as root for af_packet, af_xdp, tap and pci"};
}

Finding interface_finding(const Interface& interface) {
  constexpr unsigned kLargeMtu = 4200;  // for a path MTU of 4096
  const auto found = fmt::format("{}MTU {}, {}", interface.driver.empty() ? "" : interface.driver + ", ",
                                 interface.mtu, interface.is_up ? "up" : "not up");
  const auto name = "interface " + interface.name;
  if (!interface.is_up)
    return {name, Grade::kCouldBeBetter, found, fmt::format("ip link set {} up", interface.name)};
  if (interface.mtu >= kLargeMtu) return {name, Grade::kGood, found, ""};
  return {name, Grade::kCouldBeBetter, found + ": less than a path MTU of 4096 takes",
          fmt::format("ip link set {} mtu {}, if the network allows it", interface.name, kLargeMtu)};
}

}  // namespace

std::vector<Finding> judge(const Machine& machine, bool no_huge) {
  std::vector<Finding> found = {
      cores_finding(machine), isolation_finding(machine),          governor_finding(machine),
      clock_finding(machine), hugepages_finding(machine, no_huge), crc_finding(machine),
      rights_finding(machine)};
  for (const auto& interface : machine.interfaces) {
    const bool may_be_used = interface.is_up || !interface.driver.empty();
    if (may_be_used) found.push_back(interface_finding(interface));
  }
  return found;
}

Finding judge(const Hiccups& hiccups, int core) {
  const auto found =
      fmt::format("core {}: {} over 10 us in {:.1f} s, the longest {:.0f} us, {:.2f} % of the time", core,
                  hiccups.count, hiccups.seconds, hiccups.longest_us, hiccups.lost_percent);
  constexpr double kOftenPerSecond = 10;
  if (static_cast<double>(hiccups.count) <= kOftenPerSecond * hiccups.seconds)
    return {"hiccups", Grade::kGood, found, ""};
  return {"hiccups", Grade::kCouldBeBetter, found,
          "p99.9 and beyond are theirs: take isolated cores, or an idle machine"};
}

}  // namespace uroce::apps
