#include "apps/common/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>

namespace uroce::apps {
std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

namespace {

std::string topology(int core, const char* file) {
  std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", core, file));
  std::string line;
  std::getline(in, line);
  return line;
}

bool are_neighbours(int a, int b) {
  const auto siblings = topology(a, "thread_siblings_list");
  const bool same_core = !siblings.empty() && siblings == topology(b, "thread_siblings_list");
  return !same_core && topology(a, "physical_package_id") == topology(b, "physical_package_id");
}

}  // namespace

std::string CorePair::text() const {
  if (client < 0) return "not pinned";
  if (shared) return fmt::format("core {} for both", client);
  return fmt::format("cores {} and {}", client, server);
}

CorePair choose_cores() {
  auto cores = allowed_cores();
  if (cores.empty()) return {};
  if (cores.size() == 1) return {.client = cores[0], .server = cores[0], .shared = true};
  if (cores.size() > 3)
    std::rotate(cores.begin(), cores.begin() + 1, cores.end());  // core 0 takes most interrupts
  for (std::size_t i = 1; i < cores.size(); ++i) {
    if (are_neighbours(cores[0], cores[i])) return {.client = cores[0], .server = cores[i], .shared = false};
  }
  return {.client = cores[0], .server = cores[1], .shared = false};
}

Result<CorePair> cores_from(const std::string& list) {
  if (list.empty()) return choose_cores();
  const auto cores = parse_core_list(list);
  if (!cores) return cores.error();
  const auto client = static_cast<int>(cores->front());
  if (cores->size() == 1) return CorePair{.client = client, .server = client, .shared = true};
  return CorePair{.client = client, .server = static_cast<int>((*cores)[1]), .shared = false};
}

Status pin_to_core(int core) {
  if (core < 0) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return {};
  return Error{.code = Errc::kConfig,  // the same as of a loop's thread
               .text = fmt::format("core {} cannot be used: choose others with --lcores (see: nproc, "
                                   "taskset -p $$)",
                                   core)};
}

namespace {

Error too_many_cores(const Config& config, const std::string& why) {
  return {.code = Errc::kConfig, .text = fmt::format("lcores: '{}': {}", config.lcores, why)};
}

}  // namespace

Status pin_application(const Config& config, unsigned qps) {
  if (config.lcores.empty()) return {};
  const auto cores = parse_core_list(config.lcores);
  if (!cores) return cores.error();
  const bool has_several = cores->size() > 1;
  if (config.mode == Mode::kApp) {
    if (has_several)
      return too_many_cores(config, "in mode app this program's only thread runs all loops: name one core");
    return pin_to_core(static_cast<int>(cores->front()));
  }
  if (has_several && qps == 1)
    return too_many_cores(config, "all QPs of this program are on one loop: name one core");
  if (cores->size() > qps)
    return too_many_cores(config, fmt::format("{} QPs use as many loops: name no more cores", qps));
  return {};
}

GiveWay when_to_give_way(const Config& config) {
  constexpr std::uint32_t kLongWait = 256;  // polls, some 5 us
  const auto cores = allowed_cores().size();
  if (config.mode == Mode::kLcore) return GiveWay::at_once_if(cores < 4);
  return {.after = cores == 1 ? kLongWait : GiveWay::kNever};
}

}  // namespace uroce::apps
