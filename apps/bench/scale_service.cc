#include "apps/bench/scale_service.h"

#include "apps/bench/cm_set_up.h"

namespace uroce::apps {

Result<Json> ScaleService::handle(const Json& request) {
  const auto op = request.value("op", "");
  if (op == "open") return open();
  if (!crowd_) return Error{.code = Errc::kBadState, .text = "the device is not open"};
  if (op == "connect") return connect(request.at("peer"));
  if (op != "sample") return grow(op, request);
  auto result = sample(request);
  linger(*device_, kMillisecond / 5);  // the peer may still wait for an acknowledgement
  return result;
}

void ScaleService::idle() {
  if (device_) device_->progress();
}

Result<Json> ScaleService::open() {
  if (auto opened = open_device(); !opened) return opened.error();
  if (auto made = keep(measured_, MeasuredEnd::create(*device_, *pd_, give_way_)); !made) return made.error();
  if (auto made = keep(crowd_, Crowd::create(*device_, *pd_, give_way_)); !made) return made.error();
  return Json{{"measured", measured_->describe()}, {"crowd", crowd_->describe()}};
}

Result<Json> ScaleService::connect(const Json& peer) {
  if (auto connected = measured_->connect(peer.at("measured")); !connected) return connected.error();
  crowd_->meet(peer.at("crowd"));
  return Json::object();
}

Result<Json> ScaleService::grow(const std::string& op, const Json& request) {
  const auto count = request.value("count", 0U);
  if (op == "make") {
    return crowd_->make(count, request.at("send_depth").get<std::uint32_t>(),
                        request.at("recv_depth").get<std::uint32_t>());
  }
  if (op == "ask-cm") return connect_by_cm(*device_, *pd_, crowd_->peer_gid(), count);
  if (op == "answer-cm") return accept_by_cm(*device_, *pd_, count);
  if (op == "ask-calls") return make_calls(Calls::connect(*device_, *pd_, crowd_->peer_gid(), give_way_));
  if (op == "answer-calls") return make_calls(Calls::listen(*device_, *pd_, give_way_));
  if (op == "join") return crowd_->join(request.at("qpns"));
  if (op == "regions") return crowd_->add_regions(count);
  if (op == "rkeys") return crowd_->rkeys(request.at("first").get<std::uint32_t>(), count);
  if (op == "learn") crowd_->learn_rkeys(request.at("rkeys"));
  return Json::object();
}

Result<Json> ScaleService::make_calls(Result<std::unique_ptr<Calls>> made) {
  if (!made) return made.error();
  calls_ = std::move(*made);
  return Json::object();
}

Result<Json> ScaleService::sample(const Json& request) {
  const Sample sample = Sample::from(request);
  if (request.contains("calls")) return calls_->run(sample);
  return request.at("client").get<bool>() ? sample_client(request, sample) : sample_server(request, sample);
}

Result<Json> ScaleService::sample_client(const Json& request, const Sample& sample) {
  const bool single = request.contains("single");
  if (!single && !request.contains("load")) return measured_->run(sample, true);
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  Result<Json> result = Json::object();
  if (single) {
    result = crowd_->one_at_a_time(sample);
  } else if (sample.kind == Kind::kRate) {
    result = crowd_->rate(Load::from(request.at("load")), sample);
  } else {
    RateMeter completed(kMillisecond, sample.warm_up_ns());  // as Crowd::rate() has it
    crowd_->begin(Load::from(request.at("load")));
    measured_->beside([&] {
      if (const std::uint32_t messages = crowd_->step(); messages > 0) completed.add(messages, now_ns());
    });
    result = measured_->run(sample, true);
    measured_->beside({});
    if (result && sample.kind == Kind::kRtt) (*result)["rate"] = completed.typical();
    if (auto drained = crowd_->drain(patience); !drained && result) return drained.error();
  }
  if (!result) return result;
  if (auto ended = measured_->end_stream(patience); !ended) return ended.error();
  return result;
}

/// Beside a crowd there is one message more, which says that the crowd has finished, too.
Result<Json> ScaleService::sample_server(const Json& request, const Sample& sample) {
  Sample stream = sample;
  stream.kind = Kind::kStream;
  const bool single = request.contains("single");
  const bool loaded = request.contains("load");
  if (!single && (!loaded || sample.kind != Kind::kRate)) {
    auto served = measured_->run(sample, false);
    if (!served || !loaded) return served;
  }
  return measured_->run(stream, false);
}

}  // namespace uroce::apps
