/// Configuration of a device. One TOML file, environment variables and flags name the same keys.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "uroce/result.h"

namespace uroce {

/// Who calls the poll loop.
enum class Mode : std::uint8_t {
  kLcore,  ///< a pinned thread per loop, started by the device
  kApp,    ///< the application, inside Cq::poll
  kAuto,   ///< the application while it polls, else a helper thread that sleeps until something happens
};

/// Everything a device can be told. Defaults are those of config/uroce.toml.
struct Config {
  std::string port = "shm:uroce";  ///< port specification: driver:argument[,key=value...]
  std::vector<std::string> ip;     ///< ADDR/PREFIX, IPv4 or IPv6; empty: derived on two-ended links
  std::string gateway;             ///< next hop for destinations outside the prefixes; empty: none
  std::uint32_t mtu = 0;           ///< link MTU in bytes; 0: the port's own
  Mode mode = Mode::kApp;
  std::string lcores;              ///< core list such as "2-5,8", one loop each; empty: one loop, not pinned
  bool no_huge = false;            ///< do without hugepages
  std::string fault;               ///< fault rules applied to this port, see drivers/fault/README.md
  std::string pcap;                ///< capture file for every frame; empty: none
  std::uint64_t seed = 0;          ///< seed of keys, numbers and faults; 0: from the system
  std::uint32_t max_qp = 65536;
  std::uint32_t max_unacked = 256;  ///< packets in flight per QP, 1..4096
  std::uint32_t arp_timeout_ms = 200;  ///< between ARP / neighbour solicitation attempts
};

/// One configuration key: the single description that the TOML file, flags, environment and docs are made from.
struct ConfigKey {
  std::string_view name;      ///< key in the file; flag is --name, environment is UROCE_NAME
  std::string_view metavar;   ///< what a value looks like
  std::string_view help;      ///< one line
  bool is_flag = false;       ///< takes no value on the command line
  /// Sets the key from text. Fails with kConfig and the allowed values.
  Status (*set)(Config&, std::string_view text) = nullptr;
  /// The present value as text.
  std::string (*get)(const Config&) = nullptr;
};

[[nodiscard]] std::span<const ConfigKey> config_keys() noexcept;

/// Reads a TOML file over `base`. Unknown keys and wrong types are errors "file:line: key: ...".
[[nodiscard]] Result<Config> load_config_file(const std::string& path, Config base = {});
/// Applies UROCE_* environment variables over `base`.
[[nodiscard]] Result<Config> apply_environment(Config base);
/// Core list "2-5,8" -> {2,3,4,5,8}.
[[nodiscard]] Result<std::vector<unsigned>> parse_core_list(std::string_view text);

}  // namespace uroce
