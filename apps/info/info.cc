// uroce info: what the device is and can do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/table.h"
#include "apps/common/worker.h"
#include "uroce/device.h"

namespace uroce::apps {
namespace {

Json limits_json(const Limits& limits) {
  return {{"max_qp", limits.max_qp},
          {"max_qp_wr", limits.max_qp_wr},
          {"max_sge", limits.max_sge},
          {"max_inline", limits.max_inline},
          {"max_cqe", limits.max_cqe},
          {"max_rd_atomic", limits.max_rd_atomic},
          {"max_mcast_grp", limits.max_mcast_grp},
          {"max_mcast_qp_attach", limits.max_mcast_qp_attach},
          {"max_msg_bytes", limits.max_msg_bytes}};
}

Json device_json(const Device& device) {
  Json gids = Json::array();
  for (const auto& entry : device.gids()) {
    gids.push_back({{"gid", to_string(entry.gid)},
                    {"prefix_len", entry.prefix_len},
                    {"vlan", entry.vlan},
                    {"type", to_string(entry.type)}});
  }
  Json counters = Json::object();
  for (const auto& counter : device.counters()) counters[counter.name] = counter.value;
  Json all = run_json("uroce.info/1", device.config());
  all.update({{"port", device.config().port},
              {"link", device.port_state() == PortState::kActive ? "up" : "down"},
              {"loops", device.loops()},
              {"mac", to_string(device.mac())},
              {"link_mtu", device.link_mtu()},
              {"path_mtu", bytes(device.active_mtu())},
              {"gids", std::move(gids)},
              {"limits", limits_json(device.limits())},
              {"counters", std::move(counters)}});
  return all;
}

void print_text(const Json& info) {
  fmt::print("port      {}\nlink      {}\nloops     {}\nMAC       {}\nlink MTU  {}\npath MTU  {}\n",
             info.at("port").get<std::string>(), info.at("link").get<std::string>(),
             info.at("loops").get<unsigned>(), info.at("mac").get<std::string>(),
             info.at("link_mtu").get<unsigned>(), info.at("path_mtu").get<unsigned>());
  std::size_t index = 0;
  for (const auto& entry : info.at("gids")) {
    const auto vlan = entry.at("vlan").get<unsigned>();
    fmt::print("GID {:<5} {}/{}  {}{}\n", index++, entry.at("gid").get<std::string>(),
               entry.at("prefix_len").get<unsigned>(), entry.at("type").get<std::string>(),
               vlan == 0 ? "" : fmt::format("  VLAN {}", vlan));
  }
  for (const char* group : {"limits", "counters"}) {
    Table table({group, ""}, 1);
    for (const auto& [name, value] : info.at(group).items()) {
      table.add({"  " + name, std::to_string(value.get<std::uint64_t>())});
    }
    fmt::print("{}", table.text());
  }
}

int show_info(const SharedOptions& options) {
  const auto config = options.resolve();
  if (!config) return fail(config.error());
  const auto device = Device::open(*config);
  if (!device) return fail(device.error());
  const Json info = device_json(*device);
  if (options.json()) {
    fmt::print("{}\n", to_text(info, 2));
  } else {
    print_text(info);
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("info", "open the device; print addresses, limits and counters");
  const auto options = std::make_shared<SharedOptions>(*command);
  command->callback([options, &exit_code] { exit_code = show_info(*options); });
}

}  // namespace uroce::apps
