// Tick to trade: an exchange that sends ticks at a fixed rate, and a trader that answers some with an order.
//   build/apps/example_trade                           # the trader, which says its addresses ...
//   build/apps/example_trade 10.77.0.1 100000 20000    # ... and the exchange: ticks, and how many a second
// The exchange has the clock: from when a tick was due until its order is there, whatever held either up.
// Without hugepages: export UROCE_NO_HUGE=1. Over an interface: export UROCE_PORT=af_packet:eth0 UROCE_IP=...
#include <array>
#include <vector>

#include "apps/examples/by_address.h"
#include "apps/examples/exchange_messages.h"
#include "apps/examples/times.h"
#include "uroce/message_channel.h"

using namespace uroce;

constexpr std::uint16_t kPort = 7473;
constexpr std::string_view kStock = "UROC";
constexpr std::uint32_t kFair = 100'0000;  // four decimals
constexpr std::uint64_t kTriggerEvery = 10;

/// What every order has to pass before it leaves.
struct Risk {
  std::uint32_t most_shares = 1000;
  std::uint64_t most_at_stake = 50'000'0000;  ///< price times shares
  std::uint32_t collar = kFair / 20;          ///< off the fair price
  std::uint64_t position = 0;
  std::uint64_t most_position = 1ULL << 40;
  bool is_killed = false;

  [[nodiscard]] bool passes(const EnterOrder& order) const {
    const auto off = order.price > kFair ? order.price - kFair : kFair - order.price;
    return !is_killed && order.shares <= most_shares && off <= collar &&
           order.price * order.shares <= most_at_stake && position + order.shares <= most_position;
  }
};

/// Buys what is offered below the fair price.
void trade(Cm& cm, MessageChannel& channel) {
  const Connection connection = accept_one(cm, channel.qp(), kPort);
  std::array<Message, 16> messages;
  std::vector<double> own_ns;
  own_ns.reserve(1U << 20U);
  Risk risk;
  std::uint32_t user_ref = 0;
  while (!channel.has_ended()) {
    for (const Message& message : std::span(messages).first(channel.poll(messages))) {
      const auto begin = Clock::now();
      must(message.data.size() == AddOrder::kSize, "the exchange sent something else than a tick");
      const AddOrder tick = AddOrder::parse(message.data.first<AddOrder::kSize>());
      channel.release(message);
      const EnterOrder order{
          .user_ref = user_ref + 1, .side = 'B', .shares = tick.shares, .price = tick.price};
      if (tick.side != 'S' || tick.price >= kFair || !risk.passes(order)) continue;
      std::span<std::byte> place;
      must(channel.claim(EnterOrder::kSize, place) == Sent::kOk, "the exchange takes no more orders");
      order.emit(place.first<EnterOrder::kSize>(), kStock);
      must(channel.commit(EnterOrder::kSize) == Sent::kOk, "the order could not be sent");
      ++user_ref;
      risk.position += order.shares;
      own_ns.push_back(ns_between(begin, Clock::now()));
    }
  }
  tell("trader's own part", std::move(own_ns));
}

/// Ticks of an exchange, and when they were due.
class Exchange {
 public:
  Exchange(MessageChannel& channel, std::size_t ticks, double rate)
      : channel_(channel), ticks_(ticks), period_(std::chrono::duration<double>(1 / rate)) {
    took_ns_.reserve(ticks / kTriggerEvery);
  }

  void run() {
    start_ = Clock::now();
    while (orders_ < ticks_ / kTriggerEvery) {
      if (sent_ < ticks_ && Clock::now() >= due(sent_)) send_tick();
      take_orders();
      must(!channel_.has_ended(), "the trader is gone");
    }
    const double seconds = ns_between(start_, Clock::now()) / 1e9;
    std::cout << static_cast<double>(sent_) / seconds << " ticks a second of " << 1 / period_.count() << '\n';
    tell("tick to trade", std::move(took_ns_));
  }

 private:
  [[nodiscard]] Clock::time_point due(std::uint64_t number) const {
    return start_ + std::chrono::duration_cast<Clock::duration>(period_ * static_cast<double>(number));
  }
  [[nodiscard]] static bool is_trigger(std::uint64_t number) {
    return number % kTriggerEvery == kTriggerEvery - 1;
  }
  void send_tick() {
    std::span<std::byte> place;
    if (channel_.claim(AddOrder::kSize, place) != Sent::kOk) return;  // it is late now, and counts as such
    AddOrder{.order_ref = sent_,
             .side = 'S',
             .shares = 100,
             .price = is_trigger(sent_) ? kFair - 100 : kFair + 100}
        .emit(place.first<AddOrder::kSize>(), kStock);
    must(channel_.commit(AddOrder::kSize) == Sent::kOk, "the tick could not be sent");
    ++sent_;
  }
  void take_orders() {
    std::array<Message, 16> messages;
    for (const Message& message : std::span(messages).first(channel_.poll(messages))) {
      must(message.data.size() == EnterOrder::kSize, "the trader sent something else than an order");
      const EnterOrder order = EnterOrder::parse(message.data.first<EnterOrder::kSize>());
      must(order.user_ref == ++orders_, "an order is missing, or there twice");
      took_ns_.push_back(ns_between(due(orders_ * kTriggerEvery - 1), Clock::now()));
      channel_.release(message);
    }
  }

  MessageChannel& channel_;
  std::uint64_t ticks_;
  std::chrono::duration<double> period_;
  Clock::time_point start_;
  std::uint64_t sent_ = 0;
  std::uint64_t orders_ = 0;
  std::vector<double> took_ns_;
};

int main(int argc, char** argv) {
  Device device = must(Device::open(must(load_config())));
  Cm cm = must(Cm::open(device));
  Pd pd = must(Pd::create(device));
  MessageChannel channel = must(MessageChannel::create(pd, device, {.message_bytes = 64}));
  if (argc < 2) return trade(cm, channel), 0;
  const auto ticks = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 10'000;
  const double rate = argc > 3 ? std::strtod(argv[3], nullptr) : 10'000;
  must(ticks >= kTriggerEvery, "too few ticks: each tenth calls for an order, so 10 at least");
  must(rate > 0, "the rate is none, such as 10000");
  const Connection connection =
      must(Connection::connect(cm, channel.qp(), {.to = address_of(argv[1], kPort)}));
  Exchange(channel, ticks, rate).run();
}
