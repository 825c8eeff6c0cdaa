/// Writes one packet into room lent by the port.
#pragma once

#include <array>
#include <cassert>
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
/// The ICRC of a long one is computed while the payload is copied, and its headers are built aside: to read
/// back what was just written to the link's memory would be to wait until the other side has given up the
/// cache lines. Unless these come fast (FrameSink::takes_pieces), all of it is built aside and moved in one
/// piece, which is faster there than single stores.
class FrameWriter {
 public:
  explicit FrameWriter(port::FrameSink& sink) noexcept : sink_(sink) {}

  /// Claims room and writes everything up to the BTH.
  /// @return false if the port has no room now; nothing has happened then.
  [[nodiscard]] bool begin(const QpContext& qp, TxContext& tx, wire::Opcode opcode, Psn psn,
                           std::uint32_t payload_len, bool ack_req = false, bool solicited = false) noexcept {
    const auto spoken = wire::Opcode{static_cast<std::uint8_t>(raw(opcode) | qp.opcode_base)};
    if (!begin(qp.path->head, qp.dest_qpn, tx, spoken, psn, payload_len, ack_req, solicited)) return false;
    qp.path->head.put_source_port(next_ - wire::Bth::kSize, qp.udp_src_port);
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
    is_long_ = payload_len >= kLong && payload_len <= bytes(PathMtu::k4096) && wire::computes_crc32();
    is_aside_ = is_long_ && !(sink_.takes_pieces() && wire::copies_in_one_pass());
    assert(!is_long_ || frame_len_ <= kAside);
    std::byte* at = head.emit_head(is_long_ ? aside_.data() : frame_, roce_len);
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
    payload_len_ = payload_len;
    pad_ = pad;
    before_payload_ = head.overhead() + headers;
    payload_ = (is_aside_ ? aside_.data() : frame_) + before_payload_;
    payload_crc_ = 0;
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
    if (is_long_) {
      payload_crc_ = wire::copy_crc32(payload_crc_, payload_, {from, size});
    } else {
      copy_payload(payload_, from, size);
    }
    payload_ += size;
  }

  /// Adds pad and ICRC and hands the frame to the port. All of the payload was appended.
  void send(const QpContext& qp, TxContext& tx) noexcept {
    is_long_ ? finish_long() : seal();
    sink_.tx_commit();
    --tx.budget;
    qp.counters.add(Count::kTxRoce);
    if (qp.congestion != nullptr) [[unlikely]]
      qp.congestion->rate.on_sent(frame_len_, tx.now);
  }

 private:
  static constexpr std::uint32_t kLong = 512;  ///< payload, bytes
  static constexpr std::size_t kAside =        ///< bytes
      wire::FrameTemplate::kMaxOverhead + wire::kMaxPayloadHeaders + bytes(PathMtu::k4096) + wire::kIcrcSize;
  static constexpr std::array<std::byte, 3> kZeros{};

  void seal() noexcept {
    if (pad_ != 0) std::memset(payload_, 0, pad_);
    head_->seal(frame_, frame_len_);
  }
  /// Only now, when the stores of the payload have pushed those of the headers out of the store queue, are
  /// the headers read.
  void finish_long() noexcept {
    payload_crc_ = wire::copy_crc32(payload_crc_, payload_, std::span{kZeros}.first(pad_));
    const std::uint32_t icrc = wire::join_crc32(head_->icrc_of_first(aside_.data(), before_payload_),
                                                payload_crc_, payload_len_ + pad_);
    wire::store_icrc(std::span<std::byte, wire::kIcrcSize>{payload_ + pad_, wire::kIcrcSize}, icrc);
    std::memcpy(frame_, aside_.data(), is_aside_ ? frame_len_ : before_payload_);
  }

  port::FrameSink& sink_;
  const wire::FrameTemplate* head_ = nullptr;
  std::byte* frame_ = nullptr;
  std::byte* next_ = nullptr;     // header
  std::byte* payload_ = nullptr;  // the next of it
  std::uint32_t frame_len_ = 0;
  std::uint32_t payload_len_ = 0;
  std::uint32_t pad_ = 0;
  std::uint32_t before_payload_ = 0;  // bytes
  std::uint32_t payload_crc_ = 0;     // of a long one
  bool is_long_ = false;
  bool is_aside_ = false;  // all of it, else a long one's headers only
  std::array<std::byte, kAside> aside_;
};

}  // namespace uroce::transport
