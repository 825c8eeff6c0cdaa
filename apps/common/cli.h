/// What every subcommand has in common: configuration flags, error lines, exit codes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "uroce/config.h"
#include "uroce/result.h"

namespace CLI {
class App;
}

namespace uroce::apps {

/// Where the value of a key came from, weakest first.
enum class Origin : std::uint8_t { kDefault, kFile, kEnvironment, kFlag };

[[nodiscard]] std::string_view to_string(Origin origin) noexcept;

/// Flags made from config_keys(), with --config and --json, on one subcommand.
///
/// Lifetime: must outlive the parsing of the command line.
class SharedOptions {
 public:
  /// @param defaults  the values of keys that nobody sets, for the help
  explicit SharedOptions(CLI::App& command, const Config& defaults = {});
  SharedOptions(const SharedOptions&) = delete;
  SharedOptions& operator=(const SharedOptions&) = delete;

  /// Flag over environment over file over `base`.
  /// @return what Device::check() refuses, with where the value is from
  [[nodiscard]] Result<Config> resolve(Config base = {}) const;
  /// Who decided the key's value. Valid for keys that resolve() accepted.
  [[nodiscard]] Origin origin(const ConfigKey& key) const;
  /// The file read: --config, else UROCE_CONFIG, else nothing.
  [[nodiscard]] std::string file() const;
  [[nodiscard]] bool json() const noexcept { return json_; }

 private:
  [[nodiscard]] Status check(const Config& config) const;
  /// What the command line says about the key, as ConfigKey::set takes it.
  [[nodiscard]] std::optional<std::string> given(const ConfigKey& key) const;

  std::string file_;
  bool json_ = false;
  std::map<std::string, std::vector<std::string>, std::less<>> given_;  ///< key -> texts on the command line
  std::map<std::string, std::string, std::less<>> flags_;               ///< the same for keys without a value
};

/// Of the options of this command and of those below it: numbers are decimal, whatever zeros are in front,
/// and finite, and of one that is given twice the last holds. To be called once they have all their options.
void set_conventions(CLI::App& command);

/// For Option::check(): the number of a port at which the other end is to find this one.
/// @return what is wrong with it; empty: nothing.
[[nodiscard]] std::string check_port(const std::string& text);
/// Likewise of the other end's name: a variable that is not set is no wish to be the server.
[[nodiscard]] std::string check_host(const std::string& text);

/// A note, where --mtu was given what perftest and ibv_rc_pingpong mean by it: a path MTU. For commands that
/// have -m.
void tell_of_link_mtu(const SharedOptions& shared, const Config& config);

/// Prints "uroce: <text>" on stderr, unless the program is told to end. @return the exit code that belongs to
/// the failure.
int fail(const Error& error);

/// Exit code of a command line that makes no sense.
inline constexpr int kUsageExit = 2;

/// A subcommand: adds itself to `root`; when it is chosen, its exit code goes to `exit_code`.
using AddCommand = void (*)(CLI::App& root, int& exit_code);

}  // namespace uroce::apps
