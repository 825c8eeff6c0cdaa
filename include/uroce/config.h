/// Configuration of a device. One TOML file, environment variables and flags name the same keys.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "uroce/ece.h"
#include "uroce/result.h"

namespace uroce {

/// Who calls the poll loop.
enum class Mode : std::uint8_t {
  kLcore,  ///< a pinned thread per loop, started by the device; who shares its core runs it, too
  /// The application, inside Cq::poll and Device::progress. While it calls neither, nobody answers its peers:
  /// they give a connection up after retry_cnt times its timeout, half a second by default.
  kApp,
  kAuto,  ///< the application while it polls, else a helper thread that sleeps until something happens
};

/// What keeps connections from filling the queues of a network.
enum class CongestionControl : std::uint8_t {
  kNone,
  /// Marks of switches (ECN, RFC 3168) are told to the sender by CNPs, which cut its rate: IBA A17.9.3 and
  /// Zhu et al., SIGCOMM 2015. RC, UC and XRC. CNPs are the same with network cards.
  kDcqcn,
};

/// Everything a device can be told. Defaults are those of config/uroce.toml.
struct Config {
  std::string port = "shm:uroce";  ///< port specification: driver:argument[,key=value...]
  std::vector<std::string> ip;     ///< ADDR/PREFIX[@VLAN], IPv4 or IPv6; empty: derived on two-ended links
  std::string gateway;             ///< next hop for destinations outside the prefixes; empty: none
  bool roce_v1 = false;            ///< RoCE v1 entries in the GID table, behind those of RoCE v2
  std::uint32_t mtu = 0;           ///< link MTU in bytes; 0: the port's own
  Mode mode = Mode::kApp;
  std::string lcores;      ///< 1, 2, 4, ... cores such as "2-5", one loop each; empty: one loop, not pinned
  bool no_huge = false;    ///< do without hugepages
  std::string fault;       ///< fault rules applied to this port, see drivers/fault/README.md
  std::string pcap;        ///< capture file for every frame; empty: none
  std::string counters;    ///< file that the device's counters are added to when it closes; empty: none
  std::uint64_t seed = 0;  ///< seed of keys, numbers and faults; 0: from the system
  std::uint32_t max_qp = 65536;
  std::uint32_t max_unacked = 256;     ///< packets in flight per QP, 1..4096
  std::uint32_t arp_timeout_ms = 200;  ///< between ARP / neighbour solicitation attempts
  std::uint32_t hardened = 0;          ///< bad packets in a row that a QP survives, 0..100; 0: as IBTA says
  std::uint32_t probe_us = 100;      ///< an answer that is later than the round trip by so much is asked for
                                     ///< again; 0: not before the ack timeout
  std::uint32_t keepalive_ms = 300;  ///< a connected uroce peer that is silent for so long is gone; 0: never
  bool keepalive_all = false;        ///< peers that are not uroce are asked, too
  std::uint32_t rnr_cap_ms = 0;      ///< longest wait that an RNR NAK is granted; 0: whatever it says
  /// End-to-end credits of RC QPs, IBA 9.7.7.2 ?: ACKs say how many receives are posted (not those of an
  /// Srq), and what a peer says so is not exceeded. Meant for both ends; an end without neither counts nor
  /// looks, and RNR NAKs go on to do the work.
  bool credits = false;
  /// Connections that the manager makes offer selective repeat to their peers: after a loss only what was
  /// lost is sent again. A peer that does not know it goes back N, as without. Up to 256 packets are held per
  /// queue pair that has it, and up to 512 responses: bytes as many times the path MTU and 192, reserved when
  /// it connects and filled when packets are lost.
  bool selective_repeat = false;
  /// And joint ACKs: those of several queue pairs that are due at the same time leave in one packet.
  /// Thousands of connections between two uroce peers that are busy in turns gain by it; one alone sends what
  /// it sends without.
  bool joint_acks = true;
  /// To no avail on links that mark nothing, so off unless asked for.
  CongestionControl congestion = CongestionControl::kNone;
  std::uint32_t line_mbps = 100'000;  ///< highest rate of a connection that is controlled, 10..1000000 Mb/s
  std::uint32_t cnp_us = 50;          ///< least time between two CNPs of a connection, 1..1000000 us
  std::uint32_t cnp_dscp = 48;        ///< DSCP of CNPs, 0..63

  /// The options among these that peers are asked for.
  [[nodiscard]] constexpr Ece offer() const noexcept {
    return {.vendor_id = ece::kVendor,
            .options = (selective_repeat ? ece::kSelectiveRepeat : 0) | (joint_acks ? ece::kJointAcks : 0)};
  }
};

/// How a value is written in the file.
enum class ConfigType : std::uint8_t {
  kText,     ///< "text"
  kInteger,  ///< 1500
  kBoolean,  ///< true or false
  kTexts,    ///< ["one", "two"] or "one,two"
};

/// One configuration key: the single description that the TOML file, flags, environment and docs are made
/// from.
struct ConfigKey {
  std::string_view name;  ///< key in the file; flag is --name; environment is UROCE_NAME, upper case, - as _
  std::string_view metavar;  ///< what a value looks like
  std::string_view help;     ///< one line
  std::string_view allowed;  ///< the values it takes
  ConfigType type = ConfigType::kText;
  bool is_flag = false;  ///< needs no value on the command line; without one it means "true"
  /// Sets the key from text; a list comma-separated. Fails with kConfig and "key: what is wrong; allowed
  /// ...".
  Status (*set)(Config&, std::string_view text) = nullptr;
  /// The present value as text.
  std::string (*get)(const Config&) = nullptr;
};

[[nodiscard]] std::span<const ConfigKey> config_keys() noexcept;

/// Reads a TOML file over `base`: keys that it does not name keep their value.
/// @return kNotFound if it cannot be read; kConfig "file:line: key: what is wrong; allowed ..." for unknown
/// keys,
///         wrong types and values that are not allowed.
[[nodiscard]] Result<Config> load_config_file(const std::string& path, Config base = {});

/// The names that a TOML file gives values to, known keys or not.
/// @return kNotFound and kConfig as load_config_file(), but for what concerns single keys.
[[nodiscard]] Result<std::vector<std::string>> keys_in_config_file(const std::string& path);

/// Environment variable of a key: "no-huge" -> "UROCE_NO_HUGE".
[[nodiscard]] std::string environment_name(const ConfigKey& key);

/// Applies UROCE_* environment variables over `base`. An unknown one is an error, so that a mistyped name is
/// not ignored; lib/config/environment.cc lists those that are no keys (UROCE_CONFIG and a few more).
[[nodiscard]] Result<Config> apply_environment(Config base);

/// What a program of one's own opens its device with: UROCE_* environment variables over the file that
/// `file` or, if that is empty, UROCE_CONFIG names, if any, over `base`.
/// @return as load_config_file() and apply_environment().
[[nodiscard]] Result<Config> load_config(Config base = {}, const std::string& file = "");

/// The file that UROCE_CONFIG names; empty: none.
[[nodiscard]] std::string config_file_of_environment();

/// Checks every key of a Config that was filled in by hand.
[[nodiscard]] Status check_config(const Config& config);

/// Core list "2-5,8" -> {2,3,4,5,8}: ascending, no core twice, cores 0..1023. Masks ("0x3c") are refused.
[[nodiscard]] Result<std::vector<unsigned>> parse_core_list(std::string_view text);

}  // namespace uroce
