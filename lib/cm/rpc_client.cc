#include <poll.h>

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/bounded_time.h"
#include "base/timer_wheel.h"
#include "cm/connect_error.h"
#include "cm/redial.h"
#include "cm/rpc_frame.h"
#include "uroce/rpc.h"

namespace uroce {
namespace {

using std::chrono::nanoseconds;

constexpr unsigned kSpins = 1000;  // before ask() sleeps: some 50 us
constexpr unsigned kBusy = 8;      // looks at the clock are so rare while messages come
constexpr nanoseconds kNap = std::chrono::milliseconds(1);  // where nothing tells that there is room again
constexpr std::string_view kNoMemory = "no memory left";    // so short that a string needs none
constexpr nanoseconds kNever = bounded(nanoseconds::max());

/// A connection, or an attempt to make it. The id of the CM ends before the QP.
struct Line {
  MessageChannel channel;
  CmChannel events;
};

struct Call : TimerNode {
  enum class State : std::uint8_t {
    kFree,
    kUnderWay,
    kEnded,  // and not told yet
  };
  State state = State::kFree;
  std::uint32_t generation = 0;
};

constexpr std::uint32_t slot_of(RpcCall call) noexcept {
  return static_cast<std::uint32_t>(raw(call));
}

/// Ends of calls that wait for poll(), each of a slot of its own.
class Ends {
 public:
  explicit Ends(std::uint32_t calls) : replies_(calls) {}
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  void push(const RpcReply& reply) noexcept { replies_[(first_ + count_++) % replies_.size()] = reply; }
  const RpcReply& pop() noexcept {
    const RpcReply& reply = replies_[first_];
    first_ = (first_ + 1) % replies_.size();
    --count_;
    return reply;
  }

 private:
  std::vector<RpcReply> replies_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace

struct RpcClient::Impl {
  Impl(Cm& its_cm, Pd& its_pd, const RpcClientAttr& attr)
      : cm(its_cm),
        pd(its_pd),
        cfg(attr),
        redial(attr.pause, attr.longest_pause, its_cm.ca_guid() ^ its_cm.device().now_ns()),
        calls(attr.calls),
        ends(attr.calls) {
    free_slots.reserve(attr.calls);
    for (std::uint32_t slot = attr.calls; slot > 0; --slot) free_slots.push_back(slot - 1);
  }

  [[nodiscard]] Ticks now() const noexcept { return Ticks(cm.device().now_ns()); }
  [[nodiscard]] std::uint64_t answers() const noexcept { return counts.replied + counts.late; }
  [[nodiscard]] RpcCall name_of(std::uint32_t slot) const noexcept {
    return RpcCall{std::uint64_t{calls[slot].generation} << 32 | slot};
  }
  /// @return nullptr if it is not under way.
  [[nodiscard]] Call* find(RpcCall call) noexcept {
    const std::uint32_t slot = slot_of(call);
    if (slot >= calls.size() || calls[slot].state != Call::State::kUnderWay || name_of(slot) != call)
      return nullptr;
    return &calls[slot];
  }

  Status dial();
  void attend() noexcept;
  Status on_event(const CmEvent& event);
  void hang_up() noexcept;
  void give_up(std::string why) noexcept;
  void drop_line() noexcept;
  void drop_place() noexcept;

  Sent claim(std::size_t bytes, std::span<std::byte>& to) noexcept;
  Sent send(RpcFrame frame, std::size_t bytes) noexcept;
  RpcCall begin(Ticks at, Ticks due) noexcept;
  void end(Call& call, RpcOutcome outcome, const Message& message = {}) noexcept;
  void forget(Call& call) noexcept;
  void take(const Message& message) noexcept;
  void expire() noexcept;
  std::size_t progress(std::size_t most) noexcept;
  [[nodiscard]] nanoseconds until_next(Ticks at) noexcept;
  bool sleep(nanoseconds timeout);
  [[nodiscard]] Result<RpcReply> await(RpcCall call);

  Cm& cm;
  Pd& pd;
  RpcClientAttr cfg;
  std::optional<Line> line;
  bool is_connected = false;
  std::uint32_t borrowed = 0;  // messages of the line that the application has
  Redial redial;
  Ticks next_attempt;
  std::uint64_t answers_before = 0;  // the end of the last connection
  std::string trouble;
  std::span<std::byte> place;    // of the request that was claimed
  std::optional<Line> former{};  // whose memory it is of, if that has ended since
  bool lacks_room = false;       // the last message found no slot, and no event tells of one

  TimerWheel wheel;
  Ticks earliest;  // no deadline is before; unset: there is none
  std::vector<Call> calls;
  std::vector<std::uint32_t> free_slots;
  Ends ends;
  RpcCall asked{};  // whose end ask() waits for, if it does
  bool is_asking = false;
  RpcReply asked_end;
  unsigned busy = 0;  // times in a row that messages came
  RpcClientCounts counts;
  std::array<Message, 16> messages;  // of progress(); made once
};

// The connection

/// Begins to make a connection.
Status RpcClient::Impl::dial() {
  auto channel = MessageChannel::create(pd, cm.device(), rpc_channel(cfg.message_bytes, cfg.calls, cfg.loop));
  if (!channel) return channel.error();
  auto events = CmChannel::create(cm);
  if (!events) return events.error();
  auto id = events->create_id(PortSpace::kTcp);
  if (!id) return id.error();
  line.emplace(Line{std::move(*channel), std::move(*events)});
  return line->events.connect(*id,
                              {.from = cfg.from,
                               .to = cfg.to,
                               .private_data = std::as_bytes(std::span(kRpcGreeting)),
                               .timeout = cfg.timeout},
                              &line->channel.qp());
}

Status RpcClient::Impl::on_event(const CmEvent& event) {
  if (event.type == CmEventType::kRejected)
    return connect_error(event, rpc_refusal_text(event.private_data()));
  if (event.type != CmEventType::kEstablished) return connect_error(event);
  if (!is_rpc_greeting(event.private_data()))
    return Error{Errc::kPeer, to_string(event.remote) + " is no server of calls, or of another version"};
  is_connected = true;
  redial.on_connected(now());
  ++counts.connections;
  return {};
}

/// Makes the connection again, when it is time.
void RpcClient::Impl::attend() noexcept {
  if (!cfg.reconnects || borrowed > 0) return;
  try {
    if (!line.has_value()) {
      if (now() < next_attempt) return;
      if (Status begun = dial(); !begun) give_up(begun.error().text);
      return;
    }
    CmEvent event;
    if (!line->events.next(event)) return;
    if (Status made = on_event(event); !made) give_up(made.error().text);
  } catch (const std::bad_alloc&) {
    give_up(std::string(kNoMemory));
  }
}

/// The connection has ended.
void RpcClient::Impl::hang_up() noexcept {
  try {
    give_up(line->channel.end_text());
  } catch (const std::bad_alloc&) {
    give_up(std::string(kNoMemory));
  }
}

/// The line is of no use any more.
void RpcClient::Impl::give_up(std::string why) noexcept {
  is_connected = false;
  trouble = std::move(why);
  for (Call& call : calls) {
    if (call.state == Call::State::kUnderWay) end(call, RpcOutcome::kEnded);
  }
  const bool has_answered = answers_before != answers();
  answers_before = answers();
  next_attempt = redial.on_ended(now(), has_answered);
  if (borrowed == 0) drop_line();
}

/// Its memory stays as long as the application may write there.
void RpcClient::Impl::drop_line() noexcept {
  if (!place.empty() && !former.has_value()) former = std::move(line);
  line.reset();
}

void RpcClient::Impl::drop_place() noexcept {
  place = {};
  former.reset();
}

// Calls

Sent RpcClient::Impl::claim(std::size_t bytes, std::span<std::byte>& to) noexcept {
  drop_place();
  if (!is_connected) return Sent::kEnded;
  const Sent claimed = line->channel.claim(framed(bytes), place);
  lacks_room = claimed == Sent::kNoSlot;
  if (claimed != Sent::kOk) {
    place = {};
    return claimed;
  }
  to = place.subspan(RpcFrame::kBytes);
  return Sent::kOk;
}

Sent RpcClient::Impl::send(RpcFrame frame, std::size_t bytes) noexcept {
  if (!is_connected || former.has_value()) {
    drop_place();
    return Sent::kEnded;
  }
  if (place.size() < framed(bytes)) return Sent::kTooLong;
  frame.store(place.first<RpcFrame::kBytes>());
  const Sent sent = line->channel.commit(framed(bytes));
  lacks_room = sent == Sent::kNoSlot;
  if (sent == Sent::kOk) place = {};
  return sent;
}

RpcCall RpcClient::Impl::begin(Ticks at, Ticks due) noexcept {
  if (wheel.armed() == 0) wheel.expire(at, [](TimerNode&) {});  // it does not walk over idle time later
  const std::uint32_t slot = free_slots.back();
  free_slots.pop_back();
  Call& call = calls[slot];
  call.state = Call::State::kUnderWay;
  if (due.is_set()) {
    wheel.arm(call, due);
    earliest = earlier(earliest, due);
  }
  ++counts.calls;
  return name_of(slot);
}

void RpcClient::Impl::end(Call& call, RpcOutcome outcome, const Message& message) noexcept {
  wheel.cancel(call);
  call.state = Call::State::kEnded;
  const RpcReply reply{.call = name_of(static_cast<std::uint32_t>(&call - calls.data())),
                       .outcome = outcome,
                       .connection = counts.connections,
                       .message = message};
  switch (outcome) {
    case RpcOutcome::kTimeout:
      ++counts.timeouts;
      break;
    case RpcOutcome::kEnded:
      ++counts.ended;
      break;
    default:
      ++counts.replied;
      break;
  }
  if (is_asking && reply.call == asked) {
    asked_end = reply;
    is_asking = false;
    forget(call);
  } else {
    ends.push(reply);
  }
}

/// The slot is free for another call.
void RpcClient::Impl::forget(Call& call) noexcept {
  wheel.cancel(call);
  call.state = Call::State::kFree;
  ++call.generation;
  free_slots.push_back(static_cast<std::uint32_t>(&call - calls.data()));
}

void RpcClient::Impl::take(const Message& message) noexcept {
  const auto frame = RpcFrame::load(message.data);
  const bool is_reply =
      frame.has_value() && (frame->kind == RpcKind::kReply || frame->kind == RpcKind::kRefusal);
  Call* call = is_reply ? find(RpcCall{frame->call}) : nullptr;
  if (call == nullptr) {
    ++(is_reply ? counts.late : counts.malformed);
    line->channel.release(message);
    return;
  }
  Message said = message;
  said.data = message.data.subspan(RpcFrame::kBytes);
  ++borrowed;
  end(*call, frame->kind == RpcKind::kReply ? RpcOutcome::kReplied : RpcOutcome::kRefused, said);
}

void RpcClient::Impl::expire() noexcept {
  if (wheel.armed() == 0) return;
  wheel.expire(now(), [this](TimerNode& node) { end(static_cast<Call&>(node), RpcOutcome::kTimeout); });
}

/// Takes `most` messages at most, and looks at the time and at the connection. @return messages.
std::size_t RpcClient::Impl::progress(std::size_t most) noexcept {
  if (!is_connected) {
    attend();
    return 0;
  }
  const std::size_t taken = line->channel.poll(std::span(messages).first(std::min(most, messages.size())));
  for (const Message& message : std::span(messages).first(taken)) take(message);
  busy = taken > 0 ? busy + 1 : 0;
  if (busy % kBusy == 0) expire();
  if (taken == 0 && line->channel.has_ended()) hang_up();
  return taken;
}

/// How long nothing has to be done unless something arrives.
nanoseconds RpcClient::Impl::until_next(Ticks at) noexcept {
  if (earliest.is_set() && earliest <= at) {
    earliest = Ticks{};
    for (const Call& call : calls) {
      if (call.due.is_set()) earliest = earlier(earliest, call.due);
    }
  }
  const bool dials = !is_connected && !line.has_value() && cfg.reconnects;
  const Ticks next = dials ? earlier(earliest, next_attempt) : earliest;
  if (!next.is_set()) return kNever;
  return nanoseconds(next > at ? next.ns() - at.ns() : 0);
}

/// As wait(), but for what has not come yet.
bool RpcClient::Impl::sleep(nanoseconds timeout) {
  const Ticks at = now();
  const nanoseconds next = std::min(until_next(at), std::exchange(lacks_room, false) ? kNap : kNever);
  const nanoseconds longest = std::min(bounded(timeout), next);
  if (is_connected) return line->channel.wait(longest) || next <= bounded(timeout);
  const bool dials = line.has_value() && borrowed == 0;
  pollfd wanted{.fd = dials ? line->events.fd() : -1, .events = POLLIN, .revents = 0};
  const bool is_blind = dials && wanted.fd < 0;  // no descriptor is left: it looks by itself
  const timespec limit = timespec_of(is_blind ? std::min(longest, kNap) : longest);
  return ::ppoll(&wanted, 1, &limit, nullptr) > 0 || next <= bounded(timeout) || is_blind;
}

Result<RpcReply> RpcClient::Impl::await(RpcCall call) {
  asked = call;
  is_asking = true;
  for (unsigned spins = 0; is_asking; ++spins) {
    (void)progress(1);
    if (is_asking && is_connected && spins > kSpins) (void)line->channel.wait(until_next(now()));
  }
  switch (asked_end.outcome) {
    case RpcOutcome::kTimeout:
      return Error{Errc::kTimeout, to_string(cfg.to) + " has not replied in time"};
    case RpcOutcome::kEnded:
      return Error{Errc::kPeer, trouble};
    default:
      return asked_end;
  }
}

// What the application calls

namespace {

Status check(const RpcClientAttr& attr, const Limits& limits) {
  constexpr std::chrono::hours kLongest(1);
  if (Status fits = check_rpc_channel(attr.message_bytes, attr.calls, limits); !fits) return fits;
  if (attr.timeout.count() <= 0) return Error{Errc::kInvalid, "an attempt to connect is given some time"};
  if (attr.pause.count() < 0 || attr.longest_pause < attr.pause || attr.longest_pause > kLongest)
    return Error{Errc::kInvalid, "pauses between attempts to connect become longer, and an hour at most"};
  return {};
}

}  // namespace

Result<RpcClient> RpcClient::connect(Cm& cm, Pd& pd, const RpcClientAttr& attr) {
  if (Status fits = check(attr, cm.device().limits()); !fits) return fits.error();
  try {
    auto impl = std::make_unique<Impl>(cm, pd, attr);
    if (Status begun = impl->dial(); !begun) return begun.error();
    CmEvent event;
    // A busy server may ask for more time; the manager ends it, not this.
    if (!impl->line->events.wait(event, bounded(attr.timeout) + std::chrono::seconds(1)))
      return Error{Errc::kTimeout, to_string(attr.to) + " did not answer in time"};
    if (Status made = impl->on_event(event); !made) return made.error();
    return RpcClient(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for calls"};
  }
}

RpcClient::RpcClient(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
RpcClient::RpcClient(RpcClient&&) noexcept = default;
RpcClient& RpcClient::operator=(RpcClient&&) noexcept = default;
RpcClient::~RpcClient() = default;

Sent RpcClient::claim(std::size_t bytes, std::span<std::byte>& to) noexcept {
  return impl_->claim(bytes, to);
}

Sent RpcClient::commit(std::uint16_t method, std::size_t bytes, nanoseconds timeout, RpcCall& call) noexcept {
  Impl& own = *impl_;
  if (own.free_slots.empty() && own.is_connected) return Sent::kNoSlot;
  if (own.free_slots.empty()) {
    own.drop_place();
    return Sent::kEnded;
  }
  const nanoseconds left = bounded(timeout);
  const Sent sent = own.send({.kind = RpcKind::kRequest,
                              .method = method,
                              .left_us = rpc_left_us(left),
                              .call = raw(own.name_of(own.free_slots.back()))},
                             bytes);
  if (sent != Sent::kOk) return sent;
  const Ticks at = own.now();
  call = own.begin(at, left == kNever ? Ticks{} : at + static_cast<std::uint64_t>(left.count()));
  return Sent::kOk;
}

Sent RpcClient::call(std::uint16_t method, std::span<const std::byte> request, nanoseconds timeout,
                     RpcCall& call) noexcept {
  std::span<std::byte> to;
  if (const Sent claimed = claim(request.size(), to); claimed != Sent::kOk) return claimed;
  std::ranges::copy(request, to.begin());
  return commit(method, request.size(), timeout, call);
}

Sent RpcClient::notify(std::uint16_t method, std::span<const std::byte> request) noexcept {
  std::span<std::byte> to;
  if (const Sent claimed = claim(request.size(), to); claimed != Sent::kOk) return claimed;
  std::ranges::copy(request, to.begin());
  return impl_->send({.kind = RpcKind::kNotice, .method = method}, request.size());
}

Result<RpcReply> RpcClient::ask(std::uint16_t method, std::span<const std::byte> request,
                                nanoseconds timeout) {
  Impl& own = *impl_;
  const Ticks until = own.now() + static_cast<std::uint64_t>(bounded(timeout).count());
  for (;;) {
    RpcCall begun{};
    const Ticks at = own.now();
    const nanoseconds left(until > at ? until.ns() - at.ns() : 0);
    const Sent sent = call(method, request, bounded(timeout) == kNever ? kNever : left, begun);
    if (sent == Sent::kOk) return own.await(begun);
    if (sent == Sent::kTooLong)
      return Error{Errc::kInvalid, "the request has " + std::to_string(request.size()) + " bytes, and " +
                                       std::to_string(max_message()) + " is the most"};
    if (sent == Sent::kEnded && !own.is_connected && !own.cfg.reconnects)
      return Error{Errc::kPeer, own.trouble};
    if (left.count() == 0)
      return Error{Errc::kTimeout, own.is_connected ? std::string(to_string(sent)) : own.trouble};
    if (own.progress(1) == 0) (void)own.sleep(std::min(left, kNap));
  }
}

std::size_t RpcClient::poll(std::span<RpcReply> out) noexcept {
  Impl& own = *impl_;
  std::size_t filled = 0;
  std::size_t looked_at = 0;
  for (std::size_t taken = 1; taken > 0 && looked_at < out.size(); looked_at += taken) {
    taken = own.progress(out.size() - looked_at);
    while (filled < out.size() && own.ends.size() > 0) {
      out[filled] = own.ends.pop();
      own.forget(own.calls[slot_of(out[filled++].call)]);
    }
  }
  return filled;
}

bool RpcClient::release(const RpcReply& reply) noexcept {
  if (reply.outcome != RpcOutcome::kReplied && reply.outcome != RpcOutcome::kRefused) return true;
  Impl& own = *impl_;
  // A connection is made again once all of the former one is released.
  const bool is_of_line = own.line.has_value() && reply.connection == own.counts.connections;
  if (!is_of_line || !own.line->channel.release(reply.message)) return false;
  if (--own.borrowed == 0 && !own.is_connected) own.drop_line();
  return true;
}

bool RpcClient::cancel(RpcCall call) noexcept {
  Call* known = impl_->find(call);
  if (known == nullptr) return false;
  ++impl_->counts.cancelled;
  impl_->forget(*known);
  return true;
}

bool RpcClient::wait(nanoseconds timeout) {
  return impl_->ends.size() > 0 || impl_->sleep(timeout);
}

bool RpcClient::is_connected() const noexcept {
  return impl_->is_connected;
}

const std::string& RpcClient::trouble() const noexcept {
  return impl_->trouble;
}

std::uint32_t RpcClient::max_message() const noexcept {
  return impl_->line.has_value() ? without_frame(impl_->line->channel.max_message()) : 0;
}

std::uint32_t RpcClient::pending() const noexcept {
  return static_cast<std::uint32_t>(impl_->calls.size() - impl_->free_slots.size());
}

const RpcClientCounts& RpcClient::counts() const noexcept {
  return impl_->counts;
}

std::string_view to_string(RpcOutcome outcome) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"replied", "refused by the server", "no reply in time",
                                                      "the connection ended"};
  return kNames[static_cast<std::size_t>(outcome)];
}

}  // namespace uroce
