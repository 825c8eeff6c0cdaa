/// Writes one packet into room lent by the port.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "base/copy.h"
#include "transport/context.h"
#include "wire/bth.h"
#include "wire/crc32.h"
#include "wire/icrc.h"
#include "wire/opcode.h"
#include "wire/xrceth.h"

namespace uroce::transport {

/// A packet under construction: claim, extension headers, payload, send.
///
/// The ICRC of a long one is computed while its payload is copied, and its headers are built aside for that:
/// reading back what was just written to a link's memory waits for the other side to give up the cache lines.
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
    is_fused_ = payload_len >= kFused && wire::copies_with_crc32();
    std::byte* const headers_at = is_fused_ ? aside_.data() : frame_;
    std::byte* at = head.emit_head(headers_at, roce_len);
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
    payload_ = frame_ + head.overhead() + headers;
    payload_len_ = payload_len;
    pad_ = pad;
    aside_left_ = kCacheLine - std::bit_cast<std::uintptr_t>(payload_) % kCacheLine;
    return true;
  }

  /// Writes the next extension header.
  template <typename Header>
  void put(const Header& header) noexcept {
    header.emit(std::span<std::byte, Header::kSize>{next_, Header::kSize});
    next_ += Header::kSize;
  }

  [[nodiscard]] std::uint32_t payload_len() const noexcept { return payload_len_; }

  /// Copies the next bytes of the payload, after the last header.
  void append(const std::byte* from, std::size_t size) noexcept {
    if (is_fused_) return append_fused({from, size});
    copy_payload(payload_, from, size);
    payload_ += size;
  }

  /// Adds pad and ICRC and hands the frame to the port. All of the payload was appended.
  void send(const QpContext& qp, TxContext& tx) noexcept {
    is_fused_ ? seal_fused() : seal();
    sink_.tx_commit();
    --tx.budget;
    qp.counters.add(Count::kTxRoce);
    if (qp.congestion != nullptr) [[unlikely]]
      qp.congestion->rate.on_sent(frame_len_, tx.now);
  }

 private:
  static constexpr std::array<std::byte, 3> kZeros{};
  static constexpr std::size_t kCacheLine = 64;
  static constexpr std::uint32_t kFused = 512;  ///< from this payload on, bytes
  /// Bytes aside: at most 106 of headers (VLAN, IPv6, UDP, BTH, XRCETH, RETH, ImmDt), and a cache line.
  static constexpr std::size_t kAside = 192;

  /// The first bytes stay beside the headers up to the end of a cache line, so that whole lines follow.
  void append_fused(std::span<const std::byte> bytes) noexcept {
    if (aside_left_ > 0) {
      const std::size_t taken = std::min(bytes.size(), aside_left_);
      std::memcpy(next_, bytes.data(), taken);
      next_ += taken;
      payload_ += taken;
      aside_left_ -= taken;
      if (aside_left_ == 0) icrc_ = head_->icrc_of_first(aside_.data(), aside_len());
      bytes = bytes.subspan(taken);
    }
    if (bytes.empty()) return;
    icrc_ = wire::copy_crc32(icrc_, payload_, bytes);
    payload_ += bytes.size();
  }
  void seal() noexcept {
    if (pad_ != 0) std::memset(payload_, 0, pad_);
    head_->seal(frame_, frame_len_);
  }
  void seal_fused() noexcept {
    if (pad_ != 0) append_fused(std::span{kZeros}.first(pad_));
    wire::store_icrc(std::span<std::byte, wire::kIcrcSize>{payload_, wire::kIcrcSize}, icrc_);
    std::memcpy(frame_, aside_.data(), aside_len());
  }
  [[nodiscard]] std::size_t aside_len() const noexcept {
    return static_cast<std::size_t>(next_ - aside_.data());
  }

  port::FrameSink& sink_;
  const wire::FrameTemplate* head_ = nullptr;
  std::byte* frame_ = nullptr;
  std::byte* next_ = nullptr;     // header, and what else is built aside
  std::byte* payload_ = nullptr;  // the next of it
  std::uint32_t frame_len_ = 0;
  std::uint32_t payload_len_ = 0;
  std::uint32_t pad_ = 0;
  std::uint32_t icrc_ = 0;  // of what is written, if fused
  bool is_fused_ = false;
  std::size_t aside_left_ = 0;  // bytes of the payload
  std::array<std::byte, kAside> aside_;
};

}  // namespace uroce::transport
