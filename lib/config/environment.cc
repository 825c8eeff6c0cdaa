#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

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

/// Variables that are no keys: they belong to the machine or to a test, not to a device.
constexpr std::array<std::string_view, 5> kOtherVariables = {
    "UROCE_CONFIG", "UROCE_RUNTIME_DIR", "UROCE_SYSFS", "UROCE_EAL_LOG", "UROCE_HUGEPAGE_POOL"};
constexpr std::array<std::string_view, 2> kOtherPrefixes = {"UROCE_TEST_", "UROCE_INTEROP_"};

bool is_no_key(std::string_view variable) {
  return std::ranges::find(kOtherVariables, variable) != kOtherVariables.end() ||
         std::ranges::any_of(kOtherPrefixes, [&](auto prefix) { return variable.starts_with(prefix); });
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
  for (const char c : key.name) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string config_file_of_environment() {
  const char* file = std::getenv("UROCE_CONFIG");
  return file == nullptr ? std::string() : std::string(file);
}

Result<Config> load_config(Config base, const std::string& file) {
  const std::string path = file.empty() ? config_file_of_environment() : file;
  if (path.empty()) return apply_environment(std::move(base));
  return load_config_file(path, std::move(base)).and_then(apply_environment);
}

Result<Config> apply_environment(Config base) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const auto equals = line.find('=');
    const auto variable = line.substr(0, equals);
    if (equals == std::string_view::npos || !variable.starts_with(kPrefix)) continue;
    if (is_no_key(variable)) continue;
    if (auto status = apply_variable(base, variable, line.substr(equals + 1)); !status) return status.error();
  }
  return base;
}

}  // namespace uroce
