// The server's side of a session.
#include "apps/perf/tests.h"

namespace uroce::apps::perf {

Status serve(Session& session) {
  constexpr std::uint64_t kBetweenTests = 60 * kSecond;
  while (true) {
    const auto request = session.hear(kBetweenTests);
    if (!request) return request.error();
    if (request->contains("end")) return {};
    if (!request->contains("run"))
      return Error{.code = Errc::kPeer, .text = "the client asks for something unknown"};
    const auto size = request->at("run").get<std::uint32_t>();
    if (size > session.spec().largest())
      return Error{.code = Errc::kPeer, .text = "the client's size is out of range"};
    auto served = session.spec().latency ? serve_latency(session, size) : serve_bandwidth(session, size);
    if (served) continue;
    (void)session.say({{"error", served.error().text}});
    return served;
  }
}

}  // namespace uroce::apps::perf
