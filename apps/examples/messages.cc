// Messages there and back over a message channel: a server that answers, and a client that times the answers.
//   build/apps/example_messages                    # the server, which says its addresses ...
//   build/apps/example_messages 10.77.0.1 100000   # ... and the client, in another terminal
// Without hugepages: export UROCE_NO_HUGE=1. Over an interface: export UROCE_PORT=af_packet:eth0 UROCE_IP=...
#include <algorithm>
#include <array>
#include <vector>

#include "apps/examples/by_address.h"
#include "apps/examples/times.h"
#include "uroce/message_channel.h"

using namespace uroce;

constexpr std::uint16_t kPort = 7472;

void serve(Cm& cm, MessageChannel& channel) {
  const Connection connection = accept_one(cm, channel.qp(), kPort);
  std::array<Message, 16> messages;
  while (!channel.has_ended()) {
    for (const Message& message : std::span(messages).first(channel.poll(messages))) {
      must(channel.send(message.data) == Sent::kOk, "the client has no room for its answers");
      channel.release(message);
    }
  }
}

/// Sends `text` and waits for the answer.
void ask(MessageChannel& channel, std::span<const std::byte> text) {
  std::array<Message, 1> answer;
  Sent sent = channel.send(text);
  for (; sent == Sent::kNoCredit; sent = channel.send(text)) (void)channel.poll(answer);  // the first time
  must(sent == Sent::kOk, "the server does not take the message");
  while (channel.poll(answer) == 0) must(!channel.has_ended(), "the server is gone");
  must(std::ranges::equal(answer[0].data, text), "the answer is another");
  channel.release(answer[0]);
}

void time_answers(Cm& cm, MessageChannel& channel, const char* server, std::size_t count) {
  const Connection connection =
      must(Connection::connect(cm, channel.qp(), {.to = address_of(server, kPort)}));
  const std::array<std::byte, 64> text{std::byte{'?'}};
  std::vector<double> took(std::max<std::size_t>(count, 1));
  for (double& one : took) {
    const auto begin = Clock::now();
    ask(channel, text);
    one = ns_between(begin, Clock::now());
  }
  tell("there and back", std::move(took));
}

int main(int argc, char** argv) {
  Device device = must(Device::open(must(load_config())));
  Cm cm = must(Cm::open(device));
  Pd pd = must(Pd::create(device));
  MessageChannel channel = must(MessageChannel::create(pd, device));
  if (argc < 2) {
    serve(cm, channel);
  } else {
    time_answers(cm, channel, argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10'000);
  }
}
