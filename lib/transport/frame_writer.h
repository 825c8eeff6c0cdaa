/// Writes one packet into room lent by the port.
#pragma once

#include <cstring>
#include <span>

#include "transport/context.h"
#include "wire/bth.h"
#include "wire/opcode.h"
#include "wire/xrceth.h"

namespace uroce::transport {

/// A packet under construction: claim, extension headers, payload, send.
class FrameWriter {
 public:
  explicit FrameWriter(port::FrameSink& sink) noexcept : sink_(sink) {}

  /// Claims room and writes everything up to the BTH.
  /// @return false if the port has no room now; nothing has happened then.
  [[nodiscard]] bool begin(const QpContext& qp, TxContext& tx, wire::Opcode opcode, Psn psn,
                           std::uint32_t payload_len, bool ack_req = false, bool solicited = false) noexcept {
    const auto spoken = wire::Opcode{static_cast<std::uint8_t>(raw(opcode) | qp.opcode_base)};
    if (!begin(qp.head, qp.attr.dest_qpn, tx, spoken, psn, payload_len, ack_req, solicited)) return false;
    if (qp.opcode_base != 0 && wire::info(spoken).has_xrceth()) [[unlikely]]
      put(wire::Xrceth{.srq = qp.remote_srq});
    return true;
  }
  /// Likewise, to somebody else than the QP's peer.
  [[nodiscard]] bool begin(const wire::FrameTemplate& head, Qpn dest, TxContext& tx, wire::Opcode opcode,
                           Psn psn, std::uint32_t payload_len, bool ack_req, bool solicited) noexcept {
    head_ = &head;
    const std::uint32_t headers = wire::info(opcode).header_bytes;
    const std::uint32_t pad = (4 - (payload_len & 3)) & 3;
    const std::uint32_t roce_len = headers + payload_len + pad + 4;
    frame_len_ = head.overhead() + roce_len;
    frame_ = sink_.tx_claim(frame_len_);
    if (frame_ == nullptr) {
      tx.no_room = true;
      return false;
    }
    std::byte* at = head.emit_head(frame_, roce_len);
    const wire::Bth bth{.opcode = opcode,
                        .solicited = solicited,
                        .mig_req = opcode != wire::Opcode::kCnp,
                        .pad = static_cast<std::uint8_t>(pad),
                        .pkey = kDefaultPkey,
                        .becn = opcode == wire::Opcode::kCnp,
                        .dest_qpn = dest,
                        .ack_req = ack_req,
                        .psn = psn};
    bth.emit(std::span<std::byte, wire::Bth::kSize>{at, wire::Bth::kSize});
    next_ = at + wire::Bth::kSize;
    payload_ = at + headers;
    payload_len_ = payload_len;
    pad_ = pad;
    return true;
  }

  /// Writes the next extension header.
  template <typename Header>
  void put(const Header& header) noexcept {
    header.emit(std::span<std::byte, Header::kSize>{next_, Header::kSize});
    next_ += Header::kSize;
  }

  [[nodiscard]] std::span<std::byte> payload() const noexcept { return {payload_, payload_len_}; }

  /// Adds pad and ICRC and hands the frame to the port.
  void send(const QpContext& qp, TxContext& tx) noexcept {
    if (pad_ != 0) std::memset(payload_ + payload_len_, 0, pad_);
    head_->seal(frame_, frame_len_);
    sink_.tx_commit();
    --tx.budget;
    qp.counters.add(Count::kTxRoce);
    if (qp.congestion != nullptr) [[unlikely]]
      qp.congestion->rate.on_sent(frame_len_, tx.now);
  }

 private:
  port::FrameSink& sink_;
  const wire::FrameTemplate* head_ = nullptr;
  std::byte* frame_ = nullptr;
  std::byte* next_ = nullptr;
  std::byte* payload_ = nullptr;
  std::uint32_t frame_len_ = 0;
  std::uint32_t payload_len_ = 0;
  std::uint32_t pad_ = 0;
};

}  // namespace uroce::transport
