/// Worker service: one end of a connection beside a crowd of others.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "apps/bench/calls.h"
#include "apps/bench/crowd.h"
#include "apps/common/measured_end.h"
#include "apps/common/opened.h"

namespace uroce::apps {

/// Requests: open, connect; make, join, regions, rkeys, learn (see Crowd); ask-cm, answer-cm (see
/// connect_by_cm()); ask-calls, answer-calls (see Calls); sample, with "load" if the client drives its crowd
/// meanwhile: alone (Kind::kRate) or beside its own measurement; with "single" if it sends one WRITE at a
/// time on the crowd's first QP; with "calls" if it calls.
class ScaleService : public DeviceService {
 public:
  ScaleService(Config config, bool give_way) : DeviceService(std::move(config)), give_way_(give_way) {}

  Result<Json> handle(const Json& request) override;
  void idle() override;

 private:
  Result<Json> open();
  Result<Json> connect(const Json& peer);
  Result<Json> grow(const std::string& op, const Json& request);
  Result<Json> make_calls(Result<std::unique_ptr<Calls>> made);
  Result<Json> sample(const Json& request);
  Result<Json> sample_client(const Json& request, const Sample& sample);
  Result<Json> sample_server(const Json& request, const Sample& sample);

  bool give_way_;
  std::optional<MeasuredEnd> measured_;
  std::optional<Crowd> crowd_;
  std::unique_ptr<Calls> calls_;
};

}  // namespace uroce::apps
