// The server's side of a session.
#include "apps/perf/tests.h"

namespace uroce::apps::perf {

Result<Served> serve(Session& session) {
  constexpr std::uint64_t kBetweenTests = 60 * kSecond;
  Served all;
  while (true) {
    const auto request = session.hear(kBetweenTests);
    if (!request) return request.error();
    if (request->contains("end")) return all;
    if (!request->contains("run"))
      return Error{.code = Errc::kPeer, .text = "the client asks for something unknown"};
    const auto size = request->at("run").get<std::uint32_t>();
    const bool is_whole = session.spec().verb != Verb::kAtomic || size == session.spec().size;
    if (size == 0 || size > session.spec().largest() || !is_whole)
      return Error{.code = Errc::kPeer, .text = "the client's size is out of range"};
    const Part part = request->value("warm_up", false) ? Part::kWarmUp : Part::kMeasured;
    const auto served =
        session.spec().latency ? serve_latency(session, size) : serve_bandwidth(session, size, part);
    if (!served) {
      (void)session.say({{"error", served.error().text}});
      return served.error();
    }
    all.received += served->received;
    all.lost += served->lost;
  }
}

}  // namespace uroce::apps::perf
