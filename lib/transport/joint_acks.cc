#include "transport/joint_acks.h"

#include <algorithm>

#include "transport/frame_writer.h"

namespace uroce::transport {

using wire::AckEth;
using wire::Opcode;

bool JointAcks::add(const QpContext& qp, Psn psn, const wire::Aeth& aeth, TxContext& tx) noexcept {
  const bool fits = path_ == qp.path && opcode_base_ == qp.opcode_base && count_ < most_;
  if (!empty() && !fits && !send(tx)) return false;
  const AckEth one{.dest_qpn = qp.dest_qpn, .psn = psn, .aeth = aeth};
  if (empty()) {
    path_ = qp.path;
    counters_ = &qp.counters;
    first_ = one;
    opcode_base_ = qp.opcode_base;
    udp_src_port_ = qp.udp_src_port;
    most_ = std::min(kMost, 1 + qp.mtu / kSize);
  } else {
    wire::emit_at(others_.data() + (count_ - 1) * kSize, one);
  }
  ++count_;
  --tx.budget;
  return true;
}

bool JointAcks::send(TxContext& tx) noexcept {
  if (empty()) return true;
  const bool is_joint = count_ > 1;
  const Opcode rc = is_joint ? Opcode::kRcJointAck : Opcode::kRcAck;
  const wire::Bth bth{.opcode = Opcode{static_cast<std::uint8_t>(raw(rc) | opcode_base_)},
                      .pkey = kDefaultPkey,
                      .dest_qpn = first_.dest_qpn,
                      .psn = first_.psn};
  const std::uint32_t payload = (count_ - 1) * kSize;
  FrameWriter frame(*path_->sink);
  if (!frame.begin(path_->head, udp_src_port_, bth, payload, tx)) return false;
  frame.put(first_.aeth);
  if (is_joint) frame.append(others_.data(), payload);
  frame.send(*counters_);
  if (is_joint) counters_->add(Count::kResponderJointAcks, count_);
  count_ = 0;
  return true;
}

}  // namespace uroce::transport
