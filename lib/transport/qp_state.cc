// The state machine: which moves are legal, and with which attributes. IBA 10.3.1, table 91 ?;
// ibv_modify_qp(3).
#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <span>

#include "transport/queue_pair.h"

namespace uroce {

std::string_view to_string(QpState state) noexcept {
  constexpr std::array<std::string_view, 7> kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERROR"};
  return raw(state) < kNames.size() ? kNames[raw(state)] : "?";
}

std::string_view to_string(QpType type) noexcept {
  switch (type) {
    case QpType::kRc:
      return "RC";
    case QpType::kUc:
      return "UC";
    case QpType::kUd:
      return "UD";
    case QpType::kXrcSend:
      return "XRC_SEND";
    case QpType::kXrcRecv:
      return "XRC_RECV";
  }
  return "?";
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

using enum QpState;

// Moves that each type makes, with its attributes. Moves to Reset and Error are legal from everywhere.
constexpr std::uint32_t kConnectedInit = kPkeyIndex | kPort | kAccessFlags;
constexpr std::uint32_t kConnectedAddress = kAv | kPathMtu | kDestQpn | kRqPsn;
constexpr std::uint32_t kRcLive = kCurState | kAccessFlags | kMinRnrTimer;
constexpr std::uint32_t kRcDrained = kPkeyIndex | kPort | kAccessFlags | kAv | kMaxQpRdAtomic |
                                     kMaxDestRdAtomic | kTimeout | kRetryCnt | kRnrRetry | kMinRnrTimer |
                                     kCurState;

constexpr std::array<Move, 8> kRcMoves{{
    {kReset, kInit, kConnectedInit, 0},
    {kInit, kInit, 0, kConnectedInit},
    {kInit, kRtr, kConnectedAddress | kMaxDestRdAtomic | kMinRnrTimer, kAccessFlags | kPkeyIndex},
    {kRtr, kRts, kSqPsn | kTimeout | kRetryCnt | kRnrRetry | kMaxQpRdAtomic, kRcLive},
    {kRts, kRts, 0, kRcLive},
    {kRts, kSqd, 0, kEnSqdAsyncNotify},
    {kSqd, kRts, 0, kRcLive},
    {kSqd, kSqd, 0, kRcDrained},
}};

constexpr std::uint32_t kUcLive = kCurState | kAccessFlags;

constexpr std::array<Move, 9> kUcMoves{{
    {kReset, kInit, kConnectedInit, 0},
    {kInit, kInit, 0, kConnectedInit},
    {kInit, kRtr, kConnectedAddress, kAccessFlags | kPkeyIndex},
    {kRtr, kRts, kSqPsn, kUcLive},
    {kRts, kRts, 0, kUcLive},
    {kRts, kSqd, 0, kEnSqdAsyncNotify},
    {kSqd, kRts, 0, kUcLive},
    {kSqd, kSqd, 0, kUcLive | kAv | kPkeyIndex},
    {kSqe, kRts, 0, kUcLive},
}};

constexpr std::uint32_t kXrcSendDrained = kRcDrained & ~(kMaxDestRdAtomic | kMinRnrTimer);

constexpr std::array<Move, 8> kXrcSendMoves{{
    {kReset, kInit, kConnectedInit, 0},
    {kInit, kInit, 0, kConnectedInit},
    {kInit, kRtr, kConnectedAddress, kAccessFlags | kPkeyIndex},
    {kRtr, kRts, kSqPsn | kTimeout | kRetryCnt | kRnrRetry | kMaxQpRdAtomic, kUcLive},
    {kRts, kRts, 0, kUcLive},
    {kRts, kSqd, 0, kEnSqdAsyncNotify},
    {kSqd, kRts, 0, kUcLive},
    {kSqd, kSqd, 0, kXrcSendDrained},
}};

constexpr std::uint32_t kXrcRecvDrained = kRcDrained & ~(kMaxQpRdAtomic | kRetryCnt | kRnrRetry);

constexpr std::array<Move, 8> kXrcRecvMoves{{
    {kReset, kInit, kConnectedInit, 0},
    {kInit, kInit, 0, kConnectedInit},
    {kInit, kRtr, kConnectedAddress | kMaxDestRdAtomic | kMinRnrTimer, kAccessFlags | kPkeyIndex},
    {kRtr, kRts, kSqPsn | kTimeout, kRcLive},
    {kRts, kRts, 0, kRcLive},
    {kRts, kSqd, 0, kEnSqdAsyncNotify},
    {kSqd, kRts, 0, kRcLive},
    {kSqd, kSqd, 0, kXrcRecvDrained},
}};

constexpr std::uint32_t kUdInit = kPkeyIndex | kPort | kQkey;
constexpr std::uint32_t kUdLive = kCurState | kQkey;

constexpr std::array<Move, 9> kUdMoves{{
    {kReset, kInit, kUdInit, 0},
    {kInit, kInit, 0, kUdInit},
    {kInit, kRtr, 0, kPkeyIndex | kQkey},
    {kRtr, kRts, kSqPsn, kUdLive},
    {kRts, kRts, 0, kUdLive},
    {kRts, kSqd, 0, kEnSqdAsyncNotify},
    {kSqd, kRts, 0, kUdLive},
    {kSqd, kSqd, 0, kPkeyIndex | kQkey | kCurState},
    {kSqe, kRts, 0, kUdLive},
}};

constexpr std::span<const Move> moves_of(QpType type) noexcept {
  if (type == QpType::kUc) return kUcMoves;
  if (type == QpType::kUd) return kUdMoves;
  if (type == QpType::kXrcSend) return kXrcSendMoves;
  if (type == QpType::kXrcRecv) return kXrcRecvMoves;
  return kRcMoves;
}

Error invalid(std::string text) {
  return Error{Errc::kInvalid, std::move(text)};
}

Status check_move(QpType type, QpState from, QpState to, std::uint32_t mask) {
  const std::uint32_t attrs = mask & ~kState;
  if (to == QpState::kReset || to == QpState::kError) {
    return attrs == 0 ? Status{}
                      : invalid("a move to " + std::string(to_string(to)) + " takes no attributes");
  }
  const std::span<const Move> moves = moves_of(type);
  const auto move = std::find_if(moves.begin(), moves.end(),
                                 [&](const Move& row) { return row.from == from && row.to == to; });
  const std::string names = std::string(to_string(from)) + " -> " + std::string(to_string(to));
  if (move == moves.end()) return invalid("no such QP state move: " + names);
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
  if (given(kAv) && !attr.dgid.is_unicast()) return "dgid is not the address of a peer";
  if (given(kAv) && attr.sl > 7) return "sl is 0 to 7";
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

Status QueuePair::modify(const QpAttr& attr, std::uint32_t mask, const QpBounds& bounds) {
  const QpState from = state();
  const QpState to = (mask & kState) != 0 ? attr.state : from;
  if ((mask & kState) == 0 && (to == QpState::kReset || to == QpState::kError)) {
    return invalid("a QP in state " + std::string(to_string(to)) + " has no attributes to change");
  }
  if (Status legal = check_move(ctx_.init.type, from, to, mask); !legal) return legal;
  if (const auto wrong = wrong_value(attr, mask, bounds)) return invalid(*wrong);
  if (bounds.congestion.is_on && ctx_.init.type != QpType::kUd && !ctx_.is_controlled) {
    ctx_.congestion = std::make_unique<Congestion>(bounds.congestion);
    ctx_.is_controlled = true;
  }
  ctx_.max_unacked = bounds.max_unacked;
  ctx_.hardened = static_cast<std::uint8_t>(std::min(bounds.hardened, 255U));
  ctx_.rnr_cap_ns = bounds.rnr_cap_ns;
  ctx_.probe_floor_ns = bounds.probe_floor_ns;
  ctx_.credits.store(bounds.credits && ctx_.init.type == QpType::kRc, std::memory_order_relaxed);
  if (ctx_.init.type == QpType::kUd)
    ctx_.attr.path_mtu = bounds.active_mtu;  // datagrams have no path of their own
  const QpAttr before = ctx_.attr;
  try {
    apply(attr, mask);
    if (to == QpState::kSqd && from != QpState::kSqd)
      drained_reported_ = (mask & kEnSqdAsyncNotify) == 0 || !attr.en_sqd_async_notify;
    if (to != from || to == QpState::kReset) enter(to);
  } catch (const std::bad_alloc&) {
    ctx_.attr = before;
    ctx_.take_attributes();
    throw;
  }
  return {};
}

/// Throws bad_alloc.
void QueuePair::apply(const QpAttr& attr, std::uint32_t mask) {
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
  take(kQkey, own.qkey, attr.qkey);
  if ((mask & kAv) != 0) {
    own.dgid = attr.dgid;
    own.sgid_index = attr.sgid_index;
    own.traffic_class = attr.traffic_class;
    own.hop_limit = attr.hop_limit;
    own.flow_label = attr.flow_label;
    own.sl = attr.sl;
  }
  ctx_.take_attributes();
  take_attributes(mask);
  if ((mask & kAv) != 0) ctx_.resolved = false;
}

}  // namespace uroce::transport
