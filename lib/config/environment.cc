#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "config/text.h"
#include "uroce/config.h"

namespace uroce {
namespace {

constexpr std::string_view kPrefix = "UROCE_";

/// "UROCE_NO_HUGE" -> "no-huge".
std::string key_name(std::string_view variable) {
  std::string name(variable.substr(kPrefix.size()));
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  return name;
}

bool belongs_to_programs(std::string_view variable) {
  return variable == "UROCE_CONFIG" || variable.starts_with("UROCE_TEST_");
}

Status apply_variable(Config& config, std::string_view variable, std::string_view value) {
  const auto failed = [&](const std::string& what) {
    return Error{.code = Errc::kConfig, .text = "environment: " + std::string(variable) + ": " + what};
  };
  const auto name = key_name(variable);
  const auto* key = config::find_key(name);
  if (key == nullptr || environment_name(*key) != variable) return failed(config::unknown_key_text(name));
  if (auto status = key->set(config, value); !status) return failed(status.error().text);
  return {};
}

}  // namespace

std::string environment_name(const ConfigKey& key) {
  std::string name(kPrefix);
  for (const unsigned char c : key.name) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

Result<Config> apply_environment(Config base) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const auto equals = line.find('=');
    const auto variable = line.substr(0, equals);
    if (equals == std::string_view::npos || !variable.starts_with(kPrefix)) continue;
    if (belongs_to_programs(variable)) continue;
    if (auto status = apply_variable(base, variable, line.substr(equals + 1)); !status) return status.error();
  }
  return base;
}

}  // namespace uroce
