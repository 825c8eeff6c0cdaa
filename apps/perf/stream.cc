#include "apps/perf/stream.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "apps/common/pieces.h"
#include "apps/perf/wr_ids.h"

namespace uroce::apps::perf {
namespace {

std::uint64_t seed_of(std::size_t qp, std::uint64_t number) noexcept {
  return (std::uint64_t{qp} << 40U) + number;
}

// How long nothing has come after the last message was sent, when what is missing is taken for lost.
constexpr std::uint64_t kQuietNs = 500 * kMillisecond;
constexpr std::uint64_t kLookNs = 10 * kMillisecond;  // between two looks, as far as it counts
constexpr std::uint64_t kBetweenLooksNs = 100 * kMillisecond;

/// Seed of what lies ready to be read in a slot.
std::uint64_t read_seed(std::size_t qp, std::uint64_t slot) noexcept {
  return seed_of(qp, slot) + (1ULL << 39U);
}

}  // namespace

Stream::Stream(Session& session, std::uint32_t size, Part part)
    : session_(session),
      spec_(session.spec()),
      size_(size),
      kind_(kind_of(spec_)),
      receive_len_(size + spec_.headroom()),
      takes_a_look_(spec_.verify || !spec_.is_reliable()),
      cq_mod_(std::clamp(spec_.cq_mod, 1U, spec_.tx_depth)),
      window_(spec_.tx_depth),
      count_(spec_.seconds > 0 ? 0 : spec_.iterations),
      watch_(session),
      lanes_(session.qps()),
      first_tag_(session.begin_run()),
      waiting_(lanes_.size()) {
  waiting_.reserve(2 * lanes_.size() + kPoll);
  std::iota(waiting_.begin(), waiting_.end(), 0U);
  const Area& area = session.area(0);
  // Receives lie at the stride of the largest message.
  const std::uint64_t slots = area.slots(spec_.verb == Verb::kSend ? spec_.receive_bytes() : size);
  if (spec_.verify) window_ = std::min<std::uint64_t>(window_, slots);
  constexpr std::uint64_t kGroup = 64U << 20U;  // bytes without a sign of life, at most
  const std::uint64_t group = std::max<std::uint64_t>(kGroup / std::max(size, 1U), 1);
  cq_mod_ = static_cast<std::uint32_t>(std::min({std::uint64_t{cq_mod_}, window_, group}));
  if (part == Part::kWarmUp) count_ = std::min<std::uint64_t>(spec_.tx_depth, group);
  // One completion stands for a group, and those of all QPs may come at once.
  constexpr std::uint64_t kGroupsOfAll = 4;
  meter_ = RateMeter(kMillisecond, 0, kGroupsOfAll * cq_mod_ * size * lanes_.size());
  if (!spec_.is_reliable()) prepare_for_losses();
  for (std::size_t qp = 0; qp < lanes_.size(); ++qp) {
    const Area& own = session.area(qp);
    if (spec_.verb == Verb::kAtomic) std::memset(session.bytes(own.rx, 8).data(), 0, 8);
    if (!spec_.verify || spec_.verb != Verb::kRead) continue;
    for (std::uint64_t slot = 0; slot < own.slots(size); ++slot) {
      fill_with_pattern(session.device(), session.bytes(own.tx + own.slot(slot, size), size),
                        read_seed(qp, slot));
    }
  }
}

void Stream::prepare_for_losses() {
  look_ns_ = 0;
  if (spec_.verb == Verb::kSend) {
    arrivals_.assign(lanes_.size(), Arrivals(first_tag_));
    return;
  }
  come_before_ = session_.messages_come();
  for (std::size_t qp = 0; spec_.verify && qp < lanes_.size(); ++qp) {
    const Area& area = session_.area(qp);
    fill_all(session_.device(), session_.bytes(area.rx, area.bytes), std::byte{0});
  }
}

Stream::Kind Stream::kind_of(const TestSpec& spec) noexcept {
  switch (spec.verb) {
    case Verb::kSend:
      if (spec.is_datagram()) return Kind::kDatagram;
      return spec.is_reliable() ? Kind::kSend : Kind::kNumberedSend;
    case Verb::kWrite:
      return Kind::kWrite;
    case Verb::kRead:
      return Kind::kRead;
    case Verb::kAtomic:
      return Kind::kAtomic;
  }
  return Kind::kSend;
}

void Stream::start() noexcept {
  begin_ns_ = last_ns_ = sent_ns_ = now_ns();
  if (count_ == 0) end_ns_ = begin_ns_ + spec_.seconds * kSecond;
}

bool Stream::step() noexcept {
  if (is_sender()) fill_lanes();
  const std::size_t count = session_.poll(wcs_);
  idle_ = count == 0;
  if (idle_) return !error_;
  watch_.heard();
  last_ns_ = now_ns();
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  for (const Wc& wc : std::span(wcs_).first(count)) {
    if (!wc.ok()) {
      if (!error_) error_ = session_.failure(wc);  // those behind it were only flushed
    } else if (Session::is_receive(wc)) {
      on_received(wc);
    } else {
      const auto [qp, up_to] = SentId::of(wc.wr_id);
      before += lanes_[qp].completed;
      on_sent(qp, up_to);
      after += lanes_[qp].completed;
    }
  }
  if (after > before) {
    sent_ns_ = last_ns_;
    meter_.add((after - before) * size_, sent_ns_);
  }
  return !error_;
}

std::uint32_t Stream::room(const Lane& lane) const noexcept {
  std::uint64_t left = UINT64_MAX;
  if (count_ > 0) {
    left = count_ - lane.posted;
  } else if (last_ns_ >= end_ns_) {
    // After the time: complete the group that was begun, so that its last operation is signaled.
    left = (cq_mod_ - lane.posted % cq_mod_) % cq_mod_;
  }
  const std::uint64_t free = window_ - (lane.posted - lane.completed);
  return static_cast<std::uint32_t>(
      std::min({left, free, std::uint64_t{spec_.post_list}, std::uint64_t{kMaxList}}));
}

/// Those that had completions. Not all at once at the beginning: what comes meanwhile is looked at between.
void Stream::fill_lanes() noexcept {
  const std::size_t count = std::min<std::size_t>(waiting_.size() - filled_, kLanesInARow);
  for (std::size_t i = 0; i < count && !error_; ++i) fill_lane(waiting_[filled_++]);
  if (filled_ < waiting_.size()) return;
  waiting_.clear();
  filled_ = 0;
}

void Stream::fill_lane(std::size_t qp) noexcept {
  Lane& lane = lanes_[qp];
  while (const std::uint32_t count = room(lane)) {
    if (!post_list(qp, count)) return fail("the send queue took no more work requests");
    lane.posted += count;
  }
}

bool Stream::post_list(std::size_t qp, std::uint32_t count) noexcept {
  const std::uint64_t first = lanes_[qp].posted;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (spec_.verify) prepare_data(qp, first + i);
    sges_[i] = session_.sge(local_offset(qp, first + i), size_);
    const bool is_end = first + i + 1 == count_;
    fill(wrs_[i], qp, first + i, sges_[i], is_end);
  }
  return session_.qp(qp).post_send(std::span<const SendWr>(wrs_).first(count)) == count;
}

/// READs arrive in the rx area; the result of atomics in the tx area, whose counterpart in rx is the counter.
std::size_t Stream::local_offset(std::size_t qp, std::uint64_t number) const noexcept {
  const Area& area = session_.area(qp);
  return (spec_.verb == Verb::kRead ? area.rx : area.tx) + area.slot(number, size_);
}

/// In place: a copy of what has just been written would wait until that has left the processor.
void Stream::fill(SendWr& wr, std::size_t qp, std::uint64_t number, const Sge& sge,
                  bool is_end) const noexcept {
  const Area& area = session_.area(qp);
  const bool is_signaled = (number + 1) % cq_mod_ == 0 || is_end;
  const bool is_inline = spec_.is_ping_pong() && size_ <= session_.inline_limit();
  wr.wr_id = SentId{.qp = qp, .up_to = number + 1}.packed();
  wr.sges = {&sge, 1};
  wr.flags = static_cast<std::uint8_t>((is_signaled ? send_flag::kSignaled : 0) |
                                       (is_inline ? send_flag::kInline : 0));
  wr.rkey = session_.rkey();
  switch (kind_) {
    case Kind::kSend:
      wr.opcode = WrOpcode::kSend;
      break;
    case Kind::kDatagram:
      session_.address(wr, qp);
      [[fallthrough]];
    case Kind::kNumberedSend:
      wr.opcode = WrOpcode::kSendWithImm;
      wr.imm_data = htonl(first_tag_ + static_cast<std::uint32_t>(number));
      break;
    case Kind::kWrite:
      wr.opcode = WrOpcode::kRdmaWrite;
      wr.remote_addr = session_.remote(area.rx + area.slot(number, size_));
      break;
    case Kind::kRead:
      wr.opcode = WrOpcode::kRdmaRead;
      wr.remote_addr = session_.remote(area.tx + area.slot(number, size_));
      break;
    case Kind::kAtomic:
      wr.opcode = spec_.compare_swap ? WrOpcode::kAtomicCmpAndSwp : WrOpcode::kAtomicFetchAndAdd;
      wr.compare_add = spec_.compare_swap ? number : 1;
      wr.swap = number + 1;
      wr.remote_addr = session_.remote(area.rx);
      break;
  }
}

void Stream::prepare_data(std::size_t qp, std::uint64_t number) noexcept {
  const auto data = session_.bytes(local_offset(qp, number), size_);
  if (spec_.is_ping_pong()) {
    fill_with_pattern(session_.device(), data, seed_of(qp, number));
  } else {
    fill_all(session_.device(), data, std::byte{0xee});
  }
}

void Stream::on_sent(std::size_t qp, std::uint64_t up_to) noexcept {
  Lane& lane = lanes_[qp];
  for (std::uint64_t number = lane.completed; spec_.verify && number < up_to; ++number)
    check_sent(qp, number);
  lane.completed = up_to;
  waiting_.push_back(static_cast<std::uint32_t>(qp));
}

/// What a READ or an atomic brought.
void Stream::check_sent(std::size_t qp, std::uint64_t number) noexcept {
  if (spec_.is_ping_pong()) return;
  const auto data = session_.bytes(local_offset(qp, number), size_);
  if (spec_.verb == Verb::kRead) {
    data_errors_ +=
        errors_in_pattern(session_.device(), data, read_seed(qp, number % session_.area(qp).slots(size_)));
    return;
  }
  std::uint64_t old = 0;
  std::memcpy(&old, data.data(), sizeof old);
  data_errors_ += old != number ? 1 : 0;
}

void Stream::on_received(const Wc& wc) noexcept {
  const std::size_t qp = Session::receive_qp(wc);
  const std::uint64_t slot = Session::receive_slot(wc);
  if (takes_a_look_) {
    take_message(wc, qp, slot);
  } else {
    if (wc.byte_len != receive_len_) ++data_errors_;
    ++lanes_[qp].received;
  }
  if (!session_.post_receive(qp, slot)) fail("the receive queue took no more work requests");
}

bool Stream::has_sent_all() const noexcept {
  return !is_sender() || std::ranges::all_of(lanes_, [&](const Lane& lane) {
    return lane.completed == lane.posted && room(lane) == 0;
  });
}

/// Messages that are late from an earlier run, or come again, do not count.
void Stream::take_message(const Wc& wc, std::size_t qp, std::uint64_t slot) noexcept {
  std::uint64_t number = lanes_[qp].received;
  if (!spec_.is_reliable()) {
    const auto taken = arrivals_[qp].take(ntohl(wc.imm_data));
    if (!taken) return;
    number = *taken;
  }
  ++lanes_[qp].received;
  if (wc.byte_len != receive_len_) ++data_errors_;
  if (!spec_.verify) return;
  const auto data = session_.bytes(session_.receive_offset(qp, slot), size_);
  data_errors_ += errors_in_pattern(session_.device(), data, seed_of(qp, number));
}

bool Stream::look() {
  look_ns_ = last_ns_ + kBetweenLooksNs;
  return session_.has_news();
}

bool Stream::has_come() const noexcept {
  if (spec_.verb != Verb::kSend) return spec_.is_reliable() || come_ >= expected();
  return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.received >= lane.expected; });
}

bool Stream::has_received_all() {
  return peer_told_ && (has_come() || (!spec_.is_reliable() && is_quiet()));
}

/// Whether nothing has come for a while. WRITEs show in the counters of the device only. Time in which this
/// program did not run, and so took nothing from the port, does not count.
bool Stream::is_quiet() {
  const std::uint64_t now = now_ns();
  const std::uint64_t since = std::exchange(quiet_look_ns_, now);
  bool came = std::exchange(quiet_last_ns_, last_ns_) != last_ns_;
  if (spec_.verb == Verb::kWrite && now >= count_ns_) {
    count_ns_ = now + kMillisecond;
    const std::uint64_t come = session_.messages_come() - come_before_;
    came = std::exchange(come_, come) != come;
  }
  quiet_ns_ = came ? 0 : quiet_ns_ + std::min(now - since, kLookNs);
  return quiet_ns_ > kQuietNs;
}

Json Stream::totals() const {
  Json sent = Json::array();
  for (const auto& lane : lanes_) sent.push_back(lane.completed);
  return sent;
}

void Stream::set_peer_totals(const Json& totals) {
  for (std::size_t qp = 0; qp < lanes_.size() && qp < totals.size(); ++qp) {
    lanes_[qp].expected = totals[qp].get<std::uint64_t>();
  }
  peer_told_ = true;
  quiet_look_ns_ = now_ns();
}

std::uint64_t Stream::expected() const noexcept {
  return std::accumulate(lanes_.begin(), lanes_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Lane& lane) { return sum + lane.expected; });
}

std::uint64_t Stream::received() const noexcept {
  if (spec_.verb != Verb::kSend) return spec_.is_reliable() ? expected() : std::min(come_, expected());
  return std::accumulate(lanes_.begin(), lanes_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Lane& lane) { return sum + lane.received; });
}

/// What WRITEs of which any may be lost have left: in each packet of a slot what the last one or an earlier
/// one has put there.
std::uint64_t Stream::errors_in_slot(std::span<const std::byte> data, std::size_t qp,
                                     std::uint64_t number) const {
  std::uint64_t errors = 0;
  in_pieces(session_.device(), data, [&](std::span<const std::byte> piece, std::size_t at) {
    for (std::size_t i = 0; i < piece.size(); i += session_.path_mtu()) {
      const auto packet = piece.subspan(i, std::min<std::size_t>(session_.path_mtu(), piece.size() - i));
      errors += errors_in_packet(packet, at + i, qp, number);
    }
  });
  return errors;
}

std::uint64_t Stream::errors_in_packet(std::span<const std::byte> packet, std::size_t at, std::size_t qp,
                                       std::uint64_t number) const {
  constexpr std::uint64_t kEarlier = 64;  // that may all have been lost
  const std::uint64_t slots = session_.area(qp).slots(size_);
  const auto is_nothing = [](std::byte byte) { return byte == std::byte{0}; };
  if (std::ranges::all_of(packet, is_nothing)) return 0;
  std::uint64_t least = pattern_errors(packet, seed_of(qp, number), at / sizeof(std::uint64_t));
  for (std::uint64_t i = 1; i <= std::min(kEarlier, number / slots) && least > 0; ++i) {
    const std::uint64_t seed = seed_of(qp, number - i * slots);
    least = std::min(least, pattern_errors(packet, seed, at / sizeof seed));
  }
  return least;
}

void Stream::check_memory() {
  if (!spec_.verify) return;
  const bool all_came = spec_.is_reliable() || come_ == expected();  // and none of them twice
  for (std::size_t qp = 0; qp < lanes_.size(); ++qp) {
    const Area& area = session_.area(qp);
    const std::uint64_t total = lanes_[qp].expected;
    if (spec_.verb == Verb::kAtomic) {
      std::uint64_t counter = 0;
      std::memcpy(&counter, session_.bytes(area.rx, sizeof counter).data(), sizeof counter);
      data_errors_ += counter != total ? 1 : 0;
    }
    if (spec_.verb != Verb::kWrite) continue;
    const std::uint64_t slots = std::min(area.slots(size_), total);
    for (std::uint64_t number = total - slots; number < total; ++number) {
      const auto data = session_.bytes(area.rx + area.slot(number, size_), size_);
      data_errors_ += all_came ? errors_in_pattern(session_.device(), data, seed_of(qp, number))
                               : errors_in_slot(data, qp, number);
    }
  }
}

std::uint64_t Stream::completed() const noexcept {
  return std::accumulate(lanes_.begin(), lanes_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Lane& lane) { return sum + lane.completed; });
}

Bandwidth Stream::result() const {
  Bandwidth result{.messages = completed(), .data_errors = data_errors_};
  const double seconds = static_cast<double>(sent_ns_ - begin_ns_) / 1e9;
  if (seconds <= 0) return result;
  result.rate = static_cast<double>(result.messages) / seconds;
  result.average = result.rate * size_;
  result.peak = std::max(result.average, meter_.peak());
  return result;
}

void Stream::fail(std::string text) {
  if (!error_) error_ = Error{.code = Errc::kSystem, .text = std::move(text)};
}

}  // namespace uroce::apps::perf
