/// Worker service: one end of a uroce connection that measures and verifies.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "apps/common/measured_end.h"
#include "apps/common/opened.h"
#include "apps/common/verify.h"

namespace uroce::apps {

/// Requests: open -> what the other end needs; connect {"peer": that}; sample; verify; counters.
class UroceService : public DeviceService {
 public:
  /// @param give_way       both ends share one core
  /// @param largest_write  bytes, of streams
  UroceService(Config config, bool give_way, std::uint32_t largest_write)
      : DeviceService(std::move(config)), give_way_(give_way), largest_write_(largest_write) {}

  Result<Json> handle(const Json& request) override;
  void idle() override;

 private:
  Result<Json> open();
  Result<Json> connect(const Json& peer);
  Result<Json> verify(const Json& request);
  [[nodiscard]] Json counters() const;

  bool give_way_;
  std::uint32_t largest_write_;
  std::optional<MeasuredEnd> measured_;
  std::optional<Verifier> verifier_;
};

}  // namespace uroce::apps
