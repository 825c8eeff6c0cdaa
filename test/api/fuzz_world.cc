#include "api/fuzz_world.h"

namespace uroce::api {

namespace {

constexpr std::uint32_t kMaxQps = 16;  // small, so that the limit is met

Device open_end(const std::string& link, std::uint64_t seed, bool roce_v1) {
  Config config;
  config.port = "shm:" + link;
  config.no_huge = true;
  config.max_qp = kMaxQps;
  config.seed = seed | 1;
  config.roce_v1 = roce_v1;
  config.credits = seed / 2 % 3 != 0;  // at both ends, or at one
  auto device = Device::open(config);
  if (!device) throw Broken("the device does not open: " + device.error().text);
  return std::move(*device);
}

}  // namespace

World::World(const std::string& link, std::uint64_t seed) {
  sides_.reserve(2);
  const bool roce_v1 = seed / 256 % 2 == 0;
  sides_.emplace_back(open_end(link, 2 * seed, roce_v1));
  sides_.emplace_back(open_end(link, 2 * seed + 2, roce_v1));
}

World::Step World::choose() {
  struct Weighted {
    Step step;
    std::uint32_t weight;
  };
  static constexpr std::array<Weighted, 40> kSteps{{
      {&World::create_pd, 2},    {&World::destroy_pd, 2},   {&World::create_mr, 8},
      {&World::destroy_mr, 6},   {&World::create_cq, 3},    {&World::destroy_cq, 3},
      {&World::create_qp, 4},    {&World::destroy_qp, 3},   {&World::replace_qp, 1},
      {&World::connect, 4},      {&World::modify, 6},       {&World::to_error_or_reset, 2},
      {&World::query, 4},        {&World::move_handles, 3}, {&World::post_send, 26},
      {&World::post_recv, 16},   {&World::poll, 20},        {&World::events, 8},
      {&World::async_events, 4}, {&World::progress, 12},    {&World::create_mw, 3},
      {&World::destroy_mw, 2},   {&World::bind_type1, 3},   {&World::dereg_mr, 2},
      {&World::rereg_mr, 3},     {&World::resize_cq, 2},    {&World::moderate_cq, 2},
      {&World::create_srq, 2},   {&World::destroy_srq, 1},  {&World::resize_srq, 2},
      {&World::arm_srq, 1},      {&World::post_srq, 8},     {&World::create_xrcd, 1},
      {&World::destroy_xrcd, 1}, {&World::create_ah, 4},    {&World::destroy_ah, 1},
      {&World::attach, 3},       {&World::detach, 1},       {&World::change_ip, 1},
  }};
  static constexpr std::uint32_t kSum = [] {
    std::uint32_t sum = 0;
    for (const Weighted& one : kSteps) sum += one.weight;
    return sum;
  }();
  std::uint32_t at = below(kSum);
  for (const Weighted& one : kSteps) {
    if (at < one.weight) return one.step;
    at -= one.weight;
  }
  return &World::poll;
}

void World::run_sequence(std::uint64_t seed) {
  random_ = Random(seed);
  is_tame_ = chance(2);
  next_wr_ = 2;
  constexpr std::array kTypes{QpType::kRc, QpType::kRc, QpType::kRc,
                              QpType::kUc, QpType::kUd, QpType::kXrcSend};
  type_ = kTypes[below(kTypes.size())];
  for (Side& one : sides_) check_gids(one);
  for (Side& one : sides_) {
    create_pd(one);
    register_in_arena(one, *one.pds.front());
    create_cq(one);
    if (type_ != QpType::kRc) create_srq(one);
    for (unsigned left = 1 + below(3); left > 0; --left) create_qp(one);
    for (unsigned left = below(4); left > 0; --left) post_recv(one), post_srq(one);
  }
  for (unsigned left = type_ == QpType::kRc ? 0 : 3; left > 0; --left) connect(side());
  for (unsigned left = below(3); left > 0 && type_ == QpType::kUd; --left) {
    create_ah(side());
    attach(side());
  }
  if (!wrong(4)) connect(side());
  for (std::uint32_t left = 8 + below(is_tame_ ? 112 : 56); left > 0; --left) {
    ++totals_.calls;
    (this->*choose())(side());
  }
  check_all();
  tear_down();
}

void World::check_all() {
  for (Side& one : sides_) one.arena.check();
}

/// Everything goes, in an order that the headers allow, with whatever is in flight.
void World::tear_down() {
  bool any = true;
  while (any) {
    any = false;
    for (Side& one : sides_) {
      using Goes = void (World::*)(Side&);
      constexpr std::array<Goes, 8> kAll{&World::destroy_qp, &World::destroy_mr,  &World::destroy_mw,
                                         &World::destroy_cq, &World::destroy_pd,  &World::destroy_srq,
                                         &World::destroy_ah, &World::destroy_xrcd};
      (this->*kAll[below(kAll.size())])(one);
      any = any || !one.qps.empty() || !one.mrs.empty() || !one.mws.empty() || !one.cqs.empty() ||
            !one.pds.empty() || !one.srqs.empty() || !one.ahs.empty() || !one.xrcds.empty();
    }
  }
  for (Side& one : sides_) restore_ips(one);
  for (unsigned i = 0; i < 4; ++i) {
    for (Side& one : sides_) one.device.progress();
  }
  for (Side& one : sides_) {
    async_events(one);
    one.stale_keys.clear();
    one.qpns.clear();
    one.srq_numbers.clear();
    one.orphans.clear();
  }
  check_all();
}

}  // namespace uroce::api
