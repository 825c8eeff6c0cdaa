#include "drivers/fault/fault_port.h"

#include <algorithm>
#include <cstring>

namespace uroce::drivers {
namespace {

constexpr std::size_t kHeldFrames = 256;
constexpr std::uint32_t kEthernet = 14;
constexpr std::uint32_t kFrameOverhead = 18;

bool happens(Random& random, double probability) noexcept {
  return static_cast<double>(random.next() >> 11) * 0x1p-53 < probability;
}

}  // namespace

FaultPort::Path::Path(std::uint64_t seed, std::size_t frame_bytes)
    : random(seed), store(kHeldFrames, frame_bytes) {}

FaultPort::FaultPort(std::unique_ptr<port::Port> inner, std::vector<fault::Rule> rules, std::uint64_t seed,
                     std::function<std::uint64_t()> clock)
    : Port(inner->lends_lines()),
      inner_(std::move(inner)),
      clock_(std::move(clock)),
      rx_(2 * seed, inner_->info().link_mtu + kFrameOverhead),
      tx_(2 * seed + 1, inner_->info().link_mtu + kFrameOverhead) {
  for (const fault::Rule& rule : rules) {
    (rule.direction == fault::Direction::kTx ? tx_ : rx_).rules.push_back(rule);
    uses_clock_ = uses_clock_ || rule.action == fault::Action::kDelay;
  }
  shown_.reserve(kHeldFrames);
}

FaultPort::~FaultPort() = default;

FaultPort::Verdict FaultPort::judge(Path& path, Bytes frame, const RoceFields* fields) noexcept {
  Verdict verdict;
  for (fault::Rule& rule : path.rules) {
    if (!rule.fits(fields, frame.size())) continue;
    ++rule.matches;
    if (rule.nth != 0 && rule.matches != rule.nth) continue;
    if (rule.every != 0 && rule.matches % rule.every != 0) continue;
    if (rule.probability && !happens(path.random, *rule.probability)) continue;
    switch (rule.action) {
      case fault::Action::kDrop:
        verdict.drop = true;
        break;
      case fault::Action::kDuplicate:
        verdict.duplicate = true;
        break;
      case fault::Action::kReorder:
        verdict.reorder = rule.amount;
        break;
      case fault::Action::kCorrupt:
        verdict.corrupt = true;
        break;
      case fault::Action::kTruncate:
        verdict.truncate = true;
        break;
      case fault::Action::kDelay:
        verdict.delay_ns = rule.amount;
        break;
      case fault::Action::kMarkCe:
        verdict.mark_ce = fields != nullptr;
        break;
    }
  }
  return verdict;
}

void FaultPort::alter(Path& path, Frame& frame, const Verdict& verdict, const RoceFields* fields) noexcept {
  const std::uint32_t first = fields != nullptr ? fields->bth : std::min(kEthernet, frame.len);
  const std::uint32_t end = fields != nullptr ? fields->end : frame.len;
  if (verdict.mark_ce) {
    mark_congestion(frame.bytes(), *fields);
    path.counters.ce_marked.add();
  }
  if (first == end) return;
  if (verdict.corrupt) {
    const std::uint64_t bit = path.random.below((end - first) * 8ULL);
    frame.room[first + bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    path.counters.corrupted.add();
  }
  if (verdict.truncate) {
    frame.len = first + static_cast<std::uint32_t>(path.random.below(end - first));
    path.counters.truncated.add();
  }
}

void FaultPort::hold(Path& path, Frame* frame, const Verdict& verdict) noexcept {
  if (verdict.reorder != 0) {
    frame->frames_left = verdict.reorder;
    frame->polls_left = fault::HeldFrames::kMaxPolls;
    path.counters.reordered.add();
  }
  if (verdict.delay_ns != 0) {
    frame->due_ns = now_ns() + verdict.delay_ns;
    path.counters.delayed.add();
  }
  path.store.hold(frame);
}

/// The copy is due at once: it follows the original.
void FaultPort::duplicate(Path& path, Bytes bytes) noexcept {
  Frame* copy = path.store.take(bytes);
  if (copy == nullptr) {
    path.counters.skipped.add();
    return;
  }
  path.store.hold(copy);
  path.counters.duplicated.add();
}

// --- receive ---

unsigned FaultPort::rx_burst(std::span<port::RxFrame> frames) noexcept {
  tx_.store.on_poll();
  if (claimed_ == nullptr && send_due()) inner_->tx_flush();
  const std::size_t limit = std::min<std::size_t>(frames.size(), port::kBurst);
  rx_.store.on_poll();
  unsigned count = show_due(frames, 0, limit);
  if (count == limit) return count;

  const unsigned arrivals = inner_->rx_burst(std::span(arrived_).first(limit - count));
  is_inner_showing_ = arrivals > 0;
  for (unsigned i = 0; i < arrivals; ++i) {
    count = receive(arrived_[i], frames, count);
    count = show_due(frames, count, limit - (arrivals - i - 1));  // leaves room for the rest of the burst
  }
  if (count == 0 && is_inner_showing_) {
    inner_->rx_release();
    is_inner_showing_ = false;
  }
  return count;
}

unsigned FaultPort::show_due(std::span<port::RxFrame> frames, unsigned count, std::size_t limit) noexcept {
  if (!rx_.store.has_held()) return count;
  const std::uint64_t now = now_ns();
  while (count < limit) {
    Frame* frame = rx_.store.first_due(now);
    if (frame == nullptr) break;
    rx_.store.unhold(frame);
    shown_.push_back(frame);
    frames[count++] = {.data = frame->room.data(), .len = frame->len};
  }
  return count;
}

/// Applies the rules to one frame. @return the new count of shown frames.
unsigned FaultPort::receive(const port::RxFrame& frame, std::span<port::RxFrame> frames,
                            unsigned count) noexcept {
  const Bytes bytes(frame.data, frame.len);
  const auto fields = find_roce(bytes);
  const RoceFields* roce = fields ? &*fields : nullptr;
  const Verdict verdict = judge(rx_, bytes, roce);
  if (verdict.drop) {
    rx_.counters.dropped.add();
    return count;
  }
  Frame* copy = nullptr;
  if (verdict.alters() || verdict.holds()) {
    copy = rx_.store.take(bytes);
    if (copy == nullptr) rx_.counters.skipped.add();
  }
  if (copy != nullptr) alter(rx_, *copy, verdict, roce);
  if (verdict.duplicate) duplicate(rx_, copy != nullptr ? Bytes(copy->bytes()) : bytes);
  if (copy != nullptr && verdict.holds()) {
    hold(rx_, copy, verdict);
    return count;
  }
  rx_.store.on_frame_passed();
  if (copy == nullptr) {
    frames[count] = frame;
  } else {
    shown_.push_back(copy);
    frames[count] = {.data = copy->room.data(), .len = copy->len};
  }
  return count + 1;
}

void FaultPort::rx_release() noexcept {
  for (Frame* frame : shown_) rx_.store.give_back(frame);
  shown_.clear();
  if (is_inner_showing_) inner_->rx_release();
  is_inner_showing_ = false;
}

// --- transmit ---

std::byte* FaultPort::tx_claim(std::uint32_t len) noexcept {
  send_due();
  const bool must_wait = tx_.store.has_held() && tx_.store.first_due(now_ns()) != nullptr;
  claimed_ = must_wait ? nullptr : inner_->tx_claim(len);
  claimed_len_ = len;
  return claimed_;
}

void FaultPort::tx_commit() noexcept {
  if (claimed_ == nullptr) return;
  const Bytes bytes(claimed_, claimed_len_);
  claimed_ = nullptr;
  if (tx_.rules.empty()) return inner_->tx_commit();  // to read back what was just written takes long
  const auto fields = find_roce(bytes);
  const RoceFields* roce = fields ? &*fields : nullptr;
  const Verdict verdict = judge(tx_, bytes, roce);
  if (verdict.is_clean()) {
    inner_->tx_commit();
    tx_.store.on_frame_passed();
  } else if (verdict.drop) {
    tx_.counters.dropped.add();  // the inner port forgets a claim without commit
  } else if (verdict.alters() || verdict.holds()) {
    send_altered(bytes, verdict, roce);
  } else {
    duplicate(tx_, bytes);
    inner_->tx_commit();
    tx_.store.on_frame_passed();
  }
  send_due();
}

/// Sends a copy through the store; the inner port's claim is forgotten.
void FaultPort::send_altered(Bytes bytes, const Verdict& verdict, const RoceFields* fields) noexcept {
  Frame* copy = tx_.store.take(bytes);
  if (copy == nullptr) {
    tx_.counters.skipped.add();
    inner_->tx_commit();
    return;
  }
  alter(tx_, *copy, verdict, fields);
  if (!verdict.holds()) tx_.store.on_frame_passed();
  hold(tx_, copy, verdict);
  if (verdict.duplicate) duplicate(tx_, copy->bytes());
}

/// @return whether anything was sent.
bool FaultPort::send_due() noexcept {
  if (!tx_.store.has_held()) return false;
  const std::uint64_t now = now_ns();
  bool sent = false;
  for (Frame* frame = tx_.store.first_due(now); frame != nullptr; frame = tx_.store.first_due(now)) {
    std::byte* room = inner_->tx_claim(frame->len);
    if (room == nullptr) break;  // tried again at the next commit, flush or poll
    std::memcpy(room, frame->room.data(), frame->len);
    inner_->tx_commit();
    tx_.store.unhold(frame);
    tx_.store.give_back(frame);
    sent = true;
  }
  return sent;
}

void FaultPort::tx_flush() noexcept {
  claimed_ = nullptr;
  tx_.store.on_poll();
  send_due();
  inner_->tx_flush();
}

// --- the rest ---

bool FaultPort::arm_rx() noexcept {
  return !holds_back() && inner_->arm_rx();
}

FaultCounters FaultPort::fault_counters(fault::Direction direction) const noexcept {
  const LiveCounters& live = (direction == fault::Direction::kTx ? tx_ : rx_).counters;
  return {.dropped = live.dropped.get(),
          .duplicated = live.duplicated.get(),
          .reordered = live.reordered.get(),
          .corrupted = live.corrupted.get(),
          .truncated = live.truncated.get(),
          .delayed = live.delayed.get(),
          .ce_marked = live.ce_marked.get(),
          .skipped = live.skipped.get()};
}

port::PortCounters FaultPort::with_own(port::PortCounters counters) const noexcept {
  for (const auto direction : {fault::Direction::kRx, fault::Direction::kTx}) {
    const FaultCounters injected = fault_counters(direction);
    counters.faults_injected += injected.dropped + injected.duplicated + injected.reordered +
                                injected.corrupted + injected.truncated + injected.delayed +
                                injected.ce_marked;
  }
  return counters;
}

}  // namespace uroce::drivers
