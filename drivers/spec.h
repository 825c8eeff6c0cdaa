/// Reads port specifications: "driver:argument[,key=value...]".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "uroce/result.h"

namespace uroce::drivers {

/// A port specification, taken apart. Each driver says which options it has, and takes them.
///
///   Result<PortSpec> spec = parse_spec("shm:demo,ring=1M,side=0");
///   if (Status status = spec->check_options({"ring", "side"}); !status) return status.error();
///   Result<std::uint64_t> ring = spec->take_size("ring", 1 << 20);
struct PortSpec {
  std::string text;                                          ///< as the user wrote it
  std::string driver;                                        ///< before the first ':'
  std::string argument;                                      ///< from there to the first ','; may be empty
  std::vector<std::pair<std::string, std::string>> options;  ///< not yet taken, in the order written

  [[nodiscard]] bool has(std::string_view key) const noexcept;

  /// Removes option `key`.
  /// @return its value; kConfig if it is not given.
  Result<std::string> take(std::string_view key);
  /// @return its value; `fallback` if it is not given.
  std::string take_or(std::string_view key, std::string_view fallback);
  /// A decimal or 0x number in [low, high].
  /// @return kConfig for anything else; `fallback` if it is not given.
  Result<std::uint64_t> take_number(std::string_view key, std::uint64_t fallback, std::uint64_t low,
                                    std::uint64_t high);
  /// A number of bytes, with K, M or G (powers of 1024) behind it if wanted.
  Result<std::uint64_t> take_size(std::string_view key, std::uint64_t fallback);
  /// on|off, yes|no, true|false, 1|0; a key alone means on.
  Result<bool> take_bool(std::string_view key, bool fallback);
  /// @return kConfig naming the first option that is none of `known`, and those
  [[nodiscard]] Status check_options(std::span<const std::string_view> known) const;
};

/// @return kConfig if the driver is missing, or an option is malformed or given twice.
Result<PortSpec> parse_spec(std::string_view text);

/// Reads a whole decimal or 0x number.
/// @return kConfig with `what` in its text if `text` is anything else.
Result<std::uint64_t> parse_number(std::string_view what, std::string_view text);

/// `text` between double quotes, for messages.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace uroce::drivers
