#include "transport/uc_responder.h"

namespace uroce::transport {

/// After a gap the next message starts anew; its receive is the one that the lost message had. One that was
/// too small completes if it is of a shared queue, at whose head it would be in the way of all.
void UcResponder::on_request(const wire::PacketView& packet) noexcept {
  const wire::OpcodeInfo& op = *packet.op;
  if (packet.bth.psn != expected_psn_) {
    qp_.count(Count::kResponderOutOfSequence);
    abandon_message();
    if (!op.starts_message) return;
  } else if (op.starts_message) {
    abandon_message();  // the sender gave up the message before
  }
  expected_psn_ = packet.bth.psn + 1;
  Fault fault = check(packet, op);
  if (fault == Fault::kNone) fault = place(packet, op);
  if (fault == Fault::kReceiveKey) {  // our own fault, not the peer's
    qp_.fail_receive(fault);
    qp_.fail(fault, true);
    return;
  }
  if (fault != Fault::kNone) {
    if (fault == Fault::kRnr) qp_.count(Count::kDropNoReceive);
    if (message_ == Message::kNone && op.starts_message) qp_.count(Count::kResponderDroppedMessages);
    if (fault == Fault::kReceiveTooSmall && qp_.receives.shared() != nullptr) qp_.fail_receive(fault);
    abandon_message();
    return;
  }
  qp_.counters.add(Count::kResponderPackets);
  if (!op.ends_message) return;
  qp_.counters.add(Count::kResponderMessages);
  complete_receive(packet, op);
}

void UcResponder::abandon_message() noexcept {
  if (message_ != Message::kNone) qp_.count(Count::kResponderDroppedMessages);
  message_ = Message::kNone;
  qp_.receives.put_back();
}

}  // namespace uroce::transport
