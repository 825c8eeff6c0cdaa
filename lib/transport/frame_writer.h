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
/// A short one is written at once, where the CPU allows it: what is written is not read again, so that
/// nothing waits until the other side has given up the cache lines of the packets before.
///
/// The ICRC of a long one is computed while the payload is copied, and its headers are built aside: to read
/// back what was just written to the link's memory would be to wait, too. Unless the cache lines come fast
/// (FrameSink::takes_pieces), all of it is built aside and moved in one piece, which is faster there than
/// single stores.
class FrameWriter {
 public:
  explicit FrameWriter(port::FrameSink& sink) noexcept : sink_(sink) {}

  /// Claims room and writes everything up to the BTH.
  /// @return false if the port has no room now; nothing has happened then.
  [[nodiscard]] bool begin(const QpContext& qp, TxContext& tx, wire::Opcode opcode, Psn psn,
                           std::uint32_t payload_len, bool ack_req = false, bool solicited = false) noexcept {
    if (qp.opcode_base != 0) [[unlikely]]
      return begin_xrc(qp, tx, opcode, psn, payload_len, ack_req, solicited);
    return begin(qp.path->head, qp.udp_src_port, to_peer(qp, opcode, psn, ack_req, solicited), payload_len,
                 tx);
  }
  /// Likewise, to somebody else than the QP's peer.
  /// @param bth  all but the pad count
  [[nodiscard]] bool begin(const wire::FrameTemplate& head, const wire::Bth& bth, std::uint32_t payload_len,
                           TxContext& tx) noexcept {
    return begin(head, head.source_port(), bth, payload_len, tx);
  }
  [[nodiscard, gnu::always_inline]] bool begin(const wire::FrameTemplate& head, std::uint16_t source_port,
                                               wire::Bth bth, std::uint32_t payload_len,
                                               TxContext& tx) noexcept {
    head_ = &head;
    parts_.header_bytes = wire::info(bth.opcode).header_bytes;
    parts_.payload_bytes = payload_len;
    parts_.udp_source_port = source_port;
    bth.pad = wire::pad_for(payload_len);
    parts_.bth = bth.words();  // before the call: fields that are kept apart would be read wider than written
    frame_len_ = head.frame_len(parts_.header_bytes, payload_len, bth.pad);
    is_at_once_ = payload_len < kLong &&
                  parts_.header_bytes <= wire::Bth::kSize + wire::FrameParts::kMostExtension &&
                  wire::computes_crc32_of_parts();
    frame_ =
        is_at_once_ && sink_.lends_lines() ? sink_.tx_claim_lines(frame_len_) : sink_.tx_claim(frame_len_);
    if (frame_ == nullptr) {
      tx.no_room = true;
      return false;
    }
    if (is_at_once_) [[likely]] {
      begin_parts();
    } else {
      begin_pieces();
    }
    return true;
  }

  /// Writes the next extension header.
  template <typename Header>
  void put(const Header& header) noexcept {
    if (is_at_once_) [[likely]] {
      add(header.words(), Header::kSize);
      return;
    }
    next_ = wire::emit_at(next_, header);
  }

  [[nodiscard]] std::uint32_t payload_len() const noexcept { return parts_.payload_bytes; }

  /// Copies the next bytes of the payload, after the last header.
  /// @param from  must stay as it is until send()
  void append(const std::byte* from, std::size_t size) noexcept {
    if (is_at_once_) [[likely]] {
      add_payload(from, size);
      return;
    }
    if (is_long_) {
      payload_crc_ = wire::copy_crc32(payload_crc_, payload_, {from, size});
    } else {
      copy_payload(payload_, from, size);
    }
    payload_ += size;
  }

  /// Adds pad and ICRC and hands the frame to the port. All of the payload was appended.
  void send(const QpContext& qp, TxContext& tx) noexcept {
    send_at_once(qp, tx);
    if (qp.is_controlled) [[unlikely]]
      qp.congestion->rate.on_sent(frame_len_, tx.now);
  }
  /// Likewise, of a packet that congestion control never holds back: it does not make others wait either.
  void send_at_once(const QpContext& qp, TxContext& tx) noexcept {
    send(qp.counters);
    --tx.budget;
  }
  /// Likewise, of a packet that is not in the turn of a QP.
  void send(Counters& counters) noexcept {
    if (is_at_once_) [[likely]] {
      write_at_once();
    } else {
      is_long_ ? finish_long() : seal();
    }
    sink_.tx_commit();
    counters.add(Count::kTxRoce);
  }

 private:
  static constexpr std::uint32_t kLong = wire::FrameParts::kMostPayload + 1;  ///< payload, bytes
  static constexpr std::size_t kAside =                                       ///< bytes
      wire::FrameTemplate::kMaxOverhead + wire::kMaxPayloadHeaders + bytes(PathMtu::k4096) + wire::kIcrcSize;
  static constexpr std::array<std::byte, 3> kZeros{};

  [[gnu::always_inline]] static wire::Bth to_peer(const QpContext& qp, wire::Opcode opcode, Psn psn,
                                                  bool ack_req, bool solicited) noexcept {
    return {.opcode = opcode,
            .solicited = solicited,
            .pkey = kDefaultPkey,
            .dest_qpn = qp.dest_qpn,
            .ack_req = ack_req,
            .psn = psn};
  }
  [[gnu::noinline]] bool begin_xrc(const QpContext& qp, TxContext& tx, wire::Opcode opcode, Psn psn,
                                   std::uint32_t payload_len, bool ack_req, bool solicited) noexcept {
    const wire::Opcode xrc{static_cast<std::uint8_t>(raw(opcode) | qp.opcode_base)};
    const wire::Bth bth = to_peer(qp, xrc, psn, ack_req, solicited);
    if (!begin(qp.path->head, qp.udp_src_port, bth, payload_len, tx)) return false;
    if (wire::info(xrc).has_xrceth()) put(wire::Xrceth{.srq = qp.remote_srq});
    return true;
  }
  void begin_parts() noexcept {
    extension_bytes_ = 0;
    gathered_ = 0;
  }
  void begin_pieces() noexcept {
    const std::uint32_t payload_len = parts_.payload_bytes;
    is_long_ = payload_len >= kLong && payload_len <= bytes(PathMtu::k4096) && wire::computes_crc32();
    is_aside_ = is_long_ && !(sink_.takes_pieces() && wire::copies_in_one_pass());
    assert(!is_long_ || frame_len_ <= kAside);
    std::byte* const at = head_->emit_head(is_long_ ? aside_.data() : frame_, frame_len_ - head_->overhead());
    head_->put_source_port(at, parts_.udp_source_port);
    wire::store_words(wire::bytes_at<wire::Bth::kSize>(at), parts_.bth);
    next_ = at + wire::Bth::kSize;
    before_payload_ = head_->overhead() + parts_.header_bytes;
    payload_ = (is_aside_ ? aside_.data() : frame_) + before_payload_;
    payload_crc_ = 0;
  }

  template <std::size_t kWords>
  void add(const std::array<std::uint64_t, kWords>& words, std::uint32_t bytes) noexcept {
    if constexpr (kWords <= wire::FrameParts::kMostExtension / 8) {
      auto& all = parts_.extension;
      if (extension_bytes_ == 0) [[likely]] {
        for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i < kWords ? words[i] : 0;
        extension_bytes_ = bytes;
        return;
      }
      const std::uint32_t first = extension_bytes_ / 8;
      const unsigned shift = 8 * (extension_bytes_ % 8);
      for (std::uint32_t i = 0; i < kWords; ++i) {
        all[first + i] |= words[i] << shift;
        if (shift != 0 && first + i + 1 < all.size()) all[first + i + 1] |= words[i] >> (64 - shift);
      }
      extension_bytes_ += bytes;
    }
  }
  void add_payload(const std::byte* from, std::size_t size) noexcept {
    if (size == parts_.payload_bytes) [[likely]] {
      parts_.payload = from;
      return;
    }
    if (size == 0) return;
    std::memcpy(aside_.data() + gathered_, from, size);
    gathered_ += size;
    parts_.payload = aside_.data();
  }

  void write_at_once() noexcept {
    if (sink_.lends_lines() && wire::computes_wide_crc32()) {
      head_->write_lines(frame_, parts_);
    } else {
      head_->write_pieces(frame_, parts_);
    }
  }
  void seal() noexcept {
    const std::uint32_t pad = wire::pad_for(parts_.payload_bytes);
    if (pad != 0) std::memset(payload_, 0, pad);
    head_->seal(frame_, frame_len_);
  }
  /// Only now, when the stores of the payload have pushed those of the headers out of the store queue, are
  /// the headers read.
  void finish_long() noexcept {
    const std::uint32_t pad = wire::pad_for(parts_.payload_bytes);
    payload_crc_ = wire::copy_crc32(payload_crc_, payload_, std::span{kZeros}.first(pad));
    const std::uint32_t icrc = wire::join_crc32(head_->icrc_of_first(aside_.data(), before_payload_),
                                                payload_crc_, parts_.payload_bytes + pad);
    wire::store_icrc(std::span<std::byte, wire::kIcrcSize>{payload_ + pad, wire::kIcrcSize}, icrc);
    std::memcpy(frame_, aside_.data(), is_aside_ ? frame_len_ : before_payload_);
  }

  port::FrameSink& sink_;
  // Set by begin(), or by what it calls; of the parts, the extension by the first put().
  const wire::FrameTemplate* head_;
  std::byte* frame_;
  std::uint32_t frame_len_;
  wire::FrameParts parts_;
  bool is_at_once_;  // from parts_
  // Of such a one:
  std::uint32_t extension_bytes_;  // in parts_
  std::size_t gathered_;           // of its payload, if that comes in pieces, in aside_
  // Of others:
  bool is_long_;
  bool is_aside_;                 // all of it, else a long one's headers only
  std::byte* next_;               // header
  std::byte* payload_;            // the next of it
  std::uint32_t before_payload_;  // bytes
  std::uint32_t payload_crc_;     // of a long one
  std::array<std::byte, kAside> aside_;
};

}  // namespace uroce::transport
