// Calls with deadlines: a server of prices, and a client that times them, one at a time and many at once.
//   build/apps/example_calls                    # the server, which says its addresses ...
//   build/apps/example_calls 10.77.0.1 100000   # ... and clients, in other terminals, which end with it
// Without hugepages: export UROCE_NO_HUGE=1. Over an interface: export UROCE_PORT=af_packet:eth0 UROCE_IP=...
#include <array>
#include <cstring>
#include <vector>

#include "apps/examples/by_address.h"
#include "apps/examples/times.h"
#include "uroce/rpc.h"

using namespace uroce;

constexpr std::uint16_t kPort = 7474;
constexpr std::uint16_t kPriceOf = 1;  // of a stock, 8 characters; the answer is 8 bytes
constexpr std::uint32_t kAtOnce = 32;
constexpr auto kPatience = std::chrono::seconds(1);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Sent answer(RpcServer& server, const RpcRequest& request) {
  constexpr std::size_t kName = 8;
  if (request.method != kPriceOf || request.message.data.size() != kName)
    return server.refuse(request, bytes_of("there are prices only"));
  std::uint64_t price = 0;
  for (const std::byte letter : request.message.data) price = 31 * price % 1'000'000 + std::uint64_t(letter);
  return server.reply(request, std::as_bytes(std::span(&price, 1)));
}

/// Until the last of its clients has gone.
void serve(RpcServer& server) {
  std::array<RpcRequest, 16> requests;
  while (server.counts().clients == 0 || server.clients() > 0) {
    for (const RpcRequest& request : std::span(requests).first(server.poll(requests))) {
      const Sent sent = answer(server, request);
      // Who has no room for answers waits in vain; the others do not.
      if (sent != Sent::kOk && sent != Sent::kEnded) server.release(request);
    }
  }
}

std::uint64_t price_in(const RpcReply& reply) {
  std::uint64_t price = 0;
  must(reply.message.data.size() == sizeof price, "the answer is no price");
  std::memcpy(&price, reply.message.data.data(), sizeof price);
  return price;
}

/// One after the other.
void time_calls(RpcClient& client, std::size_t count) {
  std::vector<double> took(count);
  for (double& one : took) {
    const auto begin = Clock::now();
    const RpcReply reply = must(client.ask(kPriceOf, bytes_of("UROCE   "), kPatience));
    one = ns_between(begin, Clock::now());
    client.release(reply);
  }
  tell("a call", std::move(took));
}

/// `kAtOnce` under way.
void count_calls(RpcClient& client, std::size_t count) {
  std::array<RpcReply, 16> replies;
  std::size_t begun = 0;
  std::size_t ended = 0;
  const auto begin = Clock::now();
  while (ended < count) {
    RpcCall call{};
    while (begun < count && begun - ended < kAtOnce &&
           client.call(kPriceOf, bytes_of("UROCE   "), kPatience, call) == Sent::kOk)
      ++begun;
    for (const RpcReply& reply : std::span(replies).first(client.poll(replies))) {
      must(reply.outcome == RpcOutcome::kReplied, "a call had no answer");
      (void)price_in(reply);
      client.release(reply);
      ++ended;
    }
    must(client.is_connected(), "the server is gone");
  }
  std::cout << static_cast<double>(count) / ns_between(begin, Clock::now()) * 1e3
            << " million calls a second, " << kAtOnce << " at once\n";
}

int main(int argc, char** argv) {
  Device device = must(Device::open(must(load_config())));
  Cm cm = must(Cm::open(device));
  Pd pd = must(Pd::create(device));
  if (argc < 2) {
    RpcServer server = must(RpcServer::listen(cm, pd, {.at = {.port = kPort}, .message_bytes = 64}));
    tell_addresses(device);
    return serve(server), 0;
  }
  RpcClient client =
      must(RpcClient::connect(cm, pd, {.to = address_of(argv[1], kPort), .message_bytes = 64}));
  const RpcReply price = must(client.ask(kPriceOf, bytes_of("UROCE   "), kPatience));
  std::cout << "UROCE: " << price_in(price) << '\n';
  client.release(price);
  const auto count = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10'000;
  time_calls(client, count);
  count_calls(client, count);
}
