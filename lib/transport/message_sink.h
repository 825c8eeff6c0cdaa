/// Where the SENDs and WRITEs of connected transports end: memory and receive queue.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "mem/sge_cursor.h"
#include "transport/context.h"
#include "wire/packet.h"

namespace uroce::transport {

/// Whether an atomic operation may be done there.
[[nodiscard]] inline bool is_word_aligned(const void* memory) noexcept {
  return std::bit_cast<std::uintptr_t>(memory) % sizeof(std::uint64_t) == 0;
}

/// How far a message of several packets has come.
struct PartialMessage {
  mem::SgeCursor cursor;  ///< behind the last byte of a SEND

  std::uint64_t write_va = 0;    ///< where a WRITE's next byte goes
  std::uint32_t write_left = 0;  ///< bytes of it still to come
  std::uint32_t write_length = 0;
  std::uint32_t write_rkey = 0;
};

/// The message that is coming in, and what is true of its packets whether somebody acknowledges them or not.
/// A packet is judged by ordered checks that change nothing, and then placed whole. IBA 9.7.4, 9.8.2.
///
/// Threads: loop.
class MessageSink {
 protected:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  /// @param partial  whoever has this as a base keeps it apart from what a message of one packet touches
  MessageSink(QpContext& qp, PartialMessage& partial) noexcept : qp_(qp), partial_(partial) {}

  /// Forgets the message and all that is posted.
  void reset_message() noexcept;
  /// The checks of a request, in order; the first fault counts.
  [[nodiscard]] Fault check(const wire::PacketView& packet) const noexcept;
  /// Puts the payload of a checked SEND or WRITE packet where it belongs, and notes how far the message is.
  [[nodiscard]] Fault place(const wire::PacketView& packet) noexcept {
    return packet.op->is_send ? place_send(packet) : place_write(packet);
  }
  /// The message has come to its end: completes the receive that it takes, if any.
  void complete_receive(const wire::PacketView& packet) noexcept;
  /// The receive in use completes with `fault`.
  void fail_receive(Fault fault) noexcept;
  /// Completes every posted receive with WR_FLUSH_ERR.
  void flush_receives() noexcept;

  /// What a FLUSH is to write back, if key, rights and range allow.
  [[nodiscard]] std::span<const std::byte> flushed_range(const wire::PacketView& packet,
                                                         mem::KeyFault& fault) const noexcept;

  [[nodiscard]] bool has_receive() const noexcept { return qp_.receives.available(); }

  QpContext& qp_;

 private:
  [[nodiscard]] Fault check_opcode_sequence(const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_extension() const noexcept;
  [[nodiscard]] Fault check_access(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_resources(const wire::OpcodeInfo& op) const noexcept;
  [[nodiscard]] Fault check_length(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_write_length(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_remote_key(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault check_flush_key(const wire::PacketView& packet) const noexcept;
  [[nodiscard]] Fault place_send(const wire::PacketView& packet) noexcept;
  [[nodiscard]] Fault place_write(const wire::PacketView& packet) noexcept;
  [[nodiscard]] Fault write(std::uint64_t va, std::uint32_t rkey, std::span<const std::byte> in,
                            std::uint32_t whole) noexcept;

  PartialMessage& partial_;

 protected:
  Message message_ = Message::kNone;
};

}  // namespace uroce::transport
