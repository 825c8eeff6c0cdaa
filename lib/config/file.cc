#define TOML_HEADER_ONLY 1  // see meson.build
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "config/text.h"
#include "uroce/config.h"

namespace uroce {
namespace {

/// "file:line: what", in one line whatever the file holds.
Error failed_at(const std::string& path, const toml::source_region& source, std::string what) {
  std::ranges::replace_if(
      what, [](unsigned char c) { return c < ' '; }, ' ');
  return {.code = Errc::kConfig, .text = path + ":" + std::to_string(source.begin.line) + ": " + what};
}

std::string_view type_name(const toml::node& value) {
  switch (value.type()) {
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a fraction";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

std::string_view type_name(ConfigType type) {
  switch (type) {
    case ConfigType::kText:
      return "a text";
    case ConfigType::kInteger:
      return "a whole number";
    case ConfigType::kBoolean:
      return "a boolean";
    case ConfigType::kTexts:
      return "a list of texts";
  }
  return "";
}

/// ["a", "b"] -> "a,b"; nothing if an element is no text or holds a comma.
std::optional<std::string> joined(const toml::array& list) {
  std::string text;
  for (const auto& element : list) {
    const auto one = element.value_exact<std::string>();
    if (!one || one->empty() || one->find(',') != std::string::npos) return std::nullopt;
    if (!text.empty()) text += ',';
    text += *one;
  }
  return text;
}

/// The value as ConfigKey::set takes it; nothing if it has another type than the key.
std::optional<std::string> value_text(const toml::node& value, ConfigType type) {
  switch (type) {
    case ConfigType::kText:
      return value.value_exact<std::string>();
    case ConfigType::kInteger:
      if (const auto number = value.value_exact<std::int64_t>()) return std::to_string(*number);
      return std::nullopt;
    case ConfigType::kBoolean:
      if (const auto truth = value.value_exact<bool>()) return *truth ? "true" : "false";
      return std::nullopt;
    case ConfigType::kTexts:
      if (const auto* list = value.as_array()) return joined(*list);
      return value.value_exact<std::string>();
  }
  return std::nullopt;
}

Status apply_entry(Config& config, const std::string& path, const toml::key& name, const toml::node& value) {
  const auto prefix = std::string(name.str()) + ": ";
  const auto* key = config::find_key(name.str());
  if (key == nullptr) return failed_at(path, name.source(), prefix + config::unknown_key_text(name.str()));

  const auto text = value_text(value, key->type);
  if (!text) {
    return failed_at(path, value.source(),
                     prefix + "is " + std::string(type_name(value)) + ", not " +
                         std::string(type_name(key->type)) + "; allowed " + std::string(key->allowed));
  }
  if (auto status = key->set(config, *text); !status) {
    return failed_at(path, value.source(), status.error().text);
  }
  return {};
}

Result<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || text.fail()) {
    return Error{.code = Errc::kNotFound,
                 .text = path + ": cannot be read: " + std::strerror(errno) +
                         "; config/uroce.toml is a file to start from"};
  }
  return text.str();
}

/// "mtu: " of a line "mtu = 15x0" that the parser refused; empty if it has no key.
std::string key_of_line(const std::string& text, std::size_t line) {
  std::istringstream lines(text);
  std::string one;
  for (std::size_t i = 0; i < line && std::getline(lines, one); ++i) {
  }
  const auto name = one.substr(0, one.find_first_of(" \t="));
  return one.find('=') == std::string::npos || name.empty() ? std::string() : name + ": ";
}

Result<toml::table> parse_file(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  try {
    return toml::parse(*text, path);
  } catch (const toml::parse_error& error) {
    return failed_at(path, error.source(),
                     key_of_line(*text, error.source().begin.line) + std::string(error.description()));
  }
}

}  // namespace

Result<Config> load_config_file(const std::string& path, Config base) {
  const auto table = parse_file(path);
  if (!table) return table.error();
  for (const auto& [name, value] : *table) {
    if (auto status = apply_entry(base, path, name, value); !status) return status.error();
  }
  return base;
}

Result<std::vector<std::string>> keys_in_config_file(const std::string& path) {
  const auto table = parse_file(path);
  if (!table) return table.error();
  std::vector<std::string> names;
  for (const auto& [name, value] : *table) names.emplace_back(name.str());
  return names;
}

}  // namespace uroce
