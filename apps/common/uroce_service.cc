#include "apps/common/uroce_service.h"

namespace uroce::apps {

Result<Json> UroceService::handle(const Json& request) {
  const auto op = request.value("op", "");
  if (op == "open") return open();
  if (!verifier_) return Error{.code = Errc::kBadState, .text = "the device is not open"};
  if (op == "connect") return connect(request.at("peer"));
  if (op == "counters") return counters();
  auto result = op == "verify" ? verify(request)
                               : measured_->run(Sample::from(request), request.at("client").get<bool>());
  linger(*device_, kMillisecond / 5);  // the peer may still wait for an acknowledgement
  return result;
}

void UroceService::idle() {
  if (device_) device_->progress();
}

Result<Json> UroceService::open() {
  if (auto opened = open_device(); !opened) return opened.error();
  if (auto made = keep(measured_, MeasuredEnd::create(*device_, *pd_, give_way_, largest_write_)); !made)
    return made.error();
  if (auto made = keep(verifier_, Verifier::create(*device_, *pd_, give_way_)); !made) return made.error();
  return Json{{"measured", measured_->describe()}, {"verifier", verifier_->describe()}};
}

Result<Json> UroceService::connect(const Json& peer) {
  if (auto connected = measured_->connect(peer.at("measured")); !connected) return connected.error();
  if (auto connected = verifier_->connect(peer.at("verifier")); !connected) return connected.error();
  return Json::object();
}

Result<Json> UroceService::verify(const Json& request) {
  if (!request.at("client").get<bool>()) return verifier_->serve();
  return verifier_->drive(request.at("seed").get<std::uint64_t>(), request.at("rounds").get<unsigned>());
}

Json UroceService::counters() const {
  Json all = Json::object();
  for (const auto& counter : device_->counters()) all[counter.name] = counter.value;
  return all;
}

}  // namespace uroce::apps
