#include "apps/common/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "apps/common/stop.h"
#include "apps/common/tell.h"
#include "uroce/device.h"

namespace uroce::apps {

namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

/// Makes it a number as CLI11 reads them, which takes "010" for 8, as C does. @return what is wrong with it
std::string to_decimal(std::string& text) {
  const bool is_signed = text.starts_with("-") || text.starts_with("+");
  const std::string digits = is_signed ? text.substr(1) : text;
  if (digits.starts_with("0x")) return "";
  if (digits.empty() || !std::ranges::all_of(digits, is_digit))
    return fmt::format("'{}' is not a whole number; options are written -n 5, --iters 5 or --iters=5", text);
  text = text.substr(0, is_signed ? 1 : 0) +
         digits.substr(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return "";
}

/// Of what CLI11 reads as a number, "nan" is in each of its ranges. @return what is wrong with it
std::string check_finite(const std::string& text) {
  if (std::isfinite(std::strtod(text.c_str(), nullptr))) return "";
  return fmt::format("{} is not a finite number", text);
}

}  // namespace

void set_conventions(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("UINT") || type.starts_with("INT"))
      option->transform(CLI::Validator(to_decimal, ""));
    if (type.starts_with("FLOAT")) option->check(check_finite);
    const bool takes_one = option->get_items_expected_max() == 1;
    if (takes_one && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  for (CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; }))
    set_conventions(*below);
}

std::string check_port(const std::string& text) {
  if (CLI::Range(1U, 65'535U)(text).empty()) return "";
  return fmt::format("{} is no port that the other end could be told: they are 1 to 65535", text);
}

std::string check_host(const std::string& text) {
  return text.empty() ? "the server's name is empty; leave it out to be the server" : "";
}

namespace {

/// With what it may be, and what it is if nobody sets it.
std::string help_of(const ConfigKey& key, const Config& defaults) {
  const std::string value = key.get(defaults);
  if (!key.is_flag)
    return fmt::format("{} ({}; default: {})", key.help, key.allowed, value.empty() ? "empty" : value);
  return fmt::format("{}{}", key.help, value == "true" ? " (default: true)" : "");
}

}  // namespace

std::string_view to_string(Origin origin) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"default", "file", "environment", "flag"};
  return kNames[static_cast<std::size_t>(origin)];
}

SharedOptions::SharedOptions(CLI::App& command, const Config& defaults) {
  const std::string group = "Device (also keys of the configuration file and UROCE_* variables)";
  command.add_option("--config", file_, "read the configuration file FILE")->type_name("FILE")->group(group);
  for (const auto& key : config_keys()) {
    const std::string name(key.name);
    const std::string help = help_of(key, defaults);
    if (key.is_flag) {
      command.add_flag("--" + name, flags_[name], help)->group(group);
      continue;
    }
    command.add_option("--" + name, given_[name], help)
        ->type_name(std::string(key.metavar))
        ->default_str("")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(name == "ip" ? CLI::MultiOptionPolicy::TakeAll
                                           : CLI::MultiOptionPolicy::TakeLast)
        ->group(group);
  }
  command.add_flag("--json", json_, "print one JSON object instead of text");
}

std::optional<std::string> SharedOptions::given(const ConfigKey& key) const {
  if (const auto flag = flags_.find(key.name); flag != flags_.end()) {
    return flag->second.empty() ? std::nullopt : std::optional(flag->second);
  }
  const auto texts = given_.find(key.name);
  if (texts == given_.end() || texts->second.empty()) return std::nullopt;
  std::string joined;
  for (const auto& text : texts->second) joined += (joined.empty() ? "" : ",") + text;
  return joined;
}

std::string SharedOptions::file() const {
  return file_.empty() ? config_file_of_environment() : file_;
}

Result<Config> SharedOptions::resolve(Config base) const {
  auto loaded = load_config(std::move(base), file_);
  if (!loaded) return loaded;
  Config config = std::move(*loaded);
  for (const auto& key : config_keys()) {
    const auto text = given(key);
    if (!text) continue;
    if (key.name == "port" && !text->empty() && std::ranges::all_of(*text, is_digit)) {
      return Error{
          .code = Errc::kConfig,
          .text = fmt::format("--port {0}: it names a link, e.g. shm:uroce or af_packet:eth0; the port of "
                              "TCP or RDMA-CM is -p {0}",
                              *text)};
    }
    if (auto status = key.set(config, *text); !status) {
      return Error{.code = status.error().code, .text = "--" + status.error().text};
    }
  }
  if (auto status = check(config); !status) return status.error();
  return config;
}

Status SharedOptions::check(const Config& config) const {
  const Status all = Device::check(config);
  if (all) return all;
  for (const auto& key : config_keys()) {
    Config alone;
    if (!key.set(alone, key.get(config))) continue;
    const Status one = Device::check(alone);
    if (one) continue;
    const Origin from = origin(key);
    if (from != Origin::kFile && from != Origin::kEnvironment) return one;
    const std::string where = from == Origin::kFile ? file() : "environment: " + environment_name(key);
    return Error{.code = one.error().code, .text = where + ": " + one.error().text};
  }
  return all;
}

Origin SharedOptions::origin(const ConfigKey& key) const {
  if (given(key)) return Origin::kFlag;
  if (std::getenv(environment_name(key).c_str()) != nullptr) return Origin::kEnvironment;
  const auto path = file();
  if (path.empty()) return Origin::kDefault;
  const auto set = keys_in_config_file(path);
  const bool is_set = set && std::ranges::find(*set, key.name) != set->end();
  return is_set ? Origin::kFile : Origin::kDefault;
}

void tell_of_link_mtu(const SharedOptions& shared, const Config& config) {
  constexpr std::array kPathMtus = {512U, 1024U, 2048U, 4096U};  // 256: no link's
  const auto key = std::ranges::find(config_keys(), "mtu", &ConfigKey::name);
  if (shared.origin(*key) != Origin::kFlag || std::ranges::count(kPathMtus, config.mtu) == 0) return;
  tell("uroce: note: --mtu is the link's; the path MTU is -m {}\n", config.mtu);
}

int fail(const Error& error) {
  if (!is_stopped()) tell("uroce: {}\n", error.text);
  return exit_code(error.code);
}

}  // namespace uroce::apps
