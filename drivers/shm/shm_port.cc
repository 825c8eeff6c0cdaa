#include "drivers/shm/shm_port.h"

#include <algorithm>

#include "drivers/spec.h"

namespace uroce::drivers {
namespace {

shm::RingWriter::Place writer_place(const shm::Link& link, std::uint32_t queue, shm::Lane lane) {
  return {.control = &link.control(queue, link.side(), lane),
          .ring = link.ring(queue, link.side(), lane),
          .ring_bytes = link.geometry().ring_bytes,
          .max_frame = link.geometry().max_frame(),
          .fence_free = link.is_fence_free()};
}

shm::RingReader::Place reader_place(const shm::Link& link, std::uint32_t queue, shm::Lane lane) {
  return {.control = &link.control(queue, 1 - link.side(), lane),
          .ring = link.ring(queue, 1 - link.side(), lane),
          .ring_bytes = link.geometry().ring_bytes,
          .max_frame = link.geometry().max_frame()};
}

/// Locally administered; the ends of one link differ in the last byte.
MacAddress mac_of(std::string_view name, unsigned side) noexcept {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  const auto byte = [hash](unsigned shift) { return static_cast<std::uint8_t>(hash >> shift); };
  return MacAddress{{0x02, byte(24), byte(16), byte(8), byte(0), static_cast<std::uint8_t>(side + 1)}};
}

Result<shm::LinkConfig> read_config(const PortOptions& options) {
  constexpr std::string_view kOptions[] = {"ring", "side"};
  auto spec = parse_spec(options.spec);
  if (!spec) return spec.error();
  if (Status known = spec->check_options(kOptions); !known) return known.error();
  shm::LinkConfig config{
      .name = spec->argument, .side = {}, .queues = options.queues, .ring_bytes = {}, .link_mtu = {}};
  if (options.link_mtu != 0) config.link_mtu = options.link_mtu;
  if (spec->has("ring")) {
    const auto ring = spec->take_size("ring", 0);
    if (!ring) return ring.error();
    config.ring_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(*ring, UINT32_MAX));
  }
  if (spec->has("side")) {
    const auto side = spec->take_number("side", 0, 0, 1);
    if (!side) return side.error();
    config.side = static_cast<unsigned>(*side);
  }
  return config;
}

}  // namespace

ShmPort::ShmPort(std::shared_ptr<shm::Link> link, std::uint32_t queue, port::PortInfo info)
    : Port(true),
      link_(std::move(link)),
      queue_(queue),
      info_(std::move(info)),
      watch_(*link_, counters_),
      writer_(writer_place(*link_, queue, shm::Lane::kPrompt), watch_, link_->peer_bell(queue), counters_),
      bulk_(writer_place(*link_, queue, shm::Lane::kBulk), watch_, link_->peer_bell(queue), counters_),
      reader_(reader_place(*link_, queue, shm::Lane::kPrompt), watch_, counters_),
      bulk_reader_(reader_place(*link_, queue, shm::Lane::kBulk), watch_, counters_) {}

ShmPort::~ShmPort() {
  if (!link_->is_owned_here()) return;
  reader_.detach();
  bulk_reader_.detach();
}

unsigned ShmPort::rx_burst(std::span<port::RxFrame> frames) noexcept {
  // Bursts in a row that show no bulk because there is something else. There is one bulk frame in a burst at
  // most: others wait for no more than that.
  constexpr unsigned kBulkWaits = 2;
  const std::size_t most = std::min<std::size_t>(frames.size(), port::kBurst);
  // Looked at first: what was sent before it is shown before it, unless there is too much of that.
  const bool has_bulk = bulk_reader_.has_some();
  if (has_bulk) reader_.hurry();
  const bool insists = has_bulk && bulk_waits_ >= kBulkWaits && most > 1;
  const unsigned prompt = reader_.read(frames.first(insists ? most - 1 : most));
  // Others wait for a bulk frame less long if its lines are fetched between looks at their lane.
  is_preparing_ = bulk_reader_.leaves_to_prepare() && has_bulk && prompt == 0 && !bulk_reader_.prepare();
  shows_bulk_ = insists || (has_bulk && prompt == 0 && !is_preparing_);
  if (shows_bulk_) {
    bulk_waits_ = 0;
    return prompt + bulk_reader_.read(frames.subspan(prompt, 1));
  }
  if (prompt != 0) ++bulk_waits_;
  // A peer that never pauses may want to begin a stream, too.
  constexpr unsigned kKeepUpWaits = 64;
  if (!has_bulk && (prompt == 0 || bulk_waits_ % kKeepUpWaits == 0)) bulk_reader_.keep_up();
  return prompt;
}

bool ShmPort::arm_rx() noexcept {
  link_->own_bell(queue_).silence();  // what it was rung for while awake is seen below
  if (!reader_.fall_asleep()) return false;
  if (bulk_reader_.fall_asleep()) return true;
  reader_.wake_up();
  return false;
}

void ShmPort::disarm_rx() noexcept {
  reader_.wake_up();
  bulk_reader_.wake_up();
  link_->own_bell(queue_).silence();
}

Status check_shm(const PortOptions& options) {
  const auto config = read_config(options);
  return config ? shm::Link::check(*config) : config.error();
}

Result<std::vector<std::unique_ptr<port::Port>>> open_shm(const PortOptions& options) {
  const auto config = read_config(options);
  if (!config) return config.error();
  auto link = shm::Link::open(*config);
  if (!link) return link.error();
  const unsigned side = (*link)->side();
  std::vector<std::unique_ptr<port::Port>> ports;
  for (std::uint32_t queue = 0; queue < (*link)->geometry().queues; ++queue) {
    ports.push_back(std::make_unique<ShmPort>(*link, queue,
                                              port::PortInfo{.name = options.spec,
                                                             .mac = mac_of(config->name, side),
                                                             .link_mtu = (*link)->geometry().link_mtu,
                                                             .side = side,
                                                             .two_ended = true}));
  }
  return ports;
}

}  // namespace uroce::drivers
