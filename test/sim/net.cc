#include "sim/net.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "drivers/frame_fields.h"
#include "wire/describe.h"

namespace uroce::sim {

namespace {

constexpr std::uint32_t kWireOverhead = 24;  // FCS, preamble, gap
constexpr std::uint32_t kFrameOverhead = 18;
constexpr std::size_t kMaskedByte = 4;  // of the BTH: not covered by the ICRC

}  // namespace

/// Threads: as Port.
class Net::NetPort final : public port::Port {
 public:
  NetPort(Net& net, unsigned index) : net_(net), index_(index) {
    info_ = {.name = "net:" + std::to_string(index), .mac = mac(index), .link_mtu = net.config_.link_mtu};
    room_.resize(net.config_.link_mtu + kFrameOverhead);
  }

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }

  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override {
    auto& flights = net_.ends_[index_]->flights;
    NetTally& tally = net_.ends_[index_]->tally;
    const std::size_t most = std::min<std::size_t>(frames.size(), port::kBurst);
    unsigned count = 0;
    while (count < most && !flights.empty() && flights.top().time_ns <= net_.now_ns_) {
      const Flight flight = flights.top();
      flights.pop();
      const auto& bytes = net_.frames_[flight.frame];
      frames[count++] = {.data = bytes.data(), .len = static_cast<std::uint32_t>(bytes.size())};
      shown_.push_back(flight.frame);
      if (flight.damaged) ++tally.shown_damaged;
      if (!flight.damaged && flight.roce) {
        ++tally.shown_clean_roce;
        if (flight.cnp) ++tally.shown_cnps;
        if (net_.on_arrival_) net_.show(index_, bytes);
      }
    }
    return count;
  }
  void rx_release() noexcept override {
    net_.free_frames_.insert(net_.free_frames_.end(), shown_.begin(), shown_.end());
    shown_.clear();
  }

  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    claimed_ = 0;
    if (net_.happens(net_.config_.no_room)) return nullptr;
    claimed_ = len;
    return room_.data();
  }
  void tx_commit() noexcept override { net_.send(index_, std::span<const std::byte>(room_).first(claimed_)); }
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

 private:
  Net& net_;
  unsigned index_;
  port::PortInfo info_;
  std::vector<std::byte> room_;
  std::uint32_t claimed_ = 0;
  std::vector<std::uint32_t> shown_;
};

Net::Net(const NetConfig& config, unsigned ports, std::uint64_t seed) : config_(config), random_(seed) {
  for (unsigned i = 0; i < ports; ++i) ends_.push_back(std::make_unique<End>());
}

Net::~Net() = default;

std::unique_ptr<port::Port> Net::open(unsigned index) {
  return std::make_unique<NetPort>(*this, index);
}

MacAddress Net::mac(unsigned index) noexcept {
  return {{0x02, 0x53, 0x49, 0x4d, 0, static_cast<std::uint8_t>(index + 1)}};
}

const NetTally& Net::tally(unsigned index) const noexcept {
  return ends_[index]->tally;
}

std::optional<std::uint64_t> Net::next_arrival_ns(unsigned index) const noexcept {
  const auto& flights = ends_[index]->flights;
  if (flights.empty()) return std::nullopt;
  return flights.top().time_ns;
}

bool Net::happens(double probability) noexcept {
  return probability > 0 && static_cast<double>(random_.next() >> 11) * 0x1p-53 < probability;
}

void Net::show(unsigned to, std::span<const std::byte> frame) {
  wire::PacketView view;
  if (wire::parse_packet(frame, view) == wire::ParseResult::kRoce) on_arrival_(to, view);
}

void Net::send(unsigned from, std::span<const std::byte> frame) {
  wire::PacketView view;
  const bool roce = wire::parse_packet(frame, view) == wire::ParseResult::kRoce;
  if (roce) {
    ++ends_[from]->tally.sent_roce;
    for (const Observer& observer : observers_) observer(from, view);
  }
  if (capture_.is_open()) capture(frame);
  const wire::PacketView* packet = roce ? &view : nullptr;
  const bool to_group = (std::to_integer<unsigned>(frame[0]) & 1) != 0;
  for (unsigned to = 0; to < ends_.size(); ++to) {
    const MacAddress address = mac(to);
    const bool is_for = to_group || std::memcmp(frame.data(), address.raw.data(), address.raw.size()) == 0;
    if (to == from || !is_for) continue;
    const Fate fate = decide(from, packet);
    if (trace_) trace(from, to, frame, fate);
    deliver(to, frame, packet, fate);
  }
}

Fate Net::decide(unsigned from, const wire::PacketView* packet) {
  if (judge_ && packet != nullptr) {
    if (const auto fate = judge_(from, *packet)) return *fate;
  }
  if (config_.flap_every_ns != 0 && now_ns_ % config_.flap_every_ns < config_.flap_ns) return Fate::kDrop;
  if (happens(config_.loss) && may_kill(packet)) return Fate::kDrop;
  if (happens(config_.corrupt) && may_kill(packet)) return Fate::kCorrupt;
  if (happens(config_.truncate) && may_kill(packet)) return Fate::kTruncate;
  if (happens(config_.duplicate)) return Fate::kDuplicate;
  if (happens(config_.reorder)) return Fate::kReorder;
  return Fate::kDeliver;
}

/// A requester gives up after a few retries: chance must not take the same packet away too often, nor
/// everything that the peer says.
bool Net::may_kill(const wire::PacketView* packet) {
  std::uint64_t key = 0;
  if (packet != nullptr) {
    const std::uint32_t qpn = raw(packet->bth.dest_qpn);
    if (packet->op->is_ack) {
      unsigned& in_a_row = acks_killed_[qpn];
      if (in_a_row >= config_.most_kills) return false;
      ++in_a_row;
      return true;
    }
    key = std::uint64_t{qpn} << 32 | packet->bth.psn.value() << 8 | raw(packet->bth.opcode);
  }
  unsigned& kills = kills_[key];
  if (kills >= config_.most_kills) return false;
  ++kills;
  return true;
}

void Net::deliver(unsigned to, std::span<const std::byte> frame, const wire::PacketView* packet, Fate fate) {
  NetTally& tally = ends_[to]->tally;
  const bool arrives = fate == Fate::kDeliver || fate == Fate::kDuplicate || fate == Fate::kReorder;
  if (arrives && packet != nullptr && packet->op->is_ack) acks_killed_[raw(packet->bth.dest_qpn)] = 0;
  switch (fate) {
    case Fate::kDeliver:
      put(to, frame, packet, false);
      break;
    case Fate::kDrop:
      ++tally.dropped;
      break;
    case Fate::kDuplicate:
      ++tally.duplicated;
      put(to, frame, packet, false);
      put(to, frame, packet, random_.below(2) == 0);
      break;
    case Fate::kReorder:
      ++tally.reordered;
      put(to, frame, packet, true);
      break;
    case Fate::kCorrupt:
    case Fate::kTruncate:
      put_damaged(to, frame, packet, fate);
      break;
  }
}

std::uint32_t Net::store(std::span<const std::byte> frame) {
  if (free_frames_.empty()) {
    free_frames_.push_back(static_cast<std::uint32_t>(frames_.size()));
    frames_.emplace_back().reserve(config_.link_mtu + kFrameOverhead);
  }
  const std::uint32_t index = free_frames_.back();
  free_frames_.pop_back();
  frames_[index].assign(frame.begin(), frame.end());
  return index;
}

/// @param late  lets frames that are sent later overtake this one
void Net::put(unsigned to, std::span<const std::byte> frame, const wire::PacketView* packet, bool late) {
  End& end = *ends_[to];
  std::uint64_t leaves = now_ns_;
  if (config_.bandwidth_bps != 0) {
    const std::uint64_t bits = (std::max<std::uint64_t>(frame.size(), 60) + kWireOverhead) * 8;
    end.busy_until_ns = std::max(end.busy_until_ns, now_ns_) + bits * 1'000'000'000 / config_.bandwidth_bps;
    leaves = end.busy_until_ns;
  }
  std::uint64_t time = leaves + config_.delay_ns;
  if (config_.jitter_ns != 0) time += random_.below(config_.jitter_ns);
  if (happens(config_.spike))
    end.last_arrival_ns = std::max(end.last_arrival_ns, time) + random_.below(config_.spike_ns);
  if (late) {
    time += 1 + random_.below(config_.reorder_ns);
  } else {
    time = std::max(time, end.last_arrival_ns);
    end.last_arrival_ns = time;
  }
  const std::uint32_t index = store(frame);
  const bool roce = packet != nullptr;
  if (roce && happens(config_.mark) && packet->ecn() != 0)
    drivers::mark_congestion(frames_[index], *drivers::find_roce(frame));
  end.flights.push({.time_ns = time,
                    .serial = serial_++,
                    .frame = index,
                    .damaged = false,
                    .roce = roce,
                    .cnp = roce && packet->op->transport == wire::Transport::kCnp});
}

void Net::put_damaged(unsigned to, std::span<const std::byte> frame, const wire::PacketView* packet,
                      Fate fate) {
  if (packet == nullptr) {  // ARP has no checksum: a damaged one is as good as lost
    ++ends_[to]->tally.dropped;
    return;
  }
  const std::uint32_t index = store(frame);
  auto& bytes = frames_[index];
  const std::size_t end = packet->bth_offset + std::size_t{packet->roce_len};
  if (fate == Fate::kTruncate) {
    bytes.resize(random_.below(end));
  } else {
    const bool in_ip = !packet->is_v6 && random_.below(8) == 0;
    const std::size_t first = in_ip ? packet->l3_offset : packet->bth_offset;
    const std::size_t size = in_ip ? wire::Ipv4::kSize : end - first;
    std::size_t at = random_.below(size);
    if (!in_ip && at == kMaskedByte) ++at;
    bytes[first + at] ^= static_cast<std::byte>(1 + random_.below(255));
  }
  End& target = *ends_[to];
  const std::uint64_t time = std::max(now_ns_ + config_.delay_ns, target.last_arrival_ns);
  target.last_arrival_ns = time;
  target.flights.push({.time_ns = time, .serial = serial_++, .frame = index, .damaged = true, .roce = true});
}

void Net::set_capture(const std::string& path) {
  constexpr std::uint32_t kHeader[] = {0xa1b2'3c4d, 4U << 16 | 2U, 0, 0, 65535, 1};  // pcap 2.4, ns, Ethernet
  capture_.open(path, std::ios::binary);
  const auto bytes = std::as_bytes(std::span(kHeader));
  std::vector<char> text(bytes.size());
  std::memcpy(text.data(), bytes.data(), bytes.size());
  if (!capture_.write(text.data(), static_cast<std::streamsize>(text.size()))) {
    throw std::runtime_error("cannot write " + path);
  }
}

void Net::capture(std::span<const std::byte> frame) {
  const auto len = static_cast<std::uint32_t>(frame.size());
  const std::uint32_t header[] = {static_cast<std::uint32_t>(now_ns_ / 1'000'000'000),
                                  static_cast<std::uint32_t>(now_ns_ % 1'000'000'000), len, len};
  std::vector<char> text(sizeof header + len);
  std::memcpy(text.data(), header, sizeof header);
  std::memcpy(text.data() + sizeof header, frame.data(), len);
  capture_.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void Net::trace(unsigned from, unsigned to, std::span<const std::byte> frame, Fate fate) const {
  constexpr const char* kFates[] = {"", " LOST", " TWICE", " LATE", " CORRUPTED", " TRUNCATED"};
  wire::PacketView view;
  const bool roce = wire::parse_packet(frame, view) == wire::ParseResult::kRoce;
  const std::string text = roce ? wire::describe(view) : wire::describe_frame(frame);
  std::fprintf(stderr, "%12.3f us  %u -> %u  %s%s\n", static_cast<double>(now_ns_) / 1000, from, to,
               text.c_str(), kFates[raw(fate)]);
}

}  // namespace uroce::sim
