// The RC state machine: which moves are legal, and with which attributes. IBA 10.3.1, table 91 ?;
// ibv_modify_qp(3).
#include <algorithm>
#include <array>
#include <optional>

#include "transport/rc_qp.h"

namespace uroce {

std::string_view to_string(QpState state) noexcept {
  constexpr std::array<std::string_view, 7> kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERROR"};
  return raw(state) < kNames.size() ? kNames[raw(state)] : "?";
}

}  // namespace uroce

namespace uroce::transport {

namespace {

using namespace qp_attr;

struct Move {
  QpState from, to;
  std::uint32_t required = 0;  // besides kState
  std::uint32_t optional = 0;
};

constexpr std::uint32_t kInitAttrs = kPkeyIndex | kPort | kAccessFlags;
constexpr std::uint32_t kLive = kCurState | kAccessFlags | kMinRnrTimer;
constexpr std::uint32_t kDrainedAttrs = kPkeyIndex | kPort | kAccessFlags | kAv | kMaxQpRdAtomic |
                                        kMaxDestRdAtomic | kTimeout | kRetryCnt | kRnrRetry | kMinRnrTimer |
                                        kCurState;

constexpr std::array<Move, 8> kMoves{{
    {QpState::kReset, QpState::kInit, kInitAttrs, 0},
    {QpState::kInit, QpState::kInit, 0, kInitAttrs},
    {QpState::kInit, QpState::kRtr, kAv | kPathMtu | kDestQpn | kRqPsn | kMaxDestRdAtomic | kMinRnrTimer,
     kAccessFlags | kPkeyIndex},
    {QpState::kRtr, QpState::kRts, kSqPsn | kTimeout | kRetryCnt | kRnrRetry | kMaxQpRdAtomic, kLive},
    {QpState::kRts, QpState::kRts, 0, kLive},
    {QpState::kRts, QpState::kSqd, 0, kEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0, kLive},
    {QpState::kSqd, QpState::kSqd, 0, kDrainedAttrs},
}};

Error invalid(std::string text) {
  return Error{Errc::kInvalid, std::move(text)};
}

Status check_move(QpState from, QpState to, std::uint32_t mask) {
  const std::uint32_t attrs = mask & ~kState;
  if (to == QpState::kReset || to == QpState::kError) {
    return attrs == 0 ? Status{}
                      : invalid("a move to " + std::string(to_string(to)) + " takes no attributes");
  }
  const auto move = std::find_if(kMoves.begin(), kMoves.end(),
                                 [&](const Move& row) { return row.from == from && row.to == to; });
  const std::string names = std::string(to_string(from)) + " -> " + std::string(to_string(to));
  if (move == kMoves.end()) return invalid("no such QP state move: " + names);
  if ((attrs & move->required) != move->required)
    return invalid("attributes are missing for the move " + names);
  if ((attrs & ~(move->required | move->optional)) != 0) {
    return invalid("attributes are given that the move " + names + " does not take");
  }
  return {};
}

std::optional<const char*> wrong_value(const QpAttr& attr, std::uint32_t mask, const QpBounds& bounds) {
  const auto given = [mask](std::uint32_t bit) { return (mask & bit) != 0; };
  if (given(kPathMtu) && (raw(attr.path_mtu) < 1 || raw(attr.path_mtu) > 5))
    return "path_mtu is 1 (256) to 5 (4096)";
  if (given(kPathMtu) && attr.path_mtu > bounds.active_mtu) {
    return "path_mtu is larger than the port's active MTU: raise the link MTU (path MTU + 96 bytes)";
  }
  if (given(kAv) && attr.sgid_index >= bounds.gid_count) return "sgid_index is beyond the GID table";
  if (given(kAv) && (attr.dgid.is_zero() || attr.dgid.is_multicast()))
    return "dgid is not the address of a peer";
  if (given(kTimeout) && attr.timeout > 31) return "timeout is 0 to 31";
  if (given(kRetryCnt) && attr.retry_cnt > 7) return "retry_cnt is 0 to 7";
  if (given(kRnrRetry) && attr.rnr_retry > 7) return "rnr_retry is 0 to 7";
  if (given(kMinRnrTimer) && attr.min_rnr_timer > 31) return "min_rnr_timer is 0 to 31";
  if (given(kMaxQpRdAtomic) && attr.max_rd_atomic > bounds.max_rd_atomic)
    return "max_rd_atomic is above the limit";
  if (given(kMaxDestRdAtomic) && attr.max_dest_rd_atomic > bounds.max_rd_atomic) {
    return "max_dest_rd_atomic is above the limit";
  }
  if (given(kDestQpn) && raw(attr.dest_qpn) > 0xff'ffff) return "dest_qpn has 24 bits";
  return std::nullopt;
}

}  // namespace

Status RcQp::modify(const QpAttr& attr, std::uint32_t mask, const QpBounds& bounds) {
  const QpState from = state();
  const QpState to = (mask & kState) != 0 ? attr.state : from;
  if ((mask & kState) == 0 && (to == QpState::kReset || to == QpState::kError)) {
    return invalid("a QP in state " + std::string(to_string(to)) + " has no attributes to change");
  }
  if (Status legal = check_move(from, to, mask); !legal) return legal;
  if (const auto wrong = wrong_value(attr, mask, bounds)) return invalid(*wrong);
  ctx_.max_unacked = bounds.max_unacked;
  ctx_.hardened = bounds.hardened;
  ctx_.rnr_cap_ns = bounds.rnr_cap_ns;
  apply(attr, mask);
  if (to != from || to == QpState::kReset) enter(to);
  return {};
}

void RcQp::apply(const QpAttr& attr, std::uint32_t mask) {
  QpAttr& own = ctx_.attr;
  const auto take = [mask](std::uint32_t bit, auto& to, const auto& from) {
    if ((mask & bit) != 0) to = from;
  };
  take(kAccessFlags, own.access_flags, attr.access_flags);
  take(kPathMtu, own.path_mtu, attr.path_mtu);
  take(kTimeout, own.timeout, attr.timeout);
  take(kRetryCnt, own.retry_cnt, attr.retry_cnt);
  take(kRnrRetry, own.rnr_retry, attr.rnr_retry);
  take(kRqPsn, own.rq_psn, attr.rq_psn);
  take(kSqPsn, own.sq_psn, attr.sq_psn);
  take(kMaxQpRdAtomic, own.max_rd_atomic, attr.max_rd_atomic);
  take(kMaxDestRdAtomic, own.max_dest_rd_atomic, attr.max_dest_rd_atomic);
  take(kMinRnrTimer, own.min_rnr_timer, attr.min_rnr_timer);
  take(kDestQpn, own.dest_qpn, attr.dest_qpn);
  if ((mask & kAv) != 0) {
    own.dgid = attr.dgid;
    own.sgid_index = attr.sgid_index;
    own.traffic_class = attr.traffic_class;
    own.hop_limit = attr.hop_limit;
    own.flow_label = attr.flow_label;
    ctx_.resolved = false;
  }
  ctx_.mtu = bytes(own.path_mtu);
  requester_.resize_read_window();
  responder_.resize_resources();
}

}  // namespace uroce::transport
