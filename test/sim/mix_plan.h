/// A schedule for QPs of all types, with receive queues of their own and shared ones, drawn from one seed.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan.h"

namespace uroce::sim {

/// One SEND or WRITE.
struct Parcel {
  WrOpcode opcode{};
  std::uint8_t flags = 0;
  std::uint32_t length = 0;
  std::uint32_t imm = 0;      ///< network order
  std::uint64_t seed = 0;     ///< of the data
  std::vector<Piece> local;   ///< in `source`
  std::size_t remote_at = 0;  ///< WRITE: in `remote` of the other side
  std::size_t to = 0;         ///< index of the QP that it is for
  std::uint32_t qkey = 0;     ///< UD
  std::size_t queue = 0;      ///< XRC: index of the one that it names

  [[nodiscard]] bool is_send() const noexcept {
    return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm;
  }
  [[nodiscard]] bool has_imm() const noexcept {
    return opcode == WrOpcode::kSendWithImm || opcode == WrOpcode::kRdmaWriteWithImm;
  }
  [[nodiscard]] bool takes_receive() const noexcept {
    return is_send() || opcode == WrOpcode::kRdmaWriteWithImm;
  }
};

/// A receive queue, of one QP or shared, and the memory that is posted to it again and again.
struct MixQueue {
  unsigned at = 0;  ///< endpoint
  bool is_shared = false;
  bool is_xrc = false;      ///< shared: of its endpoint's XRC domain, for whatever names it
  bool is_limited = false;  ///< shared: its limit is armed now and then
  std::uint32_t users = 0;  ///< QPs; XRC targets of its endpoint
  bool has_uc = false;
  std::uint64_t pause_ns = 0;             ///< longest pause before the application posts again
  std::vector<std::vector<Piece>> slots;  ///< in `inbox`
};

struct MixQp {
  unsigned at = 0;  ///< endpoint
  Qpn qpn{};
  QpInitAttr init;
  Psn first_psn;
  std::size_t peer = 0;   ///< index; not UD
  std::size_t queue = 0;  ///< index; XRC: any that it may use
  std::uint32_t qkey = 0;
  std::uint8_t min_rnr_timer = 1;
  std::uint32_t outstanding = 1;
  std::uint64_t pause_ns = 0;
  std::vector<Parcel> parcels;

  [[nodiscard]] bool is_ud() const noexcept { return init.type == QpType::kUd; }
  /// RC, or one end of an XRC connection.
  [[nodiscard]] bool is_rc() const noexcept { return init.type == QpType::kRc || is_xrc(); }
  [[nodiscard]] bool is_xrc() const noexcept {
    return init.type == QpType::kXrcSend || init.type == QpType::kXrcRecv;
  }
};

struct MixPlan {
  Plan setting;  ///< without flows
  std::vector<MixQueue> queues;
  std::vector<MixQp> qps;

  [[nodiscard]] std::size_t parcels() const noexcept {
    std::size_t count = 0;
    for (const MixQp& qp : qps) count += qp.parcels.size();
    return count;
  }
};

/// @param parcels  of all QPs together
[[nodiscard]] MixPlan make_mix_plan(std::uint64_t seed, std::size_t parcels);

}  // namespace uroce::sim
