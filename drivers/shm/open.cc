#include "drivers/shm/open.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "drivers/shm/mesh_port.h"
#include "drivers/spec.h"

namespace uroce::drivers {
namespace {

using Ports = std::vector<std::unique_ptr<port::Port>>;
using Links = std::vector<std::shared_ptr<shm::Link>>;

/// Locally administered; the ends of one link differ in the last byte.
MacAddress mac_of(std::string_view name, unsigned end) noexcept {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  const auto byte = [hash](unsigned shift) { return static_cast<std::uint8_t>(hash >> shift); };
  return MacAddress{{0x02, byte(24), byte(16), byte(8), byte(0), static_cast<std::uint8_t>(end + 1)}};
}

/// @return `side` is that of all ends
Result<shm::LinkConfig> read_config(const PortOptions& options) {
  constexpr std::string_view kOptions[] = {"ring", "ends", "side"};
  auto spec = parse_spec(options.spec);
  if (!spec) return spec.error();
  if (Status known = spec->check_options(kOptions); !known) return known.error();
  shm::LinkConfig config;
  config.name = spec->argument;
  config.queues = options.queues;
  if (options.link_mtu != 0) config.link_mtu = options.link_mtu;
  if (spec->has("ring")) {
    const auto ring = spec->take_size("ring", 0);
    if (!ring) return ring.error();
    config.ring_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(*ring, UINT32_MAX));
  }
  if (spec->has("ends")) {
    const auto ends = spec->take_number("ends", 2, 2, shm::kMostEnds);
    if (!ends) return ends.error();
    config.ends = static_cast<std::uint32_t>(*ends);
  }
  if (spec->has("side")) {
    const auto side = spec->take_number("side", 0, 0, config.ends - 1);
    if (!side) return side.error();
    config.side = static_cast<unsigned>(*side);
  }
  return config;
}

port::PortInfo info_of(const std::string& spec, const shm::LinkConfig& config, unsigned end,
                       const shm::Geometry& geometry) {
  return {.name = spec,
          .mac = mac_of(config.name, end),
          .link_mtu = geometry.link_mtu,
          .side = end,
          .ends = config.ends};
}

/// Of the link between two ends, as the first of them opens it.
shm::LinkConfig link_between(shm::LinkConfig config, std::uint32_t own, std::uint32_t other) {
  config.pair = {.low = std::min(own, other), .high = std::max(own, other)};
  config.side = own < other ? 0 : 1;
  return config;
}

/// What the user left open is as the first of the other ends has it that is there.
shm::LinkConfig with_present(shm::LinkConfig config, std::uint32_t own) {
  for (std::uint32_t other = 0; other < config.ends; ++other) {
    if (other == own) continue;
    const shm::LinkConfig link = link_between(config, own, other);
    const auto peer = shm::Link::holder(shm::link_path(config.name, link.pair), 1 - *link.side);
    if (!peer) continue;
    const shm::Geometry& geometry = peer->geometry;
    if (config.link_mtu.value_or(geometry.link_mtu) != geometry.link_mtu) return config;
    config.link_mtu = geometry.link_mtu;
    config.ring_bytes = config.ring_bytes.value_or(geometry.ring_bytes);
    return config;
  }
  return config;
}

/// One that is not the first of an end: who has had the end before, and has left or been killed, may hold it
/// for a moment longer.
Result<std::shared_ptr<shm::Link>> open_left(const shm::LinkConfig& config) {
  constexpr int kTries = 2000;  // ms
  for (int tries = 0;; ++tries) {
    auto link = shm::Link::open(config);
    if (link || link.error().code != Errc::kNameInUse || tries == kTries) return link;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The links of an end, in the order of the other ones. Whoever has the first of them has the end, and the
/// others are like that.
Result<Links> take_end(shm::LinkConfig config, std::uint32_t own) {
  config = with_present(config, own);
  Links links;
  for (std::uint32_t other = 0; other < config.ends; ++other) {
    if (other == own) continue;
    const shm::LinkConfig next = link_between(config, own, other);
    auto link = links.empty() ? shm::Link::open(next) : open_left(next);
    if (!link) return link.error();
    config.ring_bytes = (*link)->geometry().ring_bytes;
    config.link_mtu = (*link)->geometry().link_mtu;
    links.push_back(std::move(*link));
  }
  return links;
}

Error all_held(const shm::LinkConfig& config) {
  std::string holders;
  for (std::uint32_t end = 0; end < config.ends; ++end) {
    const shm::LinkConfig first = link_between(config, end, end == 0 ? 1 : 0);
    const auto held = shm::Link::holder(shm::link_path(config.name, first.pair), *first.side);
    if (!held || held->pid == 0 || (config.side.has_value() && *config.side != end)) continue;
    holders += (holders.empty() ? "PID " : ", ") + std::to_string(held->pid);
  }
  const std::string what = config.side.has_value() ? "end " + std::to_string(*config.side)
                                                   : "each of the " + std::to_string(config.ends) + " ends";
  return Error{Errc::kNameInUse, "shm: " + what + " of \"" + config.name + "\" is held (" +
                                     (holders.empty() ? "PID unknown" : holders) +
                                     "); end a holder with \"kill PID\", or give all more ends"};
}

struct MeshEnd {
  std::uint32_t number = 0;
  Links links;
};

Result<MeshEnd> take_free_end(const shm::LinkConfig& config) {
  const std::uint32_t first = config.side.value_or(0);
  const std::uint32_t last = config.side.value_or(config.ends - 1);
  for (std::uint32_t end = first; end <= last; ++end) {
    auto links = take_end(config, end);
    if (links) return MeshEnd{end, std::move(*links)};
    if (links.error().code != Errc::kNameInUse) return links.error();
  }
  return all_held(config);
}

Result<Ports> open_mesh(const PortOptions& options, const shm::LinkConfig& config) {
  auto end = take_free_end(config);
  if (!end) return end.error();
  const shm::Geometry geometry = end->links.front()->geometry();
  const port::PortInfo info = info_of(options.spec, config, end->number, geometry);
  Ports ports;
  for (std::uint32_t queue = 0; queue < geometry.queues; ++queue) {
    std::vector<std::unique_ptr<ShmPort>> others;
    for (const auto& link : end->links) others.push_back(std::make_unique<ShmPort>(link, queue, info));
    auto port = std::make_unique<MeshPort>(std::move(others), info);
    if (Status good = port->watch_bells(); !good) return good.error();
    ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace

Status check_shm(const PortOptions& options) {
  const auto config = read_config(options);
  return config ? shm::Link::check(*config) : config.error();
}

Result<Ports> open_shm(const PortOptions& options) {
  const auto config = read_config(options);
  if (!config) return config.error();
  if (config->ends > 2) return open_mesh(options, *config);
  auto link = shm::Link::open(*config);
  if (!link) return link.error();
  const shm::Geometry& geometry = (*link)->geometry();
  const port::PortInfo info = info_of(options.spec, *config, (*link)->side(), geometry);
  Ports ports;
  for (std::uint32_t queue = 0; queue < geometry.queues; ++queue) {
    ports.push_back(std::make_unique<ShmPort>(*link, queue, info));
  }
  return ports;
}

}  // namespace uroce::drivers
