// SQD in the middle of traffic under loss: what has started ends, nothing else starts, and it is said once.
#include <catch2/catch.hpp>

#include "sim/pair.h"
#include "support/script_memory.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kPd = 1;
constexpr std::uint32_t kLostOneIn = 20;
constexpr std::uint32_t kLongest = 1500;  // bytes, of a message

/// Random work in both directions of a pair; side `a` drains now and then.
class Traffic {
 public:
  explicit Traffic(std::uint64_t seed) : random_(seed) {
    a.pipe.observer = [this](const wire::PacketView& packet) {
      if (!packet.op->is_request) return;
      ++requests;
      if (distance(packet.bth.psn, next_psn_) >= 0) started_since = true;
    };
  }

  void post(Side& side) {
    const auto length = static_cast<std::uint32_t>(random_.below(kLongest));
    const auto dice = random_.below(4);
    const bool atomic = dice == 3;
    const bool reads = dice >= 2;
    const Sge sge = (reads ? sink : source).sge(0, atomic ? 8 : length);
    const SendWr wr{.wr_id = ends_.size(),
                    .sges = {&sge, 1},
                    .opcode = atomic      ? WrOpcode::kAtomicFetchAndAdd
                              : dice == 2 ? WrOpcode::kRdmaRead
                              : dice == 1 ? WrOpcode::kSend
                                          : WrOpcode::kRdmaWrite,
                    .flags = send_flag::kSignaled,
                    .remote_addr = target.addr(),
                    .rkey = target.rkey(),
                    .compare_add = 1};
    if (!side.qp.context().sq.put(wr, 0)) return;
    side.qp.context().sq.publish(1);
    if (&side == &a) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + (atomic ? 1 : packets(length)));
  }

  void post_receive(Side& side) {
    const Sge sge = inbox.sge(0, kLongest);
    if (side.qp.context().receives.own.put({.wr_id = 1, .sges = {&sge, 1}}, 0))
      side.qp.context().receives.own.publish(1);
  }

  /// Both applications and both QPs, once.
  void turn() {
    if (random_.below(3) != 0) post(a);
    if (random_.below(4) == 0) post(b);
    if (random_.below(2) == 0) post_receive(a);
    if (random_.below(2) == 0) post_receive(b);
    quiet_turn();
  }
  /// Some messages of `a`, of which not all get on their way.
  void half_a_turn() {
    for (std::uint64_t i = 1 + random_.below(8); i > 0; --i) post(a);
    transport::TxContext tx{
        .port = a.pipe, .bulk = a.pipe, .now = now_, .budget = 1 + static_cast<unsigned>(random_.below(16))};
    static_cast<void>(a.qp.transmit(tx));
  }
  void quiet_turn() {
    a.turn(b, now_);
    b.turn(a, now_);
    now_ = now_ + 10'000;
    const std::uint32_t events =
        (a.qp.take_events() | std::exchange(early_events_, 0)) & ~transport::QpContext::kHasNews;
    REQUIRE((events & ~(1U << raw(AsyncEventType::kSqDrained))) == 0);
    if (events != 0) ++drained;
    take(a, true);
    take(b, false);
  }

  void move(QpState state) {
    if (state == QpState::kSqd) next_psn_ = a.qp.requester().next_psn();
    const std::uint32_t notify = state == QpState::kSqd ? qp_attr::kEnSqdAsyncNotify : 0;
    REQUIRE(a.qp.modify({.state = state}, qp_attr::kState | notify, {.gid_count = 2}).has_value());
    if (state == QpState::kRts) next_psn_ = kNever;
    early_events_ = a.qp.take_events();
  }

  /// Work requests of `a` that had PSNs when it was told to drain.
  [[nodiscard]] std::size_t started() const {
    const std::uint32_t psns = span_from(next_psn_, Psn{kFirst});
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), psns) - ends_.begin());
  }
  [[nodiscard]] std::size_t completed() const { return completed_; }
  [[nodiscard]] std::size_t posted() const { return ends_.size(); }

 private:
  static constexpr std::uint32_t kFirst = 0xff'fff0;
  static constexpr Psn kNever{(kFirst + 0x7f'ffff) & 0xff'ffff};  // as far ahead as can be told

  static std::uint32_t packets(std::uint32_t length) { return std::max(1U, (length + 255) / 256); }

  void take(Side& side, bool counts) {
    Wc wc;
    while (side.cq.poll({&wc, 1}) == 1) {
      REQUIRE(wc.ok());
      if (counts && raw(wc.opcode) < raw(WcOpcode::kRecv)) REQUIRE(wc.wr_id == completed_++);
    }
  }

  Random random_;
  mem::KeyTable keys_{1, [] {}};
  Ticks now_{1'000'000};
  Psn next_psn_ = kNever;            // of the first packet that may not leave
  std::vector<std::uint32_t> ends_;  // PSNs used by all work requests of `a` up to each
  std::size_t completed_ = 0;
  std::uint32_t early_events_ = 0;

 public:
  Area source{keys_, kPd, 2048, 0, 0x10};
  Area sink{keys_, kPd, 2048, access::kLocalWrite, 0x50};
  Area inbox{keys_, kPd, 2048, access::kLocalWrite, 0x90};
  Area target{keys_, kPd, 2048, access::kAll, 0xd0};
  Side a{{.seed = random_.next(), .lost_one_in = kLostOneIn, .first_psn = kFirst}, keys_};
  Side b{{.own = Qpn{2},
          .peer = Qpn{1},
          .is_second = true,
          .seed = random_.next(),
          .lost_one_in = kLostOneIn,
          .first_psn = kFirst},
         keys_};
  unsigned drained = 0;        ///< events of `a`
  bool started_since = false;  ///< a packet of a later work request has left
  std::uint64_t requests = 0;  ///< packets of `a`
};

constexpr int kPatience = 10'000;  // turns

/// Drains `a`, looks that it keeps still, and lets it go on.
/// @return whether something was in flight when it began.
bool drain_once(Traffic& traffic, unsigned turns_after) {
  traffic.half_a_turn();
  const unsigned before = traffic.drained;
  traffic.move(QpState::kSqd);
  const std::size_t started = traffic.started();
  const bool was_busy = traffic.completed() < started;
  for (int i = 0; traffic.drained == before; ++i) {
    REQUIRE(i < kPatience);
    traffic.turn();
  }
  REQUIRE(traffic.completed() == started);  // all that had started, and no more
  const std::uint64_t requests = traffic.requests;
  for (unsigned i = 0; i < turns_after; ++i) traffic.turn();  // further posts, and the peer's own traffic
  REQUIRE(traffic.requests == requests);
  REQUIRE_FALSE(traffic.started_since);
  REQUIRE(traffic.drained == before + 1);
  REQUIRE(traffic.completed() == started);
  traffic.move(QpState::kRts);
  return was_busy;
}

}  // namespace

TEST_CASE("a QP that drains in the middle of traffic under loss says so once and starts nothing",
          "[sim][sqd][T16]") {
  // IBA 10.3.1.6 ?; 1000 runs
  std::uint64_t go_backs = 0;
  unsigned busy = 0;  // drains with something in flight
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("seed " << seed);
    Traffic traffic(seed);
    Random random(seed);
    for (std::uint64_t i = random.below(20); i > 0; --i) traffic.turn();
    busy += drain_once(traffic, 30) ? 1 : 0;
    for (std::uint64_t i = random.below(20); i > 0; --i) traffic.turn();
    busy += drain_once(traffic, 5) ? 1 : 0;
    for (int i = 0; traffic.completed() < traffic.posted(); ++i) {
      REQUIRE(i < kPatience);
      traffic.post_receive(traffic.b);
      traffic.quiet_turn();
    }
    REQUIRE(traffic.drained == 2);
    go_backs += traffic.a.counters.get(Count::kRequesterGoBacks);
    for (Area* area : {&traffic.sink, &traffic.inbox, &traffic.target}) {
      REQUIRE(area->is_untouched_but(0, kLongest));
    }
    REQUIRE(traffic.source.is_untouched());
  }
  CHECK(go_backs > 1000);
  CHECK(busy > 1000);
}
