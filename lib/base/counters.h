/// Counters of one poll loop: each event and each drop reason has one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace uroce {

/// Names as telemetry prints them: kCounterNames, in the same order.
enum class Count : std::uint8_t {
  kRxRoce,
  kTxRoce,
  kRxArp,
  kTxArp,
  kRxNd,
  kTxNd,
  kRxEcho,
  kRxMembership,
  kTxMembership,
  kDropTooShort,
  kDropWrongVlan,
  kDropNotRoce,
  kDropMalformed,
  kDropFragment,
  kDropUnknownOpcode,
  kDropBadVersion,
  kDropBadIcrc,
  kDropBadPkey,
  kDropUnknownQpn,
  kDropWrongTransport,
  kDropQpState,
  kDropWrongAddress,
  kDropWrongGidType,
  kDropBadQkey,
  kDropNoGroupMember,
  kDropUnicastToGroupQpn,
  kDropGroupToUnicastQpn,
  kDropOwnMulticast,
  kDropNoReceive,
  kDropReceiveTooSmall,
  kDropHandOverFull,
  kHandedOver,
  kLocalFrames,
  kMulticastCopies,
  kLoopTxNoRoom,
  kRequesterPackets,
  kRequesterMessages,
  kRequesterGoBacks,
  kRequesterTimeouts,
  kRequesterProbes,
  kRequesterImpliedNaks,
  kRequesterSeqNaks,
  kRequesterRnrNaks,
  kRequesterFatalNaks,
  kRequesterGhostResponses,
  kRequesterRetryExceeded,
  kRequesterRnrRetryExceeded,
  kRequesterLocalErrors,
  kRequesterTolerated,
  kRequesterUnresolved,
  kGateRnrWait,
  kGateUnresolved,
  kGateFenced,
  kGateWindowFull,
  kGateReadDepth,
  kResponderPackets,
  kResponderMessages,
  kResponderAcks,
  kResponderDuplicateRequests,
  kResponderOutOfSequence,
  kResponderSeqNaks,
  kResponderRnrNaks,
  kResponderFatalNaks,
  kResponderTolerated,
  kResponderDroppedMessages,
  kResponderReplayedReads,
  kResponderReplayedAtomics,
  kResponderForgottenDuplicates,
  kResponderAwaitingResync,
  kReadResponsePackets,
  kCqOverflows,
  kCompletions,
  kFlushed,
  kCount
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(Count::kCount)> kCounterNames = {
    "rx_roce",
    "tx_roce",
    "rx_arp",
    "tx_arp",
    "rx_neighbour_discovery",
    "tx_neighbour_discovery",
    "rx_echo_requests",
    "rx_group_membership",
    "tx_group_membership",
    "drop_too_short",
    "drop_wrong_vlan",
    "drop_not_roce",
    "drop_malformed",
    "drop_fragment",
    "drop_unknown_opcode",
    "drop_bad_version",
    "drop_bad_icrc",
    "drop_bad_pkey",
    "drop_unknown_qpn",
    "drop_wrong_transport",
    "drop_qp_state",
    "drop_wrong_address",
    "drop_wrong_gid_type",
    "drop_bad_qkey",
    "drop_no_group_member",
    "drop_unicast_to_group_qpn",
    "drop_group_to_unicast_qpn",
    "drop_own_multicast",
    "drop_no_receive",
    "drop_receive_too_small",
    "drop_hand_over_full",
    "handed_over",
    "local_frames",
    "multicast_copies",
    "loop_tx_no_room",
    "requester_packets",
    "requester_messages",
    "requester_go_backs",
    "requester_timeouts",
    "requester_probes",
    "requester_implied_naks",
    "requester_seq_naks",
    "requester_rnr_naks",
    "requester_fatal_naks",
    "requester_ghost_responses",
    "requester_retry_exceeded",
    "requester_rnr_retry_exceeded",
    "requester_local_errors",
    "requester_tolerated_responses",
    "requester_unresolved_messages",
    "requester_gate_rnr_wait",
    "requester_gate_unresolved",
    "requester_gate_fenced",
    "requester_gate_window_full",
    "requester_gate_read_depth",
    "responder_packets",
    "responder_messages",
    "responder_acks",
    "responder_duplicate_requests",
    "responder_out_of_sequence",
    "responder_seq_naks",
    "responder_rnr_naks",
    "responder_fatal_naks",
    "responder_tolerated_requests",
    "responder_dropped_messages",
    "responder_replayed_reads",
    "responder_replayed_atomics",
    "responder_forgotten_duplicates",
    "responder_awaiting_resync",
    "responder_read_response_packets",
    "cq_overflows",
    "completions",
    "flushed",
};
static_assert(!kCounterNames.back().empty());

/// Threads: add() by the loop, get() by any.
class Counters {
 public:
  void add(Count what, std::uint64_t n = 1) noexcept {
    auto& value = values_[static_cast<std::size_t>(what)];
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);  // single writer
  }
  [[nodiscard]] std::uint64_t get(Count what) const noexcept {
    return values_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Count::kCount)> values_{};
};

}  // namespace uroce
