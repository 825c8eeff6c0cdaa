#include "uroce/message_channel.h"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/bounded_time.h"
#include "base/endian.h"

namespace uroce {
namespace {

constexpr std::uint32_t kCreditMask = 0x7fff'ffff;
constexpr std::uint32_t kNoMessage = 0x8000'0000;  // in the immediate data
/// SENDs that are no message and may lie at an end that does not poll. One is due when half of the receives
/// have been released since credits were told last, and only `receives` can be before this end is heard
/// again.
constexpr std::uint32_t kCreditReceives = 2;
static_assert(MessageChannelAttr{.receives = 5}.completions() == 5 + kCreditReceives);
constexpr std::uint32_t kUncounted = 8;  // send slots beside those of messages: for credits and drain()
constexpr std::size_t kHelloBytes = 4;
constexpr std::uint64_t kNoNumber = ~std::uint64_t{0};  // of a message

/// The 31 bits of a count that grew by less than 2^31 since `last`, as the whole count.
constexpr std::uint64_t count_of(std::uint32_t word, std::uint64_t last) noexcept {
  return last + ((word - last) & kCreditMask);
}

static_assert(count_of(5, 5) == 5);
static_assert(count_of(7, 5) == 7);
static_assert(count_of(kNoMessage | 7, 5) == 7);
static_assert(count_of(2, 0x7fff'ffff) == 0x8000'0002);
static_assert(count_of(2, 0x1'7fff'fffe) == 0x1'8000'0002);

std::uint32_t stride_of(std::uint32_t message_bytes) noexcept {
  constexpr std::uint32_t kLine = 64;
  return std::max((message_bytes + kLine - 1) / kLine, 1U) * kLine;
}

}  // namespace

/// Where completions of receives come.
struct MessageChannel::Arrivals {
  std::optional<Cq> own;
  Cq* shared;

  [[nodiscard]] Cq& cq() noexcept { return own.has_value() ? *own : *shared; }
};

struct MessageChannel::Impl {
  Impl(const MessageChannelAttr& attr, Mr mr, Cq sends, Arrivals arrivals, Qp pair)
      : cfg(attr),
        stride(stride_of(attr.message_bytes)),
        signal_every(std::max(attr.sends / 4, 1U)),
        told_every((attr.receives + 1) / 2),
        memory(std::move(mr)),
        send_cq(std::move(sends)),
        recv(std::move(arrivals)),
        qp(std::move(pair)),
        numbers(attr.completions(), kNoNumber) {
    const auto hello = memory.memory().subspan(hello_at()).first<kHelloBytes>();
    store_be<0, kHelloBytes>(hello, attr.message_bytes);
  }

  [[nodiscard]] std::size_t receive_at(std::uint32_t slot) const noexcept {
    return std::size_t{slot} * stride;
  }
  /// The first SEND, which is no message.
  [[nodiscard]] std::size_t hello_at() const noexcept { return receive_at(cfg.completions()); }
  /// The next message.
  [[nodiscard]] std::size_t send_at() const noexcept { return receive_at(cfg.completions() + 1 + send_slot); }
  [[nodiscard]] std::uint64_t granted() const noexcept { return released + cfg.receives; }

  [[nodiscard]] bool post_receive(std::uint32_t slot) noexcept {
    const Sge sge = memory.sge(receive_at(slot), cfg.message_bytes);
    return qp.post_recv({.wr_id = slot, .sges = {&sge, 1}});
  }
  /// What this end grants goes with each SEND.
  [[nodiscard]] bool post(SendWr wr, std::uint32_t kind) noexcept {
    wr.opcode = WrOpcode::kSendWithImm;
    wr.imm_data = network_order((static_cast<std::uint32_t>(granted()) & kCreditMask) | kind);
    if (!qp.post_send(wr)) return false;
    told = granted();
    return true;
  }

  void count_sent(bool is_signaled) noexcept;
  void tell_credits() noexcept;
  void take_sends() noexcept;
  void fail(const Wc& wc) noexcept;
  [[nodiscard]] bool take_arrival(const Wc& wc, Message& message) noexcept;

  MessageChannelAttr cfg;
  std::uint32_t stride;
  std::uint32_t signal_every;
  std::uint32_t told_every;
  Mr memory;
  Cq send_cq;
  Arrivals recv;
  Qp qp;
  std::vector<std::uint64_t> numbers;  // of messages that the application has, by slot

  std::uint64_t done = 0;      // messages that have arrived, as far as it is known
  std::uint64_t limit = 0;     // messages that may be sent in all
  std::uint64_t released = 0;  // messages whose receives are posted again
  std::uint64_t told = 0;      // granted() when the peer was told last; 0: never
  std::uint64_t drained = 0;   // messages before the last WRITE of drain()
  std::uint32_t send_slot = 0;
  std::uint32_t unsignaled = 0;        // messages since the last one whose completion is asked for
  std::optional<std::size_t> claimed;  // bytes
  std::uint32_t peer_bytes = 0;
  bool ended = false;
  std::uint8_t vendor_err = 0;
  std::string_view breach;  // why, if the peer does what no channel does
  MessageCounts counts;
  std::array<Wc, 16> wcs;  // of whoever polls; made once
};

void MessageChannel::Impl::count_sent(bool is_signaled) noexcept {
  ++counts.sent;
  claimed.reset();
  unsignaled = is_signaled ? 0 : unsignaled + 1;
  if (++send_slot == cfg.sends) send_slot = 0;
}

/// The first time also how long messages may be.
void MessageChannel::Impl::tell_credits() noexcept {
  const bool is_first = told == 0;
  if (ended || (!is_first && granted() - told < told_every)) return;
  const Sge hello = memory.sge(hello_at(), kHelloBytes);
  const SendWr wr{.sges = {&hello, is_first ? 1U : 0U}};
  if (post(wr, kNoMessage)) ++counts.credit_messages;  // else when there is room, or a connection
}

void MessageChannel::Impl::fail(const Wc& wc) noexcept {
  if (!ended || wc.status != WcStatus::kWrFlushErr) vendor_err = wc.vendor_err;
  ended = true;
}

void MessageChannel::Impl::take_sends() noexcept {
  for (std::size_t i = 0, taken = send_cq.poll(wcs); i < taken; ++i) {
    if (wcs[i].ok()) {
      done = wcs[i].wr_id;
    } else {
      fail(wcs[i]);
    }
  }
}

/// @return whether it is a message.
bool MessageChannel::Impl::take_arrival(const Wc& wc, Message& message) noexcept {
  if (!wc.ok()) {
    fail(wc);
    return false;
  }
  if (wc.opcode != WcOpcode::kRecv) {
    breach = "the peer has written elsewhere, with immediate data, where messages are sent";
    ended = true;
    return false;
  }
  if ((wc.flags & wc_flag::kWithImm) == 0) {
    breach = "the peer has sent without immediate data, which a channel always sends";
    ended = true;
    return false;
  }
  const auto slot = static_cast<std::uint32_t>(wc.wr_id);
  const std::span<const std::byte> data = memory.memory().subspan(receive_at(slot), wc.byte_len);
  const std::uint32_t word = network_order(wc.imm_data);
  limit = count_of(word, limit);
  if ((word & kNoMessage) == 0) {
    message = {.data = data, .number = counts.received++, .slot = slot};
    numbers[slot] = message.number;
    return true;
  }
  if (data.size() == kHelloBytes) peer_bytes = load_be<0, kHelloBytes>(data.first<kHelloBytes>());
  if (!post_receive(slot)) ended = true;
  return false;
}

namespace {

Status check(const MessageChannelAttr& attr, const Limits& limits) {
  const std::uint32_t most_sends = limits.max_qp_wr - kUncounted;
  const std::uint32_t most_receives = limits.max_qp_wr - kCreditReceives;
  if (attr.sends > 0 && attr.sends <= most_sends && attr.receives > 0 && attr.receives <= most_receives &&
      attr.message_bytes >= kHelloBytes && attr.message_bytes <= limits.max_msg_bytes)
    return {};
  return Error{Errc::kInvalid, "a message channel has 1 to " + std::to_string(most_sends) + " sends, 1 to " +
                                   std::to_string(most_receives) + " receives, and messages of at least " +
                                   std::to_string(kHelloBytes) + " and at most " +
                                   std::to_string(limits.max_msg_bytes) + " bytes"};
}

Error no_memory() {
  return Error{Errc::kNoMemory, "no memory for a message channel"};
}

}  // namespace

Result<MessageChannel> MessageChannel::create(Pd& pd, Device& device, const MessageChannelAttr& attr) {
  if (Status fits = check(attr, device.limits()); !fits) return fits.error();
  auto own = Cq::create(device, attr.completions(), attr.loop);
  if (!own) return own.error();
  return make(pd, device, attr, {.own = std::move(*own), .shared = nullptr});
}

Result<MessageChannel> MessageChannel::create(Pd& pd, Device& device, const MessageChannelAttr& attr,
                                              Cq& arrivals) {
  if (Status fits = check(attr, device.limits()); !fits) return fits.error();
  return make(pd, device, attr, {.own = {}, .shared = &arrivals});
}

Result<MessageChannel> MessageChannel::make(Pd& pd, Device& device, const MessageChannelAttr& attr,
                                            Arrivals arrivals) {
  const std::uint32_t receives = attr.completions();
  auto memory = Mr::alloc(pd, std::size_t{stride_of(attr.message_bytes)} * (receives + 1 + attr.sends),
                          access::kLocalWrite);
  if (!memory) return memory.error();
  auto send_cq = Cq::create(device, attr.sends + kUncounted, attr.loop);
  if (!send_cq) return send_cq.error();
  auto qp = Qp::create(pd, *send_cq, arrivals.cq(),
                       {.max_send_wr = attr.sends + kUncounted, .max_recv_wr = receives});
  if (!qp) return qp.error();
  if (Status init =
          qp->modify({.state = QpState::kInit, .access_flags = access::kRemoteWrite}, qp_attr::kInitMask);
      !init)
    return init.error();
  try {
    auto impl = std::make_unique<Impl>(attr, std::move(*memory), std::move(*send_cq), std::move(arrivals),
                                       std::move(*qp));
    for (std::uint32_t slot = 0; slot < receives; ++slot) {
      if (!impl->post_receive(slot)) return no_memory();
    }
    return MessageChannel(std::move(impl));
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

MessageChannel::MessageChannel(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MessageChannel::MessageChannel(MessageChannel&&) noexcept = default;
MessageChannel& MessageChannel::operator=(MessageChannel&&) noexcept = default;
MessageChannel::~MessageChannel() = default;

Qp& MessageChannel::qp() noexcept {
  return impl_->qp;
}

Sent MessageChannel::claim(std::size_t bytes, std::span<std::byte>& to) noexcept {
  Impl& own = *impl_;
  if (own.ended) return Sent::kEnded;
  if (own.told == 0 || own.limit == own.counts.sent) {
    own.tell_credits();  // the peer tells its own when it polls, and may wait for this end as well
    ++own.counts.no_credit;
    return Sent::kNoCredit;
  }
  if (bytes > max_message()) return Sent::kTooLong;
  if (own.counts.sent - own.done == own.cfg.sends) own.take_sends();
  if (own.counts.sent - own.done == own.cfg.sends) {
    ++own.counts.no_slot;
    return own.ended ? Sent::kEnded : Sent::kNoSlot;
  }
  own.claimed = bytes;
  to = own.memory.memory().subspan(own.send_at(), bytes);
  return Sent::kOk;
}

Sent MessageChannel::commit(std::size_t bytes) noexcept {
  Impl& own = *impl_;
  if (own.ended) return Sent::kEnded;
  if (!own.claimed.has_value() || bytes > *own.claimed) return Sent::kTooLong;
  const Sge sge = own.memory.sge(own.send_at(), static_cast<std::uint32_t>(bytes));
  const bool is_signaled = own.unsignaled + 1 == own.signal_every;
  const SendWr wr{.wr_id = own.counts.sent + 1,
                  .sges = {&sge, bytes > 0 ? 1U : 0U},
                  .flags = is_signaled ? send_flag::kSignaled : std::uint8_t{0}};
  if (!own.post(wr, 0)) {
    own.take_sends();
    return own.ended ? Sent::kEnded : Sent::kNoSlot;
  }
  own.count_sent(is_signaled);
  return Sent::kOk;
}

Sent MessageChannel::send(std::span<const std::byte> message) noexcept {
  std::span<std::byte> to;
  if (const Sent claimed = claim(message.size(), to); claimed != Sent::kOk) return claimed;
  std::ranges::copy(message, to.begin());
  return commit(message.size());
}

std::size_t MessageChannel::poll(std::span<Message> out) noexcept {
  Impl& own = *impl_;
  std::size_t filled = 0;
  // A peer may send without end what is no message.
  for (std::size_t left = out.size() + own.wcs.size(); filled < out.size() && left > 0;) {
    const std::size_t most = std::min({own.wcs.size(), out.size() - filled, left});
    const std::size_t taken = own.recv.cq().poll(std::span(own.wcs).first(most));
    for (std::size_t i = 0; i < taken; ++i) filled += own.take_arrival(own.wcs[i], out[filled]) ? 1U : 0U;
    if (taken == 0) break;
    left -= taken;
  }
  own.tell_credits();
  return filled;
}

bool MessageChannel::take(const Wc& wc, Message& message) noexcept {
  return impl_->take_arrival(wc, message);
}

void MessageChannel::tell_credits() noexcept {
  impl_->tell_credits();
}

bool MessageChannel::release(const Message& message) noexcept {
  if (!has(message)) return false;
  Impl& own = *impl_;
  own.numbers[message.slot] = kNoNumber;
  if (!own.post_receive(message.slot)) return true;  // the QP has ended
  ++own.released;
  own.tell_credits();
  return true;
}

bool MessageChannel::has(const Message& message) const noexcept {
  const auto& numbers = impl_->numbers;
  return message.slot < numbers.size() && numbers[message.slot] == message.number &&
         message.number != kNoNumber;
}

bool MessageChannel::wait(std::chrono::nanoseconds timeout) {
  impl_->tell_credits();
  return impl_->ended || impl_->recv.cq().wait(timeout);
}

Cq& MessageChannel::arrivals() noexcept {
  return impl_->recv.cq();
}

Status MessageChannel::drain(std::chrono::nanoseconds timeout) {
  Impl& own = *impl_;
  const auto end = std::chrono::steady_clock::now() + bounded(timeout);
  for (;;) {
    own.take_sends();
    if (own.ended) return Error{Errc::kPeer, end_text()};
    if (own.done == own.counts.sent) return {};
    // A WRITE of nothing: it is acknowledged after all before it, and takes no receive. One at a time.
    const SendWr last{
        .wr_id = own.counts.sent, .opcode = WrOpcode::kRdmaWrite, .flags = send_flag::kSignaled};
    if (own.drained <= own.done && own.qp.post_send(last)) own.drained = own.counts.sent;
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return Error{Errc::kTimeout, "not all messages have arrived in time"};
    (void)own.send_cq.wait(left);
  }
}

std::uint32_t MessageChannel::max_message() const noexcept {
  return std::min(impl_->cfg.message_bytes, impl_->peer_bytes);
}

std::uint32_t MessageChannel::credits() const noexcept {
  return static_cast<std::uint32_t>(impl_->limit - impl_->counts.sent);
}

const MessageCounts& MessageChannel::counts() const noexcept {
  return impl_->counts;
}

bool MessageChannel::has_ended() const noexcept {
  return impl_->ended;
}

std::string MessageChannel::end_text() const {
  if (!impl_->ended) return "";
  if (!impl_->breach.empty()) return std::string(impl_->breach);
  if (std::string text = impl_->qp.error_text(); !text.empty()) return text;
  return std::string(describe_vendor_err(impl_->vendor_err));
}

std::string_view to_string(Sent sent) noexcept {
  constexpr std::array<std::string_view, 6> kNames = {"sent",
                                                      "the peer has no room for more messages",
                                                      "as many messages as may be are under way",
                                                      "the message is too long",
                                                      "the connection has ended",
                                                      "the request has been answered or released already"};
  return kNames[static_cast<std::size_t>(sent)];
}

}  // namespace uroce
