// Messages there and back over a message channel: a server that answers, and a client that times the answers.
//   build/apps/example_messages                    # the server, which says its addresses ...
//   build/apps/example_messages 10.77.0.1 100000   # ... and the client, in another terminal
// Without hugepages: export UROCE_NO_HUGE=1. Over an interface: export UROCE_PORT=af_packet:eth0 UROCE_IP=...
#include <algorithm>
#include <array>
#include <vector>

#include "apps/examples/must.h"
#include "uroce/connection.h"
#include "uroce/message_channel.h"

using namespace uroce;

constexpr std::uint16_t kPort = 7472;

void serve(Cm& cm, MessageChannel& channel) {
  Listener listener = must(Listener::create(cm, {.port = kPort}));
  for (const auto& entry : cm.device().gids()) std::cout << to_string(entry.gid) << std::endl;
  auto request = listener.wait(std::chrono::hours(1));
  must(request.has_value(), "nobody came");
  const Connection connection = must(request->accept(channel.qp(), {}));
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
  auto to = CmAddress::parse(server);
  must(to.has_value(), "the server's address is none, such as 10.77.0.1");
  to->port = kPort;
  const Connection connection = must(Connection::connect(cm, channel.qp(), {.to = *to}));
  const std::array<std::byte, 64> text{std::byte{'?'}};
  std::vector<double> took(std::max<std::size_t>(count, 1));
  for (double& one : took) {
    const auto begin = std::chrono::steady_clock::now();
    ask(channel, text);
    one = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::sort(took);
  for (const double percent : {50.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto rank = static_cast<std::size_t>(percent / 100 * static_cast<double>(took.size() - 1));
    std::cout << percent << " %: " << took[rank] << " us\n";
  }
}

int main(int argc, char** argv) {
  Device device = must(Device::open(must(apply_environment({}))));
  Cm cm = must(Cm::open(device));
  Pd pd = must(Pd::create(device));
  MessageChannel channel = must(MessageChannel::create(pd, device));
  if (argc < 2) {
    serve(cm, channel);
  } else {
    time_answers(cm, channel, argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10'000);
  }
}
