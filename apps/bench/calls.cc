#include "apps/bench/calls.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <deque>

#include "apps/common/histogram.h"
#include "apps/common/rate_meter.h"

namespace uroce::apps {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kCallPort = 7472;
constexpr std::uint64_t kPatienceNs = 5 * kSecond;  // the other end may be late to begin
constexpr std::uint32_t kMessageBytes = 1024;
enum Method : std::uint16_t { kEcho, kEnd };

Error late(const char* text) {
  return {.code = Errc::kTimeout, .text = text};
}

}  // namespace

Result<std::unique_ptr<Calls>> Calls::listen(Device& device, Pd& pd, bool give_way) {
  auto cm = Cm::open(device);
  if (!cm) return cm.error();
  std::unique_ptr<Calls> calls(new Calls(std::move(*cm), give_way));
  auto server = RpcServer::listen(calls->cm_, pd,
                                  {.at = {{}, kCallPort}, .message_bytes = kMessageBytes, .clients = 1});
  if (!server) return server.error();
  calls->server_.emplace(std::move(*server));
  Patience patience(now_ns() + kPatienceNs, give_way);
  std::array<RpcRequest, 1> none;
  while (calls->server_->clients() == 0) {
    static_cast<void>(calls->server_->poll(none));
    if (patience.is_over()) return late("nobody connects for calls");
  }
  return calls;
}

Result<std::unique_ptr<Calls>> Calls::connect(Device& device, Pd& pd, const Gid& to, bool give_way) {
  auto cm = Cm::open(device);
  if (!cm) return cm.error();
  std::unique_ptr<Calls> calls(new Calls(std::move(*cm), give_way));
  for (const std::uint64_t until = now_ns() + kPatienceNs;;) {
    auto client = RpcClient::connect(
        calls->cm_, pd, {.to = {to, kCallPort}, .message_bytes = kMessageBytes, .reconnects = false});
    if (client) {
      calls->client_.emplace(std::move(*client));
      return calls;
    }
    if (now_ns() >= until) return client.error();
    linger(device, kMillisecond);
  }
}

Result<bool> Calls::begin(std::uint16_t method, std::uint32_t bytes) {
  static constexpr std::array<std::byte, kMessageBytes> kRequest{};
  RpcCall call{};
  const Sent sent = client_->call(method, std::span(kRequest).first(bytes), 10s, call);
  if (sent == Sent::kOk) return true;
  if (sent == Sent::kNoCredit || sent == Sent::kNoSlot) return false;
  return Error{.code = Errc::kSystem,
               .text = fmt::format("a call cannot begin: {} {}", to_string(sent), client_->trouble())};
}

Status Calls::ask(std::uint16_t method, std::uint32_t bytes, Patience& patience) {
  for (auto begun = begin(method, bytes); !begun || !*begun; begun = begin(method, bytes)) {
    if (!begun) return begun.error();
    if (const auto count = take(bytes); !count) return count.error();
    if (patience.is_over()) return late("there is no room for a call");
  }
  return await_all(bytes, patience);
}

Result<std::uint32_t> Calls::take(std::uint32_t bytes, std::size_t most) {
  const auto count = static_cast<std::uint32_t>(client_->poll(std::span(replies_).first(most)));
  if (count == 0) return 0U;
  came_ = clock_.ticks();
  for (const RpcReply& reply : std::span(replies_).first(count)) {
    if (reply.outcome != RpcOutcome::kReplied || reply.message.data.size() != bytes) {
      return Error{.code = Errc::kPeer,
                   .text = fmt::format("a call ended otherwise: {}, {} bytes", to_string(reply.outcome),
                                       reply.message.data.size())};
    }
    client_->release(reply);
  }
  return count;
}

/// Until no call is under way.
Status Calls::await_all(std::uint32_t bytes, Patience& patience) {
  while (client_->pending() > 0) {
    const auto count = take(bytes, 1);
    if (!count) return count.error();
    if (*count == 0 && patience.is_over()) return late("a call is not answered");
  }
  return {};
}

Result<Json> Calls::run_client(const Sample& sample) {
  if (sample.bytes > kMessageBytes) return Error{.code = Errc::kInvalid, .text = "calls are short here"};
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  auto result = sample.kind == Kind::kRtt ? round_trips(sample, patience) : rate(sample, patience);
  if (!result) return result;
  if (auto ended = ask(kEnd, sample.bytes, patience); !ended) return ended.error();
  return result;
}

Result<Json> Calls::round_trips(const Sample& sample, Patience& patience) {
  Histogram ticks;
  const std::uint64_t start = clock_.ticks();
  const std::uint64_t warm = start + clock_.from_ns(sample.warm_up_ns());
  const std::uint64_t end = start + clock_.from_ns(sample.run_ns);
  for (std::uint64_t began = start; began < end;) {
    began = clock_.ticks();
    if (auto answered = ask(kEcho, sample.bytes, patience); !answered) return answered.error();
    if (began >= warm) ticks.add(came_ - began);  // its message is released afterwards
  }
  return rtt_result(ticks, clock_);
}

Result<Json> Calls::rate(const Sample& sample, Patience& patience) {
  RateMeter answered(kMillisecond, sample.warm_up_ns());
  const std::uint64_t end = clock_.ticks() + clock_.from_ns(sample.run_ns);
  while (clock_.ticks() < end) {
    while (client_->pending() < kInFlight) {
      const auto begun = begin(kEcho, sample.bytes);
      if (!begun) return begun.error();
      if (!*begun) break;
    }
    const auto count = take(sample.bytes);
    if (!count) return count.error();
    if (*count > 0) answered.add(*count, now_ns());
    if (*count == 0 && patience.is_over()) return late("calls are not answered");
  }
  if (auto drained = await_all(sample.bytes, patience); !drained) return drained.error();
  return rate_result(answered);
}

/// Requests are answered in the order in which they come, as soon as there is room for the answer.
Result<Json> Calls::run_server(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  std::array<RpcRequest, kInFlight> come;
  std::deque<RpcRequest> waiting;
  for (bool ended = false; !ended || !waiting.empty();) {
    const std::size_t count = server_->poll(come);
    if (count == 0 && patience.is_over()) return late("no calls come");
    waiting.insert(waiting.end(), come.begin(), come.begin() + count);
    while (!waiting.empty()) {
      const RpcRequest& request = waiting.front();
      const Sent sent = server_->reply(request, request.message.data);
      if (sent == Sent::kNoSlot || sent == Sent::kNoCredit) break;
      if (sent != Sent::kOk)
        return Error{.code = Errc::kPeer, .text = fmt::format("no reply goes: {}", to_string(sent))};
      ended = request.method == kEnd;
      waiting.pop_front();
    }
  }
  return Json::object();
}

}  // namespace uroce::apps
