#include "apps/bench/cm_set_up.h"

#include <chrono>

#include "apps/common/clock.h"
#include "uroce/connection.h"

namespace uroce::apps {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kPort = 7471;
constexpr std::chrono::seconds kPatience = 5s;  // the other end may be late to begin
constexpr QpInitAttr kDepth{.max_send_wr = 16, .max_recv_wr = 1};

/// What connections of a device have in common.
struct Base {
  Cm cm;
  Cq cq;

  static Result<Base> open(Device& device) {
    auto cm = Cm::open(device);
    if (!cm) return cm.error();
    auto cq = Cq::create(device, 64);
    if (!cq) return cq.error();
    return Base{std::move(*cm), std::move(*cq)};
  }
};

}  // namespace

Result<Json> connect_by_cm(Device& device, Pd& pd, const Gid& to, std::uint32_t count) {
  auto base = Base::open(device);
  if (!base) return base.error();
  std::uint64_t ns = 0;
  for (std::uint32_t i = 0; i <= count; ++i) {
    const std::uint64_t begin = now_ns();
    auto qp = Qp::create(pd, base->cq, base->cq, kDepth);
    if (!qp) return qp.error();
    auto connection = Connection::connect(base->cm, *qp, {.to = {to, kPort}, .patience = kPatience});
    if (!connection) return connection.error();
    if (i > 0) ns += now_ns() - begin;
    connection->disconnect();
  }
  return Json{{"ns", ns}};
}

Result<Json> accept_by_cm(Device& device, Pd& pd, std::uint32_t count) {
  auto base = Base::open(device);
  if (!base) return base.error();
  auto listener = Listener::create(base->cm, {{}, kPort});
  if (!listener) return listener.error();
  for (std::uint32_t i = 0; i <= count; ++i) {
    auto qp = Qp::create(pd, base->cq, base->cq, kDepth);
    if (!qp) return qp.error();
    auto request = listener->wait(kPatience);
    if (!request) return Error{.code = Errc::kTimeout, .text = "nobody asks for a connection"};
    auto connection = request->accept(*qp, {});
    if (!connection) return connection.error();
    if (!connection->wait_end(kPatience)) return Error{.code = Errc::kTimeout, .text = "it does not end"};
  }
  return Json::object();
}

}  // namespace uroce::apps
