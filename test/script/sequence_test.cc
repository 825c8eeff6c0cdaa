// Every ordered pair of RC opcodes after every state of the message in progress.
#include <catch2/catch.hpp>

#include "script/remote.h"
#include "uroce/ece.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kMtu = 256;

constexpr wire::Opcode kOpcodes[] = {kRcSendFirst,
                                     kRcSendMiddle,
                                     kRcSendLast,
                                     kRcSendLastImm,
                                     kRcSendOnly,
                                     kRcSendOnlyImm,
                                     kRcSendLastInv,
                                     kRcSendOnlyInv,
                                     kRcWriteFirst,
                                     kRcWriteMiddle,
                                     kRcWriteLast,
                                     kRcWriteLastImm,
                                     kRcWriteOnly,
                                     kRcWriteOnlyImm,
                                     kRcReadRequest,
                                     kRcCompareSwap,
                                     kRcFetchAdd,
                                     kRcMaskedCompareSwap,
                                     kRcMaskedFetchAdd,
                                     kRcFlush,
                                     kRcAtomicWrite,
                                     kRcReadResponseOnly,
                                     kRcReadResponseLast,
                                     kRcReadResponseFirst,
                                     kRcReadResponseMiddle,
                                     kRcAtomicAck,
                                     kRcAck};
static_assert(std::size(kOpcodes) == 27);  // all that RC has

/// The message that is coming in, as the peer's packets make it.
enum class Message { kNone, kSend, kWrite };

/// Which packets may follow which, written down anew: IBA 9.7.4.1.2 ?.
enum class Place { kFirst, kMiddle, kLast, kOnly };

struct Row {
  wire::Opcode opcode;
  Message kind;  ///< whose packet it is; kNone: a message of its own
  Place place;
};

Row row(wire::Opcode opcode) {
  switch (opcode) {
    case kRcSendFirst:
      return {opcode, Message::kSend, Place::kFirst};
    case kRcSendMiddle:
      return {opcode, Message::kSend, Place::kMiddle};
    case kRcSendLast:
    case kRcSendLastImm:
    case kRcSendLastInv:
      return {opcode, Message::kSend, Place::kLast};
    case kRcWriteFirst:
      return {opcode, Message::kWrite, Place::kFirst};
    case kRcWriteMiddle:
      return {opcode, Message::kWrite, Place::kMiddle};
    case kRcWriteLast:
    case kRcWriteLastImm:
      return {opcode, Message::kWrite, Place::kLast};
    default:
      return {opcode, Message::kNone, Place::kOnly};
  }
}

bool is_legal(const Row& next, Message before) {
  const bool begins = next.place == Place::kFirst || next.place == Place::kOnly;
  return begins ? before == Message::kNone : before == next.kind;
}

Message after(const Row& next, Message before) {
  if (next.place == Place::kFirst) return next.kind;
  return next.place == Place::kMiddle ? before : Message::kNone;
}

/// A peer that sends any opcode next, with lengths and keys that are right.
class Peer {
 public:
  Peer() {
    for (int i = 0; i < 4; ++i) qp.post_recv(1024);
  }

  /// @param left_behind  bytes that a WRITE which starts here carries in later packets
  void send(wire::Opcode opcode, std::uint32_t left_behind) {
    const wire::OpcodeInfo& op = wire::info(opcode);
    Packet packet{.opcode = opcode, .psn = psn_, .ack_req = true};
    packet.payload = op.payload_is_mtu ? kMtu : op.has_payload ? 8 : 0;
    if (op.has_reth) packet.reth = own(qp, op.is_read_request ? 8 : packet.payload + left_behind);
    if (op.is_flush) packet.feth = wire::Feth{.placement = wire::Feth::kGlobal};
    if (op.is_atomic_request) {
      packet.atomic =
          wire::AtomicEth{.va = qp.target.addr(), .rkey = qp.target.rkey(), .swap_add = 0, .compare = 0};
    }
    if (op.has_ieth) {
      packet.ieth = qp.keys()
                        .insert({.addr = qp.target.addr(),
                                 .length = 8,
                                 .pd = RcScript::kPd,
                                 .access = access::kInvalidatable})
                        .value();
    }
    if (qp.qp().state() == QpState::kError) {
      qp.in_refused(packet, Count::kDropQpState);
    } else {
      qp.in(packet);
    }
    last_psn_ = psn_;
    if (op.is_request) ++psn_;
  }

  /// The NAK, the completions and the event of a packet that may not stand there.
  void is_refused(Message before) {
    qp.out(Nak{last_psn_, 0x61, qp.qp().responder().msn()}).is_in(QpState::kError);
    if (before == Message::kSend) {
      qp.receives(received_ + 1, WcStatus::kRemInvReqErr);  // the receive in use takes the blame
    } else {
      qp.raises(AsyncEventType::kQpReqErr).receives(received_ + 1, WcStatus::kWrFlushErr);
    }
    for (std::uint64_t i = received_ + 2; i <= 4; ++i) qp.receives(i, WcStatus::kWrFlushErr);
    qp.quiet().counted(Count::kResponderFatalNaks, 1);
  }

  /// Whatever answers a packet that may stand there; nothing of it is a NAK.
  void is_taken(const Row& taken) {
    if (taken.opcode == kRcReadRequest) {
      qp.out({kRcReadResponseOnly, last_psn_, 8});
    } else if (wire::info(taken.opcode).is_atomic_request) {
      qp.out({kRcAtomicAck, last_psn_});
    } else if (taken.opcode == kRcFlush || taken.opcode == kRcAtomicWrite) {
      qp.out({kRcReadResponseOnly, last_psn_});
    } else {
      qp.out(Ack{last_psn_, qp.qp().responder().msn()});
    }
    const wire::OpcodeInfo& op = wire::info(taken.opcode);
    const bool receives = op.ends_message && (op.is_send || op.has_imm);
    if (receives) qp.receives(++received_, WcStatus::kSuccess);
    qp.quiet().is_in(QpState::kRts).counted(Count::kResponderFatalNaks, 0);
  }

  RcScript qp{{.mtu = kMtu, .ece = ece::kMaskedAtomics, .area_bytes = 4096}};

 private:
  std::uint32_t psn_ = 0;
  std::uint32_t last_psn_ = 0;
  std::uint64_t received_ = 0;
};

/// Bytes that `following` have to carry for a WRITE: what its RETH must announce beyond its first packet.
std::uint32_t rest(std::span<const wire::Opcode> following) {
  std::uint32_t bytes = 8;  // of its last packet, whether or not it comes
  for (const wire::Opcode opcode : following) {
    if (wire::info(opcode).is_response) continue;
    if (opcode != kRcWriteMiddle) break;
    bytes += kMtu;
  }
  return bytes;
}

}  // namespace

TEST_CASE("what may not stand in a message is NAKed exactly once, for every pair of opcodes in every state",
          "[rc][fault][T8]") {
  const Message start = GENERATE(Message::kNone, Message::kSend, Message::kWrite);
  const wire::Opcode first = GENERATE(from_range(std::begin(kOpcodes), std::end(kOpcodes)));
  for (const wire::Opcode second : kOpcodes) {
    CAPTURE(start, wire::info(first).name, wire::info(second).name);
    Peer peer;
    Message message = start;
    const wire::Opcode pair[] = {first, second};
    if (start == Message::kSend) {
      peer.send(kRcSendFirst, 0);
      peer.is_taken(row(kRcSendFirst));
    } else if (start == Message::kWrite) {
      peer.send(kRcWriteFirst, rest(pair));
      peer.is_taken(row(kRcWriteFirst));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const bool was_in_error = peer.qp.qp().state() == QpState::kError;
      peer.send(pair[i], row(pair[i]).place == Place::kFirst ? rest(std::span(pair).subspan(i + 1)) : 0);
      if (was_in_error) {
        peer.qp.quiet().counted(Count::kResponderFatalNaks, 1);  // the one NAK was the last word
      } else if (wire::info(pair[i]).is_response) {
        peer.qp.quiet();  // nobody asked: it changes nothing, in any state
      } else if (is_legal(row(pair[i]), message)) {
        peer.is_taken(row(pair[i]));
        message = after(row(pair[i]), message);
      } else {
        peer.is_refused(message);
      }
    }
    peer.qp.at(1s).quiet();
  }
}
