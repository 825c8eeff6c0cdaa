#include "drivers/spec.h"

#include <algorithm>
#include <charconv>

namespace uroce::drivers {
namespace {

Error config_error(std::string text) {
  return Error{Errc::kConfig, std::move(text)};
}

auto find(auto& options, std::string_view key) noexcept {
  return std::find_if(options.begin(), options.end(),
                      [key](const auto& option) { return option.first == key; });
}

Result<std::pair<std::string, std::string>> parse_option(std::string_view item, std::string_view spec) {
  const auto equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  if (key.empty()) {
    return config_error("port " + quoted(spec) + ": " + quoted(item) + " is not an option; write key=value");
  }
  // A key alone switches something on.
  const std::string_view value = equals == std::string_view::npos ? "on" : item.substr(equals + 1);
  return std::pair{std::string(key), std::string(value)};
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out(1, '"');
  out.append(text);
  out.push_back('"');
  return out;
}

bool PortSpec::has(std::string_view key) const noexcept {
  return find(options, key) != options.end();
}

Result<std::string> PortSpec::take(std::string_view key) {
  const auto option = find(options, key);
  if (option == options.end()) {
    return config_error("port " + quoted(text) + ": option " + std::string(key) + "= is missing");
  }
  std::string value = std::move(option->second);
  options.erase(option);
  return value;
}

std::string PortSpec::take_or(std::string_view key, std::string_view fallback) {
  return has(key) ? take(key).value() : std::string(fallback);
}

Result<std::uint64_t> PortSpec::take_number(std::string_view key, std::uint64_t fallback, std::uint64_t low,
                                            std::uint64_t high) {
  if (!has(key)) return fallback;
  const std::string value = take(key).value();
  const std::string what = "port " + quoted(text) + ": option " + std::string(key);
  auto number = parse_number(what, value);
  if (!number) return number;
  if (*number < low || *number > high) {
    return config_error(what + "=" + value + " is out of range; allowed: " + std::to_string(low) + " to " +
                        std::to_string(high));
  }
  return number;
}

Result<std::uint64_t> PortSpec::take_size(std::string_view key, std::uint64_t fallback) {
  if (!has(key)) return fallback;
  const std::string value = take(key).value();
  const std::string what = "port " + quoted(text) + ": option " + std::string(key);
  std::string_view digits = value;
  unsigned shift = 0;
  if (!digits.empty()) {
    const char unit = digits.back();
    shift = unit == 'K' || unit == 'k'   ? 10
            : unit == 'M' || unit == 'm' ? 20
            : unit == 'G' || unit == 'g' ? 30
                                         : 0;
    if (shift != 0) digits.remove_suffix(1);
  }
  auto number = parse_number(what, digits);
  if (!number) return parse_number(what, value);  // names the whole value
  if (*number > (UINT64_MAX >> shift)) return config_error(what + "=" + value + " is too large");
  return *number << shift;
}

Result<bool> PortSpec::take_bool(std::string_view key, bool fallback) {
  if (!has(key)) return fallback;
  const std::string value = take(key).value();
  for (const std::string_view yes : {"on", "yes", "true", "1"}) {
    if (value == yes) return true;
  }
  for (const std::string_view no : {"off", "no", "false", "0"}) {
    if (value == no) return false;
  }
  return config_error("port " + quoted(text) + ": option " + std::string(key) + "=" + value +
                      " is neither on nor off");
}

Status PortSpec::check_options(std::span<const std::string_view> known) const {
  const auto unknown = std::ranges::find_if(
      options, [known](const auto& option) { return std::ranges::find(known, option.first) == known.end(); });
  if (unknown == options.end()) return {};
  std::string names;
  for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name) + "=";
  return config_error("port " + quoted(text) + ": driver " + driver + " has no option " +
                      quoted(unknown->first) + "; known: " + names);
}

Result<PortSpec> parse_spec(std::string_view text) {
  PortSpec spec{.text = std::string(text), .driver = {}, .argument = {}, .options = {}};
  const auto comma = text.find(',');
  std::string_view head = text.substr(0, comma);
  const auto colon = head.find(':');
  spec.driver = head.substr(0, colon);
  if (colon != std::string_view::npos) spec.argument = head.substr(colon + 1);
  if (spec.driver.empty()) {
    return config_error("port " + quoted(text) + " names no driver; write driver:argument, e.g. shm:demo");
  }
  std::string_view rest = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  bool more = comma != std::string_view::npos;
  while (more) {
    const auto next = rest.find(',');
    auto option = parse_option(rest.substr(0, next), text);
    if (!option) return option.error();
    if (spec.has(option->first)) {
      return config_error("port " + quoted(text) + ": option " + option->first + " is given twice");
    }
    spec.options.push_back(std::move(*option));
    more = next != std::string_view::npos;
    if (more) rest.remove_prefix(next + 1);
  }
  return spec;
}

Result<std::uint64_t> parse_number(std::string_view what, std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = hex ? text.substr(2) : text;
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (digits.empty() || error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    return config_error(std::string(what) + ": " + quoted(text) + " is not a number");
  }
  if (error == std::errc::result_out_of_range) {
    return config_error(std::string(what) + ": " + quoted(text) + " is too large");
  }
  return value;
}

}  // namespace uroce::drivers
