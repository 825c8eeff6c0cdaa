// Bandwidth tests: both sides run the same loop, the one that does not send only serves.
#include <fmt/format.h>

#include <algorithm>

#include "apps/perf/stream.h"

namespace uroce::apps::perf {
namespace {

/// Runs until `is_done`. A message of the peer in between is handed to `on_news`, which may fail.
template <typename Done, typename News>
Status run_until(Session& session, Stream& stream, Done&& is_done, News&& on_news) {
  while (!is_done()) {
    if (is_stopped()) return stopped();
    if (!stream.step()) return *stream.error();
    if (stream.has_news()) {
      auto news = session.hear(kAnswerNs);
      if (!news) return news.error();
      if (auto handled = on_news(*news); !handled) return handled;
    }
    if (stream.is_silent() && session.is_client())
      return Error{.code = Errc::kTimeout, .text = "the peer is silent"};
  }
  return {};
}

Status unexpected(const Json&) {
  return Error{.code = Errc::kPeer, .text = "the peer ended the test too early"};
}

/// What has been measured, if it is known without the peer's part.
Result<Bandwidth> until_now(const Session& session, Bandwidth result, Part part, Error why) {
  const TestSpec& spec = session.spec();
  const bool is_known = part == Part::kMeasured && spec.is_reliable() && !spec.bidirectional;
  if (!is_known || result.messages == 0) return why;
  result.ended = std::move(why);
  return result;
}

Result<Bandwidth> measure_part(Session& session, std::uint32_t size, Part part, const OnSecond& on_second) {
  Stream stream(session, size, part);
  Seconds seconds(part == Part::kMeasured ? session.spec().seconds : 0, kSecond);
  const auto has_sent_all = [&] {
    if (seconds.is_over(stream.time())) on_second(seconds.take(stream.time(), stream.completed()));
    return stream.has_sent_all();
  };
  if (auto said = session.say({{"run", size}, {"warm_up", part == Part::kWarmUp}}); !said)
    return said.error();
  if (auto ready = session.hear(kAnswerNs); !ready) return ready.error();
  stream.start();
  seconds.begin(stream.time());
  if (auto sent = run_until(session, stream, has_sent_all, unexpected); !sent)
    return until_now(session, stream.result(), part, sent.error());
  Bandwidth result = stream.result();
  if (auto said = session.say({{"done", stream.totals()}}); !said)
    return until_now(session, result, part, said.error());
  Json answer;
  const auto on_answer = [&](const Json& news) {
    answer = news;
    stream.set_peer_totals(news.at("sent"));
    return Status{};
  };
  if (auto done = run_until(
          session, stream, [&] { return stream.has_received_all(); }, on_answer);
      !done) {
    return until_now(session, result, part, done.error());
  }
  if (session.spec().bidirectional) stream.check_memory();
  result.lost = stream.lost() + answer.value("lost", std::uint64_t{0});
  if (auto said = session.say({{"checked", true}}); !said) return said.error();
  result.data_errors = stream.data_errors() + answer.at("errors").get<std::uint64_t>();
  result.messages += answer.at("messages").get<std::uint64_t>();
  result.average += answer.at("average").get<double>();
  result.peak += answer.at("peak").get<double>();
  result.rate += answer.at("rate").get<double>();
  result.lost = std::min(result.lost, result.messages);
  if (result.lost == result.messages && result.messages > 0)
    return session.undelivered(fmt::format("none of the {} messages came", result.messages));
  return result;
}

}  // namespace

Result<Bandwidth> measure_bandwidth(Session& session, std::uint32_t size, const OnSecond& on_second) {
  std::uint64_t errors = 0;
  if (session.local().warms_up) {
    const auto warm = measure_part(session, size, Part::kWarmUp, on_second);
    if (!warm) return warm.error();
    errors = warm->data_errors;
  }
  auto measured = measure_part(session, size, Part::kMeasured, on_second);
  if (measured) measured->data_errors += errors;
  return measured;
}

Result<Served> serve_bandwidth(Session& session, std::uint32_t size, Part part) {
  Stream stream(session, size, part);
  if (auto said = session.say({{"ready", true}}); !said) return said.error();
  stream.start();
  const auto on_done = [&](const Json& news) {
    stream.set_peer_totals(news.at("done"));
    return Status{};
  };
  const auto is_done = [&] { return stream.has_sent_all() && stream.has_received_all(); };
  if (auto done = run_until(session, stream, is_done, on_done); !done) return done.error();
  stream.check_memory();
  const Bandwidth own = stream.is_sender() ? stream.result() : Bandwidth{};
  if (auto said = session.say({{"sent", stream.totals()},
                               {"errors", stream.data_errors()},
                               {"lost", stream.lost()},
                               {"messages", own.messages},
                               {"average", own.average},
                               {"peak", own.peak},
                               {"rate", own.rate}});
      !said) {
    return said.error();
  }
  // The client looks at its memory before the next test changes it.
  const auto checked = session.hear(kAnswerNs);
  if (!checked) return checked.error();
  if (part == Part::kWarmUp) return Served{};
  return Served{.received = stream.received(), .lost = stream.lost()};
}

}  // namespace uroce::apps::perf
