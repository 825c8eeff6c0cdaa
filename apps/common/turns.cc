#include "apps/common/turns.h"

#include <fmt/format.h>

#include <utility>

#include "apps/common/clock.h"

namespace uroce::apps {

Result<Reached> take(const Turn& turn) {
  auto answers = turn.pair->call(turn.client, turn.server, turn.limit_ns + 2 * kSecond);
  if (!answers) {
    return Error{.code = answers.error().code,
                 .text = fmt::format("{}: {}", turn.name, answers.error().text)};
  }
  const Json& measured =
      answers->client.contains("p50") || answers->client.contains("rate") ? answers->client : answers->server;
  return Reached{.p50 = measured.value("p50", 0.0),
                 .p99 = measured.value("p99", 0.0),
                 .rate = measured.value("rate", 0.0),
                 .interruptions = answers->client.value("interruptions", std::uint64_t{0}) +
                                  answers->server.value("interruptions", std::uint64_t{0}),
                 .p999 = measured.value("p999", 0.0),
                 .max = measured.value("max", 0.0),
                 .cpu_ns = answers->client.value("cpu_ns", 0.0) + answers->server.value("cpu_ns", 0.0),
                 .offered = measured.value("offered", std::uint64_t{0}),
                 .answered = measured.value("answered", std::uint64_t{0}),
                 .saturated = measured.value("saturated", false)};
}

Result<std::map<std::string, Samples>> take_in_turns(std::span<const Turn> turns, unsigned rounds,
                                                     const std::function<void(const std::string&)>& on_step,
                                                     const std::function<void()>& look) {
  std::map<std::string, Samples> samples;
  for (unsigned round = 0; round < rounds; ++round) {
    for (const auto& turn : turns) {
      on_step(fmt::format("{} ({}/{})", turn.name, round + 1, rounds));
      look();
      auto reached = take(turn);
      if (!reached) return reached.error();
      samples[turn.name].all.push_back(*reached);
    }
  }
  look();
  return samples;
}

}  // namespace uroce::apps
