/// A whole schedule, drawn from one seed: network, endpoints, QPs and every message.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "sim/bank.h"
#include "sim/net.h"
#include "transport/congestion.h"
#include "uroce/qp_attr.h"
#include "uroce/wr.h"
#include "wire/packet.h"

namespace uroce::sim {

/// Of memory that peers use.
inline constexpr std::uint32_t kRemoteRights = access::kAll | access::kFlushGlobal | access::kFlushPersistent;

/// What a message does with memory that others use too.
enum class Sharing : std::uint8_t {
  kNone,
  kTicket,  ///< adds 1 to a counter that all flows to this endpoint share
  kLock,    ///< swaps a word that all flows to this endpoint share
};

/// One work request of a flow and the receive that it consumes, if any.
struct Message {
  WrOpcode opcode{};
  std::uint8_t flags = 0;
  std::uint32_t length = 0;
  std::uint32_t imm = 0;      ///< network order
  std::vector<Piece> local;   ///< in `source`, or in `sink` if it reads
  std::size_t remote_at = 0;  ///< in `remote` of the other side
  std::uint64_t seed = 0;     ///< of the data
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  AtomicMasks masks{};
  Sharing sharing = Sharing::kNone;
  std::vector<Piece> receive;  ///< in `inbox` of the other side

  [[nodiscard]] bool is_read() const noexcept { return opcode == WrOpcode::kRdmaRead; }
  [[nodiscard]] bool is_atomic() const noexcept {
    return opcode == WrOpcode::kAtomicCmpAndSwp || opcode == WrOpcode::kAtomicFetchAndAdd || is_masked();
  }
  [[nodiscard]] bool is_masked() const noexcept {
    return opcode == WrOpcode::kMaskedCmpAndSwp || opcode == WrOpcode::kMaskedFetchAndAdd;
  }
  [[nodiscard]] bool is_swap() const noexcept {
    return opcode == WrOpcode::kAtomicCmpAndSwp || opcode == WrOpcode::kMaskedCmpAndSwp;
  }
  /// A bind of the flow's window of type 1, or, as kLocalInv, a bind or invalidate of the one of type 2.
  [[nodiscard]] bool is_local() const noexcept {
    return opcode == WrOpcode::kBindMw || opcode == WrOpcode::kLocalInv;
  }
  [[nodiscard]] bool is_flush() const noexcept { return opcode == WrOpcode::kFlush; }
  [[nodiscard]] bool is_send() const noexcept {
    return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm || opcode == WrOpcode::kSendWithInv;
  }
  [[nodiscard]] bool takes_receive() const noexcept {
    return is_send() || opcode == WrOpcode::kRdmaWriteWithImm;
  }
};

/// All that one requester sends to one responder.
struct FlowPlan {
  unsigned from = 0;
  unsigned to = 0;
  Qpn qpn{};  ///< of the requester's QP
  Qpn dest_qpn{};
  Psn first_psn;
  QpInitAttr init;
  std::uint8_t max_rd_atomic = 1;
  std::uint8_t max_dest_rd_atomic = 1;  ///< of the requester's QP, for the flow that comes back
  std::uint8_t min_rnr_timer = 1;       ///< likewise
  std::uint32_t outstanding = 1;        ///< work requests posted at a time, at most
  std::uint32_t receives = 1;           ///< receives that the responder keeps posted
  std::uint64_t pause_ns = 0;           ///< longest pause of the application before it posts again
  std::uint64_t receive_pause_ns = 0;   ///< likewise of the one that posts receives
  bool credits = false;                 ///< the requester's QP uses end-to-end credits
  std::uint32_t ece = 0;                ///< options that both QPs have switched on
  std::size_t word_at = 0;              ///< the flow's own word for atomics, in `remote`
  std::vector<Message> messages;
};

struct EndpointPlan {
  Gid gid;
  std::size_t ticket_at = 0;  ///< in `remote`
  std::size_t lock_at = 0;
  bool controls_rates = false;  ///< its QPs heed marks and slow down
  Bank source{0};
  Bank sink{access::kLocalWrite};
  Bank inbox{access::kLocalWrite};
  Bank remote{kRemoteRights | access::kMwBind};
};

/// What all RoCE frames of a schedule have in common.
struct LinkPlan {
  GidType type = GidType::kRoceV2;
  std::uint16_t vlan = 0;  ///< 0: no tags
  std::uint8_t sl = 0;     ///< of all QPs and address handles

  /// Whether `packet` came in such a frame.
  [[nodiscard]] bool fits(const wire::PacketView& packet) const noexcept {
    const std::optional<std::uint16_t> tag = packet.link().vlan_tci;
    const bool has_tag = vlan == 0 ? !tag.has_value() : tag == static_cast<std::uint16_t>(sl << 13 | vlan);
    return packet.gid_type == type && has_tag;
  }
};

struct Plan {
  std::uint64_t seed = 0;
  NetConfig net;
  LinkPlan link;
  PathMtu mtu = PathMtu::k1024;
  std::uint32_t max_unacked = 256;
  std::uint8_t timeout = 8;                  ///< ack timeout code
  std::uint64_t probe_floor_ns = 0;          ///< 0: no probes
  double stall = 0;                          ///< probability that an endpoint is not polled in a step
  std::uint64_t stall_ns = 0;                ///< longest time for which it is not
  bool one_cq = false;                       ///< one CQ per endpoint for sends and receives
  std::uint8_t traffic_class = 0;            ///< of all connections
  transport::CongestionSettings congestion;  ///< of the endpoints that control rates
  bool disturbed = false;                    ///< somebody else than chance decides over packets
  std::vector<EndpointPlan> endpoints;
  std::vector<FlowPlan> flows;  ///< 2 i and 2 i + 1 are the directions of one connection

  [[nodiscard]] transport::CongestionSettings congestion_at(unsigned endpoint) const noexcept {
    transport::CongestionSettings settings = congestion;
    settings.is_on = endpoints[endpoint].controls_rates;
    return settings;
  }
  [[nodiscard]] bool is_clean() const noexcept {
    return !disturbed && net.loss + net.duplicate + net.reorder + net.corrupt + net.truncate == 0 &&
           net.flap_ns == 0;
  }
  [[nodiscard]] std::size_t messages() const noexcept {
    std::size_t count = 0;
    for (const FlowPlan& flow : flows) count += flow.messages.size();
    return count;
  }
};

/// Random decisions from one seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t upto(std::uint64_t bound) { return random_.below(bound + 1); }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + upto(high - low); }
  bool chance(unsigned percent) { return random_.below(100) < percent; }
  template <typename T, std::size_t N>
  T pick(const T (&values)[N]) {
    return values[random_.below(N)];
  }
  /// Mostly none, else up to 20 %.
  double rate() { return chance(50) ? 0 : static_cast<double>(between(1, 200)) / 1000; }
  /// Half of them just before the wrap.
  Psn psn() {
    const auto psn = static_cast<std::uint32_t>(upto(Psn::kMask));
    return chance(50) ? Psn{Psn::kMask - (psn & 0xff)} : Psn{psn};
  }
  [[nodiscard]] Random& random() noexcept { return random_; }

 private:
  Random random_;
};

/// The network and the endpoints, without what they say to each other.
void draw_setting(Plan& plan, Dice& dice);

/// @param messages  of all flows together
[[nodiscard]] Plan make_plan(std::uint64_t seed, std::size_t messages);

}  // namespace uroce::sim
