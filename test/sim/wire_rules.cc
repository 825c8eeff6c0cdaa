#include "sim/wire_rules.h"

#include <algorithm>

#include "sim/bank.h"
#include "wire/describe.h"

namespace uroce::sim {

WireRules::WireRules(Psn first_psn, std::uint32_t mtu, std::uint32_t max_unacked, bool is_selective)
    : mtu_(mtu),
      max_unacked_(max_unacked),
      is_selective_(is_selective),
      next_new_(first_psn),
      acked_(first_psn) {}

void WireRules::on_request(const wire::PacketView& packet) {
  const Psn psn = packet.bth.psn;
  require(distance(psn, next_new_) <= 0, "a request skips a PSN: " + wire::describe(packet));
  // The requester may not know of the newest acknowledgements yet, so this is a weak bound, but a bound.
  require(distance(psn, acked_) < static_cast<std::int32_t>(max_unacked_),
          "a request is beyond the window: " + wire::describe(packet));
  std::uint32_t packets = 1;
  if (packet.op->is_read_request) packets = std::max(1U, (packet.reth().length + mtu_ - 1) / mtu_);
  require(packets <= std::max(1U, max_unacked_ / 2), "a READ asks for too much: " + wire::describe(packet));
  const Psn end = psn + packets;
  if (before(next_new_, end)) next_new_ = end;
}

void WireRules::on_response(const wire::PacketView& packet) {
  const Psn psn = packet.bth.psn;
  const bool is_nak = packet.op->is_ack && packet.aeth().syndrome >= 0x20;
  const Psn limit = is_nak ? next_new_ : next_new_ - 1;
  require(distance(psn, limit) <= 0, "a response to what was never sent: " + wire::describe(packet));
  if (packet.op->is_ack && !is_nak) {
    require(!last_ack_ || !before(psn, *last_ack_), "an ACK goes backwards: " + wire::describe(packet));
    last_ack_ = psn;
  }
  const Psn acknowledged = is_nak ? psn : psn + 1;
  if (before(acked_, acknowledged)) acked_ = acknowledged;
  if (packet.op->is_ack && packet.aeth().syndrome == wire::syndrome::kNakPsnSequence) {
    require(is_selective_ || !packet.op->is_selective_nak(), "a selective NAK to who cannot read it");
    require(is_selective_ || !last_nak_ || before(*last_nak_, psn),
            "a second NAK for the same gap: " + wire::describe(packet));
    last_nak_ = psn;
  }
}

void WireRules::on_cnp(const wire::PacketView& packet, std::uint64_t now_ns, std::uint64_t gap_ns) {
  require(packet.bth.becn && !packet.bth.fecn && !packet.bth.ack_req && packet.bth.psn == Psn{} &&
              packet.ecn() == 0,
          "a CNP with other fields: " + wire::describe(packet));
  require(!last_cnp_ns_ || now_ns >= *last_cnp_ns_ + gap_ns, "a CNP too soon after the one before");
  last_cnp_ns_ = now_ns;
}

}  // namespace uroce::sim
