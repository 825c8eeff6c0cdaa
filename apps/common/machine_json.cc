#include "apps/common/machine_json.h"

#include "apps/common/cores.h"

namespace uroce::apps {

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

Json machine_json() {
  return machine_json(read_machine("/", allowed_cores()));
}

}  // namespace uroce::apps
