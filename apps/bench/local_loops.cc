#include "apps/bench/local_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace uroce::apps {
namespace {

constexpr std::uint32_t kBytes = 64;
constexpr std::uint32_t kList = 16;
constexpr std::uint32_t kLists = 8;  // in flight
constexpr std::size_t kMemory = 4096;

}  // namespace

Result<Json> LocalLoops::handle(const Json& request) {
  const auto op = request.value("op", "");
  if (op == "open") {
    if (auto opened = open(); !opened) return opened.error();
    return Json::object();
  }
  return op == "sample" ? sample(request) : Result<Json>(Json::object());
}

Status LocalLoops::open() {
  config_.mode = Mode::kApp;
  config_.lcores = fmt::format("{},{}", cores_.client, cores_.server);
  if (auto opened = open_device(); !opened) return opened;
  for (unsigned loop = 0; loop < 2; ++loop) {
    if (auto made = keep(lanes_[loop], make_lane(loop)); !made) return made;
  }
  return {};
}

Result<LocalLoops::Lane> LocalLoops::make_lane(unsigned loop) {
  auto memory = Mr::alloc(*pd_, kMemory, access::kAll);
  if (!memory) return memory.error();
  auto cq = Cq::create(*device_, 4 * kLists, loop);
  if (!cq) return cq.error();
  auto from = Qp::create(*pd_, *cq, *cq, {.max_send_wr = 2 * kList * kLists, .max_recv_wr = 1});
  if (!from) return from.error();
  auto to = Qp::create(*pd_, *cq, *cq, {.max_send_wr = 1, .max_recv_wr = 1});
  if (!to) return to.error();
  const Gid gid = device_->gids().at(0).gid;
  const auto address = [&](const Qp& qp) {
    return QpAddress{.lid = 0, .qpn = qp.qpn(), .psn = Psn(raw(qp.qpn())), .gid = gid};
  };
  const auto connect = [&](Qp& qp, const Qp& peer) {
    return qp.connect(connect_attributes(address(qp), address(peer), device_->active_mtu(), 0));
  };
  if (auto connected = connect(*from, *to); !connected) return connected.error();
  if (auto connected = connect(*to, *from); !connected) return connected.error();
  return Lane{std::move(*memory), std::move(*cq), std::move(*from), std::move(*to)};
}

Result<Json> LocalLoops::run(Lane& lane, const Sample& sample) {
  const TickClock clock = TickClock::calibrate();
  RateMeter written(kMillisecond, sample.warm_up_ns());
  const Sge sge = lane.memory.sge(0, kBytes);
  std::array<SendWr, kList> wrs;
  wrs.fill({.sges = {&sge, 1},
            .opcode = WrOpcode::kRdmaWrite,
            .remote_addr = lane.memory.addr() + kMemory / 2,
            .rkey = lane.memory.rkey()});
  wrs.back().flags = send_flag::kSignaled;
  std::array<Wc, kLists> wcs;
  Patience patience(now_ns() + sample.limit_ns(), false);
  const std::uint64_t end = clock.ticks() + clock.from_ns(sample.run_ns);
  for (std::size_t in_flight = 0; clock.ticks() < end || in_flight > 0;) {
    while (in_flight < kLists && clock.ticks() < end) {
      if (lane.from.post_send(std::span<const SendWr>(wrs)) != kList) break;
      ++in_flight;
    }
    const std::size_t count = lane.cq.poll(wcs);
    for (std::size_t i = 0; i < count; ++i) {
      if (!wcs[i].ok()) return Error{.code = Errc::kPeer, .text = lane.from.error_text()};
    }
    in_flight -= count;
    if (count > 0) written.add(count * kList, now_ns());
    if (count == 0 && patience.is_over()) return Error{.code = Errc::kTimeout, .text = "WRITEs hang"};
  }
  return rate_result(written);
}

Result<Json> LocalLoops::sample(const Json& request) {
  const Sample sample = Sample::from(request);
  const auto wanted = request.at("loops").get<std::vector<unsigned>>();
  const auto wants = [&wanted](unsigned loop) {
    return std::find(wanted.begin(), wanted.end(), loop) != wanted.end();
  };
  const Result<Json> nothing = Json{{"rate", 0.0}};
  Result<Json> other = nothing;
  std::thread second;
  if (wants(1)) {
    second = std::thread([&] {
      const auto pinned = pin_to_core(cores_.server);
      other = pinned ? run(*lanes_[1], sample) : Result<Json>(pinned.error());
    });
  }
  auto own = wants(0) ? run(*lanes_[0], sample) : nothing;
  if (second.joinable()) second.join();
  if (!own) return own;
  if (!other) return other;
  return Json{{"rate", own->at("rate").get<double>() + other->at("rate").get<double>()}};
}

}  // namespace uroce::apps
