/// Messages over one reliable connection: the easy way to send and receive many.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "uroce/mr.h"
#include "uroce/qp.h"

namespace uroce {

struct MessageChannelAttr {
  std::uint32_t message_bytes =
      2048;                      ///< of the largest message that is received, from 4; sent: max_message()
  std::uint32_t sends = 256;     ///< messages that may be under way
  std::uint32_t receives = 256;  ///< messages that may have arrived and not been released
  unsigned loop = 0;             ///< which of the device's loops it belongs to

  /// What it takes of the CQ of its arrivals.
  [[nodiscard]] constexpr std::uint32_t completions() const noexcept { return receives + 2; }
};

/// A message that has arrived, where it has arrived.
struct Message {
  std::span<const std::byte> data{};
  std::uint64_t number = 0;  ///< from 0, as they were sent
  std::uint32_t slot = 0;    ///< of the channel
};

/// What became of a message.
enum class Sent : std::uint8_t {
  kOk,
  kNoCredit,  ///< the peer has no room until it releases messages: poll, and try again
  kNoSlot,    ///< MessageChannelAttr::sends are under way: poll, and try again
  kTooLong,   ///< longer than max_message(), or than what was claimed
  kEnded,     ///< see MessageChannel::end_text()
  kAnswered,  ///< RpcServer only: the request has been answered or released already; nothing was done
};

[[nodiscard]] std::string_view to_string(Sent sent) noexcept;

/// What a channel has done so far.
struct MessageCounts {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t no_credit = 0;        ///< times that Sent::kNoCredit was the answer
  std::uint64_t no_slot = 0;          ///< likewise
  std::uint64_t credit_messages = 0;  ///< that this end sent since it had no message to tell credits with
};

/// An RC QP with its completion queues and memory, over which messages go both ways: in order, each once,
/// written and read where they are sent from and arrive. Neither end can run the other out of receives: each
/// message also tells how many more its sender has room for. To be had at both ends.
///
///     claim() a place, write the message, commit() it;  poll() for messages, read them, release() them
///
/// What is told stands in the immediate data of SENDs: in bits 0 to 30 how many messages the other end may
/// have sent in all; bit 31 is set in a SEND that is no message. The first one of each end is none; it
/// carries message_bytes as 32 bits, the most significant byte first. A WRITE with immediate data ends the
/// channel that it comes to.
///
/// Threads: one at a time. Lifetime: the Pd and its Device outlive it; its Connection ends before it.
class MessageChannel {
 public:
  /// @return kInvalid if something of `attr` is none, or exceeds Device::limits(), with a few of its work
  ///   requests for credits; kNoMemory, kNoHugepages.
  static Result<MessageChannel> create(Pd& pd, Device& device, const MessageChannelAttr& attr);
  static Result<MessageChannel> create(Pd& pd, Device& device) { return create(pd, device, {}); }
  /// With arrivals in a CQ of the application's, which other channels may share: who polls it gives each
  /// completion to take() of the channel whose QP it names.
  /// @param arrivals  of loop `attr.loop`, with room for `attr.completions()`; outlives the channel
  static Result<MessageChannel> create(Pd& pd, Device& device, const MessageChannelAttr& attr, Cq& arrivals);
  MessageChannel(MessageChannel&&) noexcept;
  MessageChannel& operator=(MessageChannel&&) noexcept;
  ~MessageChannel();

  /// In Init, with its receives posted: to be connected by Connection::connect(), ConnectionRequest::accept()
  /// or Qp::connect(), and not used otherwise. Messages can be sent once both ends have polled.
  [[nodiscard]] Qp& qp() noexcept;

  /// A place for the next message, in registered memory. Claiming again without commit() gives the same one.
  /// @param to  of that size if the answer is kOk
  [[nodiscard]] Sent claim(std::size_t bytes, std::span<std::byte>& to) noexcept;
  /// Sends the first `bytes` of what was claimed last.
  /// @return kOk; kTooLong: more than was claimed, as anything is that was not; kEnded; kNoSlot: credits that
  ///   are under way have taken the slots, what was claimed stays so.
  [[nodiscard]] Sent commit(std::size_t bytes) noexcept;
  /// The same with a copy.
  [[nodiscard]] Sent send(std::span<const std::byte> message) noexcept;

  /// Takes messages that have arrived, in order. They stay where they are until released. Also makes progress
  /// as Cq::poll() does, and hears of credits: to be called again and again, also by who only sends, with
  /// room in `out`.
  /// @return how many entries of `out` were filled.
  [[nodiscard]] std::size_t poll(std::span<Message> out) noexcept;
  /// What poll() does with each completion, where arrivals() is shared; poll() itself must not be used then.
  /// @return whether `message` was filled.
  [[nodiscard]] bool take(const Wc& wc, Message& message) noexcept;
  /// Tells the peer what it may send, if that is due: to be called once the QP is connected, where arrivals()
  /// is shared. Otherwise poll() does so.
  void tell_credits() noexcept;
  /// Lets the peer send more. In any order, each message once.
  /// @return false if it has been released already, or was none of this channel; nothing was done.
  bool release(const Message& message) noexcept;
  /// Whether the message has not been released yet.
  [[nodiscard]] bool has(const Message& message) const noexcept;
  /// Blocks until poll() may have something to do, or the time is over. That there are slots again, after
  /// Sent::kNoSlot, does not end it.
  /// @return false when the time was over.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);
  /// For poll(2) and epoll, with Cq::arm() before and Cq::clear_event() after.
  [[nodiscard]] Cq& arrivals() noexcept;

  /// Waits until all that was sent is in the peer's memory. The peer's QP must allow remote WRITEs, as those
  /// of a Connection do.
  /// @param timeout  0: only looks
  /// @return kTimeout; kPeer if the connection has ended.
  Status drain(std::chrono::nanoseconds timeout);

  /// Bytes of the largest message that both ends take; 0 until the peer has told its own.
  [[nodiscard]] std::uint32_t max_message() const noexcept;
  /// Messages that the peer has room for, as far as poll() has heard.
  [[nodiscard]] std::uint32_t credits() const noexcept;
  [[nodiscard]] const MessageCounts& counts() const noexcept;
  [[nodiscard]] bool has_ended() const noexcept;
  /// Why, in one sentence; empty if it has not. What had arrived before can still be polled.
  [[nodiscard]] std::string end_text() const;

 private:
  struct Arrivals;
  struct Impl;
  static Result<MessageChannel> make(Pd& pd, Device& device, const MessageChannelAttr& attr,
                                     Arrivals arrivals);
  explicit MessageChannel(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
