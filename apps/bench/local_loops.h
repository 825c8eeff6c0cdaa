/// Worker service: two loops of one device, each run by a thread of its own, with traffic inside each.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "apps/common/cores.h"
#include "apps/common/endpoint.h"
#include "apps/common/opened.h"
#include "apps/common/sample.h"

namespace uroce::apps {

/// Requests: open; sample with {"loops": 1 or 2}: 64 B WRITEs per second from a QP to another of the same
/// loop, all loops together.
class LocalLoops : public DeviceService {
 public:
  LocalLoops(Config config, const CorePair& cores) : DeviceService(std::move(config)), cores_(cores) {}

  Result<Json> handle(const Json& request) override;

 private:
  /// What one loop works on; nothing is shared with the other one's.
  struct Lane {
    Mr memory;
    Cq cq;
    Qp from;
    Qp to;
  };

  Status open();
  Result<Lane> make_lane(unsigned loop);
  Result<Json> sample(const Json& request);
  static Result<Json> run(Lane& lane, const Sample& sample);

  CorePair cores_;
  std::array<std::optional<Lane>, 2> lanes_;
};

/// Worker service that has nothing to do: the other end of what needs none.
class NoService : public Service {
 public:
  Result<Json> handle(const Json&) override { return Json::object(); }
};

}  // namespace uroce::apps
