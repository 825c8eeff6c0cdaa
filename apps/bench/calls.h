/// Calls between two processes, RpcClient and RpcServer, as they are measured beside messages.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "apps/common/clock.h"
#include "apps/common/endpoint.h"
#include "apps/common/sample.h"
#include "apps/common/worker.h"
#include "uroce/rpc.h"

namespace uroce::apps {

/// One end: of Kind::kRtt one call at a time, of Kind::kRate as many as come with kInFlight under way. A
/// reply is as long as its request.
///
/// Threads: one. Lifetime: device and domain outlive it.
class Calls {
 public:
  static constexpr std::uint32_t kInFlight = 64;

  /// The server's end waits until the client is there, the client's until the server listens.
  static Result<std::unique_ptr<Calls>> listen(Device& device, Pd& pd, bool give_way);
  static Result<std::unique_ptr<Calls>> connect(Device& device, Pd& pd, const Gid& to, bool give_way);

  Result<Json> run(const Sample& sample) { return client_ ? run_client(sample) : run_server(sample); }

 private:
  Calls(Cm cm, bool give_way) : cm_(std::move(cm)), give_way_(give_way) {}

  Result<Json> run_client(const Sample& sample);
  Result<Json> run_server(const Sample& sample);
  /// @return false: there is no room for another one now
  Result<bool> begin(std::uint16_t method, std::uint32_t bytes);
  /// One call, until it is answered.
  Status ask(std::uint16_t method, std::uint32_t bytes, Patience& patience);
  /// The ends of calls, `most` at a time; those that brought no reply are a failure.
  Result<std::uint32_t> take(std::uint32_t bytes, std::size_t most = kInFlight);
  Status await_all(std::uint32_t bytes, Patience& patience);
  Result<Json> round_trips(const Sample& sample, Patience& patience);
  Result<Json> rate(const Sample& sample, Patience& patience);

  Cm cm_;
  std::optional<RpcServer> server_;
  std::optional<RpcClient> client_;
  bool give_way_;
  std::array<RpcReply, kInFlight> replies_{};
  std::uint64_t came_ = 0;  // ticks, when the last ones were taken
  TickClock clock_ = TickClock::calibrate();
};

}  // namespace uroce::apps
