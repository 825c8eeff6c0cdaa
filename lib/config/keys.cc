// The table of configuration keys: names, texts, limits and access, each in one place.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "uroce/config.h"
#include "uroce/types.h"

namespace uroce {
namespace {

/// Failure of one key; adds what the table says is allowed.
Error refused(std::string_view key, std::string_view text, std::string_view why);

struct Limits {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool or_zero = false;  ///< 0 has a meaning of its own
};

template <typename T>
Status set_number(std::string_view key, std::string_view text, Limits limits, T& out) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_negative = text.size() > 1 && text.front() == '-' &&
                           std::ranges::all_of(text.substr(1), [](char c) { return c >= '0' && c <= '9'; });
  if (error == std::errc::result_out_of_range || is_negative) return refused(key, text, "is out of range");
  if (error != std::errc{} || end != text.data() + text.size()) {
    return refused(key, text, "is not a whole number");
  }
  const bool in_range = (value >= limits.low && value <= limits.high) || (limits.or_zero && value == 0);
  if (!in_range) return refused(key, text, "is out of range");
  out = static_cast<T>(value);
  return {};
}

Status set_boolean(std::string_view key, std::string_view text, bool& out) {
  constexpr std::array<std::string_view, 4> kTrue = {"true", "1", "yes", "on"};
  constexpr std::array<std::string_view, 4> kFalse = {"false", "0", "no", "off"};
  const bool is_true = std::ranges::find(kTrue, text) != kTrue.end();
  if (!is_true && std::ranges::find(kFalse, text) == kFalse.end()) {
    return refused(key, text, "is neither true nor false");
  }
  out = is_true;
  return {};
}

/// The name of a key, as a template argument.
struct KeyName {
  template <std::size_t kSize>
  consteval KeyName(const char (&name)[kSize]) {
    std::ranges::copy(name, text);
  }
  char text[32] = {};
};

/// A key whose field of Config is true or false.
template <KeyName kName, bool Config::*kField>
constexpr ConfigKey boolean_key(std::string_view help) {
  return {.name = kName.text,
          .metavar = "BOOL",
          .help = help,
          .allowed = "true or false; outside files also 1 or 0, yes or no, on or off",
          .type = ConfigType::kBoolean,
          .is_flag = true,
          .set = [](Config& c, std::string_view t) { return set_boolean(kName.text, t, c.*kField); },
          .get = [](const Config& c) { return std::string(c.*kField ? "true" : "false"); }};
}

/// Checks no more than that a driver is named: which there are, and what they take, is known to
/// drivers/registry.h.
Status set_port(Config& config, std::string_view text) {
  const auto driver = text.substr(0, text.find_first_of(":,"));
  const bool is_word = std::ranges::all_of(
      driver, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
  if (driver.empty() || !is_word) return refused("port", text, "does not begin with a driver's name");
  config.port = text;
  return {};
}

/// An address that a port can own.
std::optional<Gid> unicast(std::string_view text) {
  const auto gid = Gid::parse(text);
  return gid && gid->is_unicast() ? gid : std::nullopt;
}

std::optional<unsigned> number(std::string_view text, unsigned low, unsigned high) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  return is_number && value >= low && value <= high ? std::optional(value) : std::nullopt;
}

struct OwnAddress {
  Gid gid{};
  unsigned prefix = 0;
  unsigned vlan = 0;

  [[nodiscard]] bool is_same(const OwnAddress& other) const { return gid == other.gid && vlan == other.vlan; }
};

/// ADDR/PREFIX[@VLAN]
std::optional<OwnAddress> own_address(std::string_view text) {
  const auto at = text.find('@');
  const auto vlan = at == std::string_view::npos ? std::optional(0U) : number(text.substr(at + 1), 1, 4094);
  text = text.substr(0, at);
  const auto slash = text.find('/');
  const auto gid = unicast(text.substr(0, slash));
  if (slash == std::string_view::npos || !gid || !vlan) return std::nullopt;
  const auto prefix = number(text.substr(slash + 1), 1, gid->is_v4() ? 32 : 128);
  if (!prefix) return std::nullopt;
  return OwnAddress{.gid = *gid, .prefix = *prefix, .vlan = *vlan};
}

/// Whether all bits of the address from `first` on are ones, or zeros.
bool ends_in(const Gid& gid, std::size_t first, bool ones) {
  for (std::size_t bit = first; bit < 8 * gid.raw.size(); ++bit) {
    if ((gid.raw[bit / 8] >> (7 - bit % 8) & 1) != (ones ? 1 : 0)) return false;
  }
  return true;
}

/// Why no host has this unicast address; empty: one may.
std::string_view why_no_host(const OwnAddress& address) {
  const Gid& gid = address.gid;
  if (gid.is_loopback()) return "is an address of the loopback interface, which has no peers";
  const unsigned host_bits = (gid.is_v4() ? 32 : 128) - address.prefix;
  if (host_bits < 2) return "";  // one host, or two: RFC 3021, RFC 6164
  const std::size_t first = 8 * gid.raw.size() - host_bits;
  if (ends_in(gid, first, false)) return "is the address of the network, not of a host in it";
  if (gid.is_v4() && ends_in(gid, first, true)) return "is the broadcast address of its network";
  return "";
}

Status set_ip(Config& config, std::string_view text) {
  std::vector<std::string> addresses;
  std::vector<OwnAddress> seen;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    const auto one = text.substr(begin, comma - begin);
    const auto address = own_address(one);
    if (!address)
      return refused("ip", one, "is not a unicast address with a prefix length, in a VLAN or none");
    if (const auto why = why_no_host(*address); !why.empty()) return refused("ip", one, why);
    const auto is_same = [&](const OwnAddress& other) { return other.is_same(*address); };
    if (std::ranges::any_of(seen, is_same)) return refused("ip", one, "is given twice");
    seen.push_back(*address);
    addresses.emplace_back(one);
    begin = comma + 1;
  }
  config.ip = std::move(addresses);
  return {};
}

std::string get_ip(const Config& config) {
  std::string text;
  for (const auto& address : config.ip) {
    if (!text.empty()) text += ',';
    text += address;
  }
  return text;
}

Status set_gateway(Config& config, std::string_view text) {
  if (!text.empty() && !unicast(text)) return refused("gateway", text, "is not a unicast address");
  config.gateway = text;
  return {};
}

struct ModeName {
  Mode mode{};
  std::string_view name;
};
constexpr std::array kModes = {ModeName{.mode = Mode::kLcore, .name = "lcore"},
                               ModeName{.mode = Mode::kApp, .name = "app"},
                               ModeName{.mode = Mode::kAuto, .name = "auto"}};

Status set_mode(Config& config, std::string_view text) {
  const auto* row = std::ranges::find(kModes, text, &ModeName::name);
  if (row == kModes.end()) return refused("mode", text, "is not a mode");
  config.mode = row->mode;
  return {};
}

std::string get_mode(const Config& config) {
  const auto* row = std::ranges::find(kModes, config.mode, &ModeName::mode);
  return row == kModes.end() ? std::string() : std::string(row->name);
}

struct CongestionName {
  CongestionControl control{};
  std::string_view name;
};
constexpr std::array kCongestion = {CongestionName{.control = CongestionControl::kNone, .name = "none"},
                                    CongestionName{.control = CongestionControl::kDcqcn, .name = "dcqcn"}};

Status set_congestion(Config& config, std::string_view text) {
  const auto* row = std::ranges::find(kCongestion, text, &CongestionName::name);
  if (row == kCongestion.end()) return refused("congestion", text, "is no congestion control");
  config.congestion = row->control;
  return {};
}

std::string get_congestion(const Config& config) {
  const auto* row = std::ranges::find(kCongestion, config.congestion, &CongestionName::control);
  return row == kCongestion.end() ? std::string() : std::string(row->name);
}

Status set_lcores(Config& config, std::string_view text) {
  if (!text.empty()) {
    if (auto cores = parse_core_list(text); !cores) {
      return Error{.code = Errc::kConfig, .text = "lcores: " + cores.error().text};
    }
  }
  config.lcores = text;
  return {};
}

/// Any text will do; whoever uses it says what is wrong with it.
template <std::string Config::*kField>
Status set_text(Config& config, std::string_view text) {
  config.*kField = text;
  return {};
}
template <std::string Config::*kField>
std::string get_text(const Config& config) {
  return config.*kField;
}

constexpr std::array kKeys = {
    ConfigKey{.name = "port",
              .metavar = "SPEC",
              .help = "the port to open: a driver and what it needs",
              .allowed = "DRIVER:ARGUMENT[,KEY=VALUE...], such as shm:demo, memif:/run/x.sock,role=server or "
                         "af_packet:eth0",
              .set = set_port,
              .get = [](const Config& c) { return c.port; }},
    ConfigKey{.name = "ip",
              .metavar = "ADDR/PREFIX[@VLAN]",
              .help = "addresses of the port; none: derived on links between processes",
              .allowed =
                  "comma-separated ADDR/PREFIX, each perhaps with @VLAN (1..4094), such as 10.0.0.1/24 or "
                  "fd00::1/64@5",
              .type = ConfigType::kTexts,
              .set = set_ip,
              .get = get_ip},
    ConfigKey{.name = "gateway",
              .metavar = "ADDR",
              .help = "next hop for destinations outside the prefixes; empty: none",
              .allowed = "one IPv4 or IPv6 unicast address, or nothing",
              .set = set_gateway,
              .get = [](const Config& c) { return c.gateway; }},
    boolean_key<"roce-v1", &Config::roce_v1>("also speak RoCE v1: its GIDs follow those of RoCE v2"),
    ConfigKey{.name = "mtu",
              .metavar = "BYTES",
              .help = "link MTU, the bytes after the Ethernet header; 0: the port's own",
              .allowed = "0 or 352..9600",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("mtu", t, {352, 9600, true}, c.mtu);
                  },
              .get = [](const Config& c) { return std::to_string(c.mtu); }},
    ConfigKey{.name = "mode",
              .metavar = "MODE",
              .help = "who calls the poll loop: pinned threads, the application, or whoever is awake",
              .allowed = "lcore, app or auto",
              .set = set_mode,
              .get = get_mode},
    ConfigKey{.name = "lcores",
              .metavar = "LIST",
              .help = "1, 2, 4, ... cores to run on, one poll loop each; empty: one loop, not pinned",
              .allowed = "cores 0..1023 and ranges, such as 2-5",
              .set = set_lcores,
              .get = [](const Config& c) { return c.lcores; }},
    boolean_key<"no-huge", &Config::no_huge>("do without hugepages: runs everywhere, slower"),
    ConfigKey{.name = "fault",
              .metavar = "RULES",
              .help = "faults put on this port's frames; empty: none",
              .allowed = "rules as drivers/fault/README.md lists them, or nothing",
              .set = set_text<&Config::fault>,
              .get = get_text<&Config::fault>},
    ConfigKey{.name = "pcap",
              .metavar = "FILE",
              .help = "capture file for every frame of the port; empty: none",
              .allowed = "a file that can be written, or nothing",
              .set = set_text<&Config::pcap>,
              .get = get_text<&Config::pcap>},
    ConfigKey{.name = "counters",
              .metavar = "FILE",
              .help = "file that the device adds its counters to when it closes; empty: none",
              .allowed = "a file that can be written, such as /dev/stderr, or nothing",
              .set = set_text<&Config::counters>,
              .get = get_text<&Config::counters>},
    ConfigKey{.name = "seed",
              .metavar = "N",
              .help = "seed of keys, first packet numbers and faults; 0: from the system",
              .allowed = "0..9223372036854775807",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("seed", t, {0, INT64_MAX}, c.seed);
                  },
              .get = [](const Config& c) { return std::to_string(c.seed); }},
    ConfigKey{.name = "max-qp",
              .metavar = "N",
              .help = "most queue pairs of the device",
              .allowed = "1..16777213",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("max-qp", t, {1, 0xff'fffd}, c.max_qp);
                  },
              .get = [](const Config& c) { return std::to_string(c.max_qp); }},
    ConfigKey{.name = "max-unacked",
              .metavar = "PACKETS",
              .help = "packets in flight of one queue pair",
              .allowed = "1..4096",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("max-unacked", t, {1, 4096}, c.max_unacked);
                  },
              .get = [](const Config& c) { return std::to_string(c.max_unacked); }},
    ConfigKey{.name = "arp-timeout-ms",
              .metavar = "MS",
              .help = "milliseconds between ARP or neighbour solicitation attempts",
              .allowed = "1..60000",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("arp-timeout-ms", t, {1, 60'000}, c.arp_timeout_ms);
                  },
              .get = [](const Config& c) { return std::to_string(c.arp_timeout_ms); }},
    ConfigKey{.name = "hardened",
              .metavar = "PACKETS",
              .help = "bad packets in a row that a queue pair survives; 0: none, as IBTA says",
              .allowed = "0..100",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("hardened", t, {0, 100}, c.hardened);
                  },
              .get = [](const Config& c) { return std::to_string(c.hardened); }},
    ConfigKey{.name = "probe-us",
              .metavar = "US",
              .help = "margin over the measured round trip after which a late answer is asked for again; 0: "
                      "only after the ack timeout",
              .allowed = "0..1000000",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("probe-us", t, {0, 1'000'000}, c.probe_us);
                  },
              .get = [](const Config& c) { return std::to_string(c.probe_us); }},
    ConfigKey{.name = "keepalive-ms",
              .metavar = "MS",
              .help = "a connected uroce peer that is silent for so long is gone; 0: never asked",
              .allowed = "0, 10..60000",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("keepalive-ms", t, {10, 60'000, true}, c.keepalive_ms);
                  },
              .get = [](const Config& c) { return std::to_string(c.keepalive_ms); }},
    boolean_key<"keepalive-all", &Config::keepalive_all>(
        "connected peers that are not uroce are asked, too, and given up as soon"),
    ConfigKey{.name = "rnr-cap-ms",
              .metavar = "MS",
              .help = "longest wait that a peer's RNR NAK is granted; 0: whatever it says, up to 655",
              .allowed = "0..655",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("rnr-cap-ms", t, {0, 655}, c.rnr_cap_ms);
                  },
              .get = [](const Config& c) { return std::to_string(c.rnr_cap_ms); }},
    boolean_key<"credits", &Config::credits>(
        "count receives: peers are told how many there are, and theirs are not exceeded"),
    boolean_key<"selective-repeat", &Config::selective_repeat>(
        "offer peers to send again only what was lost; those that do not know it get all again"),
    boolean_key<"joint-acks", &Config::joint_acks>(
        "offer uroce peers ACKs of several queue pairs in one packet"),
    ConfigKey{
        .name = "congestion",
        .metavar = "CONTROL",
        .help = "slow down when switches mark packets (ECN) and the peer tells it by CNPs: dcqcn, or none",
        .allowed = "none or dcqcn",
        .set = set_congestion,
        .get = get_congestion},
    ConfigKey{.name = "line-mbps",
              .metavar = "MBPS",
              .help = "highest rate of a connection that congestion control has slowed down",
              .allowed = "10..1000000",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("line-mbps", t, {10, 1'000'000}, c.line_mbps);
                  },
              .get = [](const Config& c) { return std::to_string(c.line_mbps); }},
    ConfigKey{.name = "cnp-us",
              .metavar = "US",
              .help = "least microseconds between two CNPs of a connection",
              .allowed = "1..1000000",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("cnp-us", t, {1, 1'000'000}, c.cnp_us);
                  },
              .get = [](const Config& c) { return std::to_string(c.cnp_us); }},
    ConfigKey{.name = "cnp-dscp",
              .metavar = "N",
              .help = "DSCP of CNPs",
              .allowed = "0..63",
              .type = ConfigType::kInteger,
              .set =
                  [](Config& c, std::string_view t) {
                    return set_number("cnp-dscp", t, {0, 63}, c.cnp_dscp);
                  },
              .get = [](const Config& c) { return std::to_string(c.cnp_dscp); }},
};

Error refused(std::string_view key, std::string_view text, std::string_view why) {
  const auto* row = std::ranges::find(kKeys, key, &ConfigKey::name);
  std::string line = std::string(key) + ": '" + std::string(text) + "' " + std::string(why);
  if (row != kKeys.end()) line += "; allowed " + std::string(row->allowed);
  return {.code = Errc::kConfig, .text = std::move(line)};
}

}  // namespace

std::span<const ConfigKey> config_keys() noexcept {
  return kKeys;
}

Status check_config(const Config& config) {
  Config copy;
  for (const auto& key : kKeys) {
    if (auto status = key.set(copy, key.get(config)); !status) return status;
  }
  return {};
}

}  // namespace uroce
