#include "sim/mix_plan.h"

#include <algorithm>

#include "uroce/ah_attr.h"

namespace uroce::sim {

namespace {

constexpr std::uint32_t kMaxSges = 3;
constexpr std::uint32_t kInline = 64;
constexpr std::uint32_t kQkeys[] = {0x1111'1111, 0x2222'2222};
constexpr std::uint32_t kOwnQkey = 0x8000'0000;  // the sender's own is sent instead

class Planner : private Dice {
 public:
  Planner(std::uint64_t seed, std::size_t parcels) : Dice(seed), parcels_(parcels) {
    plan_.setting.seed = seed;
  }

  MixPlan run() {
    draw_setting(plan_.setting, *this);
    longest_ = pick<std::uint32_t>({64, 4096, 16 * 1024});
    draw_shared_queues();
    draw_connections();
    if (chance(50)) draw_xrc();
    draw_datagram_qps();
    for (MixQueue& queue : plan_.queues) draw_slots(queue);
    for (std::size_t i = 0; i < plan_.qps.size(); ++i) draw_parcels(i);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::vector<EndpointPlan>& endpoints() noexcept { return plan_.setting.endpoints; }
  [[nodiscard]] unsigned mtu() const noexcept { return bytes(plan_.setting.mtu); }

  void draw_shared_queues() {
    for (unsigned at = 0; at < endpoints().size(); ++at) {
      for (std::uint64_t i = upto(2); i > 0; --i) {
        plan_.queues.push_back({.at = at, .is_shared = true, .is_limited = chance(70), .slots = {}});
      }
    }
  }

  void draw_connections() {
    for (std::uint64_t i = between(1, 5); i > 0; --i) {
      const auto a = static_cast<unsigned>(random().below(endpoints().size()));
      const auto b =
          static_cast<unsigned>((a + 1 + random().below(endpoints().size() - 1)) % endpoints().size());
      const QpType type = chance(40) ? QpType::kRc : QpType::kUc;
      draw_qp(a, type, plan_.qps.size() + 1);
      draw_qp(b, type, plan_.qps.size() - 1);
    }
  }

  /// One endpoint has the queues, and a target for each initiator, wherever that is.
  void draw_xrc() {
    const auto at = static_cast<unsigned>(random().below(endpoints().size()));
    const auto connections = static_cast<std::uint32_t>(between(1, 3));
    for (std::uint64_t i = between(1, 3); i > 0; --i) {
      xrc_queues_.push_back(plan_.queues.size());
      plan_.queues.push_back({.at = at,
                              .is_shared = true,
                              .is_xrc = true,
                              .is_limited = chance(70),
                              .users = connections,
                              .slots = {}});
    }
    for (std::uint32_t i = 0; i < connections; ++i) {
      const auto from =
          static_cast<unsigned>((at + 1 + random().below(endpoints().size() - 1)) % endpoints().size());
      draw_qp(from, QpType::kXrcSend, plan_.qps.size() + 1);
      draw_qp(at, QpType::kXrcRecv, plan_.qps.size() - 1);
    }
  }

  void draw_datagram_qps() {
    if (chance(30)) return;
    for (std::uint64_t i = between(2, 5); i > 0; --i) {
      draw_qp(static_cast<unsigned>(i % endpoints().size()), QpType::kUd, 0);
    }
  }

  void draw_qp(unsigned at, QpType type, std::size_t peer) {
    MixQp qp;
    qp.at = at;
    qp.init.type = type;
    qp.first_psn = psn();
    qp.peer = peer;
    qp.qpn = draw_qpn();
    qp.init.max_send_wr = static_cast<std::uint32_t>(1U << upto(6));
    qp.init.max_recv_wr = 16;
    qp.init.max_send_sge = qp.init.max_recv_sge = kMaxSges;
    qp.init.max_inline_data = kInline;
    qp.init.sq_sig_all = chance(30);
    qp.qkey = pick(kQkeys);
    qp.min_rnr_timer = static_cast<std::uint8_t>(between(1, 12));
    qp.outstanding = static_cast<std::uint32_t>(between(1, qp.init.max_send_wr));
    if (chance(40)) qp.pause_ns = upto(50'000);
    qp.queue = type == QpType::kXrcRecv ? xrc_queues_.front() : draw_queue(at);
    if (type != QpType::kXrcRecv) ++plan_.queues[qp.queue].users;
    if (type == QpType::kUc) plan_.queues[qp.queue].has_uc = true;
    plan_.qps.push_back(std::move(qp));
  }

  Qpn draw_qpn() {
    for (;;) {
      const Qpn qpn{static_cast<std::uint32_t>(between(2, 0xff'fffe))};
      if (std::none_of(plan_.qps.begin(), plan_.qps.end(), [&](const MixQp& qp) { return qp.qpn == qpn; })) {
        return qpn;
      }
    }
  }

  std::size_t draw_queue(unsigned at) {
    std::vector<std::size_t> shared;
    for (std::size_t i = 0; i < plan_.queues.size(); ++i) {
      const MixQueue& queue = plan_.queues[i];
      if (queue.is_shared && !queue.is_xrc && queue.at == at) shared.push_back(i);
    }
    if (!shared.empty() && chance(65)) return shared[random().below(shared.size())];
    plan_.queues.push_back({.at = at, .slots = {}});
    return plan_.queues.size() - 1;
  }

  /// Receives of RC QPs and shared ones take any message; others may be too small.
  void draw_slots(MixQueue& queue) {
    const auto user = std::find_if(plan_.qps.begin(), plan_.qps.end(),
                                   [&](const MixQp& qp) { return &plan_.queues[qp.queue] == &queue; });
    const bool must_fit = queue.is_shared || user->is_rc();
    const auto full = static_cast<std::uint32_t>(longest_ + kGrhBytes);
    if (chance(60)) queue.pause_ns = upto(chance(50) ? 5'000 : 50'000);
    // Each user may hold one for as long as the rest of its message does not come: others need some too.
    queue.slots.resize((queue.is_shared ? queue.users : 0) + between(1, 12));
    for (auto& slot : queue.slots) {
      const auto size = must_fit || chance(80) ? full : static_cast<std::uint32_t>(upto(full));
      slot = draw_pieces(endpoints()[queue.at].inbox, size);
    }
  }

  std::vector<Piece> draw_pieces(Bank& bank, std::uint32_t length) {
    std::vector<Piece> pieces;
    const std::size_t count = chance(60) ? 1 : between(1, kMaxSges);
    for (std::size_t i = 0; i < count; ++i) {
      const auto len = i + 1 == count ? length : static_cast<std::uint32_t>(upto(length));
      pieces.push_back({bank.reserve(len, random()), len});
      length -= len;
    }
    return pieces;
  }

  void draw_parcels(std::size_t index) {
    MixQp& qp = plan_.qps[index];
    if (qp.init.type == QpType::kXrcRecv) return;
    const std::size_t qps = plan_.qps.size();
    const std::size_t count = parcels_ / qps + (index < parcels_ % qps ? 1 : 0);
    std::vector<std::size_t> targets;
    for (std::size_t i = 0; i < qps; ++i) {
      const bool fits = qp.is_ud() ? plan_.qps[i].is_ud() && plan_.qps[i].at != qp.at : i == qp.peer;
      if (fits) targets.push_back(i);
    }
    if (targets.empty()) return;
    const unsigned signaled = pick<unsigned>({5, 50, 100});
    std::size_t slot = 0;
    std::uint32_t unsignaled = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Parcel parcel = draw_parcel(qp, targets[random().below(targets.size())]);
      if (!parcel.is_send()) {
        Bank& remote = endpoints()[plan_.qps[parcel.to].at].remote;
        // Where it is not known whether a WRITE with immediate data finds a receive, its bytes are its own.
        const bool is_own = parcel.has_imm() || slot == 0 || chance(20);
        const std::size_t place = is_own ? remote.reserve(longest_, random()) : slot;
        if (is_own && !parcel.has_imm()) slot = place;
        parcel.remote_at = place + upto(longest_ - parcel.length);
      }
      if (i + 1 == count || ++unsignaled >= qp.outstanding || chance(signaled)) {
        parcel.flags |= send_flag::kSignaled;
        unsignaled = 0;
      }
      qp.parcels.push_back(std::move(parcel));
    }
  }

  Parcel draw_parcel(const MixQp& qp, std::size_t to) {
    Parcel parcel{.seed = random().next(), .local = {}, .to = to};
    parcel.opcode = qp.is_ud() ? pick({WrOpcode::kSend, WrOpcode::kSendWithImm})
                               : pick({WrOpcode::kSend, WrOpcode::kSendWithImm, WrOpcode::kRdmaWrite,
                                       WrOpcode::kRdmaWriteWithImm});
    parcel.imm = random().next32();
    if (qp.is_xrc()) parcel.queue = xrc_queues_[random().below(xrc_queues_.size())];
    const std::uint32_t most = qp.is_ud() ? std::min(mtu(), longest_) : longest_;
    const auto dice = random().below(100);
    const std::uint64_t length = dice < 20   ? upto(64)
                                 : dice < 50 ? upto(mtu())
                                 : dice < 80 ? upto(6 * mtu())
                                             : upto(most);
    parcel.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, most));
    if (parcel.length < 8 && parcel.opcode == WrOpcode::kSend)
      parcel.opcode = WrOpcode::kSendWithImm;  // no two alike
    if (chance(20)) parcel.flags |= send_flag::kSolicited;
    parcel.local = draw_pieces(endpoints()[qp.at].source, parcel.length);
    if (parcel.length <= kInline && chance(30)) parcel.flags |= send_flag::kInline;
    const std::uint32_t right = plan_.qps[to].qkey;
    parcel.qkey = chance(80) ? right : chance(50) ? right + 1 : right | kOwnQkey;
    return parcel;
  }

  std::size_t parcels_;
  std::uint32_t longest_ = 64;
  std::vector<std::size_t> xrc_queues_;
  MixPlan plan_;
};

}  // namespace

MixPlan make_mix_plan(std::uint64_t seed, std::size_t parcels) {
  return Planner(seed, parcels).run();
}

}  // namespace uroce::sim
