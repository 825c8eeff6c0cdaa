#include "apps/common/machine_json.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "apps/revision.h"

namespace uroce::apps {
namespace {

/// As one that a shell takes, but for words with blanks.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string words{std::istreambuf_iterator<char>(file), {}};
  if (words.ends_with('\0')) words.pop_back();
  std::ranges::replace(words, '\0', ' ');
  return words;
}

}  // namespace

Json machine_json(const Machine& machine) {
  Json interfaces = Json::array();
  for (const auto& one : machine.interfaces)
    interfaces.push_back({{"name", one.name}, {"driver", one.driver}, {"mtu", one.mtu}, {"up", one.is_up}});
  return {{"cpu", machine.cpu},
          {"kernel", machine.kernel},
          {"command_line", machine.command_line},
          {"cores", machine.cores},
          {"isolated", machine.isolated},
          {"siblings", machine.siblings},
          {"governor", machine.governor},
          {"clock_source", machine.clock_source},
          {"transparent_hugepages", machine.transparent_hugepages},
          {"virtual", machine.is_virtual},
          {"invariant_tsc", machine.has_invariant_tsc},
          {"vpclmulqdq", machine.has_wide_crc},
          {"numa_nodes", machine.numa_nodes},
          {"free_hugepages", machine.free_hugepages ? Json(*machine.free_hugepages) : Json()},
          {"interfaces", std::move(interfaces)},
          {"uroce", UROCE_VERSION},
          {"compiler", __VERSION__}};
}

Json machine_json(std::vector<int> cores) {
  return machine_json(read_machine("/", std::move(cores)));
}

Json run_json(std::string_view schema, const Config& config) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  Json run = {{"schema", schema},
              {"command", command_line()},
              {"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
              {"version", UROCE_VERSION},
              {"revision", UROCE_REVISION},
              {"trained", UROCE_TRAINED}};
  for (const ConfigKey& key : config_keys()) run["config"][std::string(key.name)] = key.get(config);
  return run;
}

}  // namespace uroce::apps
