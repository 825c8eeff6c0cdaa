// uroce config: the configuration in force, and who said so.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/json_text.h"
#include "apps/common/table.h"
#include "apps/common/worker.h"

namespace uroce::apps {
namespace {

std::string origin_text(const SharedOptions& options, const ConfigKey& key) {
  switch (options.origin(key)) {
    case Origin::kFile:
      return options.file();
    case Origin::kEnvironment:
      return environment_name(key);
    case Origin::kFlag:
      return fmt::format("--{}", key.name);
    case Origin::kDefault:
      break;
  }
  return "default";
}

int show_config(const SharedOptions& options) {
  const auto config = options.resolve();
  if (!config) return fail(config.error());
  Table table({"key", "value", "from", "meaning"}, 4);
  Json all = Json::object();
  for (const auto& key : config_keys()) {
    const std::string name(key.name);
    const auto value = key.get(*config);
    table.add({name, value.empty() ? "\"\"" : value, origin_text(options, key), std::string(key.help)});
    all[name] = {{"value", value},
                 {"origin", to_string(options.origin(key))},
                 {"from", origin_text(options, key)},
                 {"environment", environment_name(key)},
                 {"help", key.help},
                 {"allowed", key.allowed}};
  }
  fmt::print("{}", options.json() ? to_text(all, 2) + "\n" : table.text());
  return 0;
}

}  // namespace

void add_config(CLI::App& program, int& exit_code) {
  CLI::App* command =
      program.add_subcommand("config", "print the configuration in force and where each value is from");
  const auto options = std::make_shared<SharedOptions>(*command);
  command->callback([options, &exit_code] { exit_code = show_config(*options); });
}

}  // namespace uroce::apps
