// uroce doctor: whether the port opens, and what on this machine costs latency; for reports of figures also
// what it is like.
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/clock.h"
#include "apps/common/cores.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/table.h"
#include "apps/common/worker.h"
#include "uroce/device.h"

namespace uroce::apps {
namespace {

const char* mark(Grade grade) {
  constexpr std::array<const char*, 3> kMarks = {"ok", "!", "WRONG"};
  return kMarks[static_cast<std::size_t>(grade)];
}

/// Opens it once, as any command does.
/// @param code  changes if it does not open
Finding port_finding(const Config& config, int& code) {
  const auto device = Device::open(config);
  if (!device) {
    code = exit_code(device.error().code);
    return {"port", Grade::kWrong, config.port + " does not open", device.error().text};
  }
  return {"port", Grade::kGood,
          fmt::format("{} opens, path MTU {}", config.port, bytes(device->active_mtu())), ""};
}

Json findings_json(const std::vector<Finding>& findings) {
  Json all = Json::array();
  for (const auto& one : findings)
    all.push_back({{"what", one.what}, {"grade", mark(one.grade)}, {"found", one.found}, {"mend", one.mend}});
  return all;
}

std::string findings_text(const std::vector<Finding>& findings) {
  Table table({"", "", "found", "what to do"}, 4);
  for (const auto& one : findings) table.add({mark(one.grade), one.what, one.found, one.mend});
  return table.text();
}

/// All that are named; else the one that the others would take.
Result<std::vector<int>> cores_to_judge(const std::string& list) {
  if (list.empty()) return std::vector{choose_cores().client};
  const auto named = parse_core_list(list);
  if (!named) return named.error();
  return std::vector<int>(named->begin(), named->end());
}

/// @param code  changes if the core cannot be used
Finding hiccups_finding(int core, unsigned spin_ms, int& code) {
  if (auto pinned = pin_to_core(core); !pinned) {
    code = exit_code(pinned.error().code);
    return {"hiccups", Grade::kWrong, fmt::format("core {} is not looked at", core), pinned.error().text};
  }
  return judge(look_for_hiccups(spin_ms * kMillisecond), core);
}

int examine(const SharedOptions& options, unsigned spin_ms) {
  const auto config = options.resolve();
  if (!config) return fail(config.error());
  const Machine machine = read_machine("/", allowed_cores());
  int code = 0;
  std::vector<Finding> findings = {port_finding(*config, code)};
  for (auto& one : judge(machine, config->no_huge)) findings.push_back(std::move(one));
  if (spin_ms > 0) {
    const auto cores = cores_to_judge(config->lcores);
    if (!cores) return fail(cores.error());
    for (const int core : *cores) findings.push_back(hiccups_finding(core, spin_ms, code));
  }
  if (options.json()) {
    Json all = run_json("uroce.doctor/1", *config);
    all["machine"] = machine_json(machine);
    all["findings"] = findings_json(findings);
    fmt::print("{}\n", to_text(all, 2));
  } else {
    fmt::print("{}, Linux {}{}\n{}", machine.cpu, machine.kernel,
               machine.is_virtual ? ", a virtual machine: its host takes the cores at times" : "",
               findings_text(findings));
  }
  return code;
}

}  // namespace

void add_doctor(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand(
      "doctor", "whether the port opens; what costs latency on this machine, and what mends it");
  const auto spin_ms = std::make_shared<unsigned>(500);
  command
      ->add_option("--spin-ms", *spin_ms,
                   "look for so long how often a core is taken away, each of --lcores; 0: not")
      ->capture_default_str()
      ->check(CLI::Range(0U, 600'000U));
  const auto options = std::make_shared<SharedOptions>(*command);
  command->callback([=, &exit_code] { exit_code = examine(*options, *spin_ms); });
}

}  // namespace uroce::apps
