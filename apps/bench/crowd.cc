#include "apps/bench/crowd.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <utility>

namespace uroce::apps {
namespace {

constexpr std::uint32_t kPiece = 64;  // bytes of a region

/// What the process has in memory, bytes.
std::uint64_t resident() {
  std::uint64_t all = 0;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * static_cast<std::uint64_t>(::getpagesize());
}

/// What was spent since it was made.
class Cost {
 public:
  [[nodiscard]] Json json() const {
    return {{"ns", now_ns() - ns_}, {"bytes", static_cast<std::int64_t>(resident() - bytes_)}};
  }

 private:
  std::uint64_t bytes_ = resident();
  std::uint64_t ns_ = now_ns();
};

QpAddress address_of(std::uint32_t qpn, const Gid& gid) {
  return {.lid = 0, .qpn = Qpn{qpn}, .psn = Psn(qpn), .gid = gid};
}

}  // namespace

Json Load::to_json() const {
  return {{"bytes", bytes},
          {"list", list},
          {"outstanding", outstanding},
          {"random_qp", random_qp},
          {"random_region", random_region},
          {"gap_ns", gap_ns}};
}

Load Load::from(const Json& json) {
  return {.bytes = json.at("bytes").get<std::uint32_t>(),
          .list = json.at("list").get<std::uint32_t>(),
          .outstanding = json.at("outstanding").get<std::uint32_t>(),
          .random_qp = json.at("random_qp").get<bool>(),
          .random_region = json.at("random_region").get<bool>(),
          .gap_ns = json.at("gap_ns").get<std::uint64_t>()};
}

Result<Crowd> Crowd::create(Device& device, Pd& pd, bool give_way) {
  auto memory = Mr::alloc(pd, kMemoryBytes, access::kAll);
  if (!memory) return memory.error();
  std::memset(memory->memory().data(), 0x5a, kMemoryBytes);
  auto cq = Cq::create(device, 2 * kMaxLists);
  if (!cq) return cq.error();
  const auto gid_index = choose_gid(device, {});
  if (!gid_index) return gid_index.error();
  return Crowd(device, pd, std::move(*memory), std::move(*cq), *gid_index, give_way);
}

Json Crowd::describe() const {
  return {{"addr", memory_.addr()},
          {"rkey", raw(memory_.rkey())},
          {"ece", device_->config().offer().options},
          {"gid", to_wire(address_of(0, device_->gids().at(gid_index_).gid))}};
}

void Crowd::meet(const Json& peer) {
  peer_addr_ = peer.at("addr").get<std::uint64_t>();
  peer_rkey_ = Rkey{peer.at("rkey").get<std::uint32_t>()};
  agreed_ = device_->config().offer();
  agreed_.options &= peer.at("ece").get<std::uint32_t>();
  if (const auto address = from_wire(peer.at("gid").get<std::string>())) peer_gid_ = address->gid;
}

Result<Json> Crowd::make(std::uint32_t count, std::uint32_t send_depth, std::uint32_t recv_depth) {
  Json qpns = Json::array();
  qps_.reserve(qps_.size() + count);
  const Cost cost;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto qp = Qp::create(*pd_, cq_, cq_, {.max_send_wr = send_depth, .max_recv_wr = recv_depth});
    if (!qp) return qp.error();
    qps_.push_back(std::move(*qp));
  }
  Json made = cost.json();
  for (auto i = qps_.size() - count; i < qps_.size(); ++i) qpns.push_back(raw(qps_[i].qpn()));
  made["qpns"] = std::move(qpns);
  return made;
}

Result<Json> Crowd::join(const Json& qpns) {
  const Gid own = device_->gids().at(gid_index_).gid;
  const Cost cost;
  for (const auto& qpn : qpns) {
    Qp& qp = qps_.at(joined_++);
    QpAttr attr =
        connect_attributes(address_of(raw(qp.qpn()), own), address_of(qpn.get<std::uint32_t>(), peer_gid_),
                           device_->active_mtu(), gid_index_);
    attr.timeout = local_link_timeout(*device_);
    if (auto taken = qp.set_ece(agreed_); !taken) return taken.error();
    if (auto connected = qp.connect(attr); !connected) return connected.error();
  }
  return cost.json();
}

Result<Json> Crowd::add_regions(std::uint32_t count) {
  const Cost cost;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t offset = regions_.size() * kPiece % kMemoryBytes;
    auto region = Mr::reg(*pd_, memory_.memory().subspan(offset, kPiece), access::kAll);
    if (!region) return region.error();
    regions_.push_back(std::move(*region));
  }
  return cost.json();
}

Json Crowd::rkeys(std::uint32_t first, std::uint32_t count) const {
  Json keys = Json::array();
  for (std::uint32_t i = first; i < first + count; ++i) keys.push_back(raw(regions_.at(i).rkey()));
  return {{"rkeys", std::move(keys)}};
}

void Crowd::learn_rkeys(const Json& rkeys) {
  for (const auto& key : rkeys) peer_regions_.push_back(key.get<std::uint32_t>());
}

/// xorshift64
std::uint64_t Crowd::random() noexcept {
  random_ ^= random_ << 13U;
  random_ ^= random_ >> 7U;
  random_ ^= random_ << 17U;
  return random_;
}

bool Crowd::post(std::size_t qp) noexcept {
  for (std::uint32_t i = 0; i < load_.list; ++i) {
    const std::uint64_t number = posted_ + i;
    std::uint64_t offset = number % (kMemoryBytes / load_.bytes) * load_.bytes;
    Rkey rkey = peer_rkey_;
    if (load_.random_region && !peer_regions_.empty()) {
      const std::size_t region = random() % peer_regions_.size();
      rkey = Rkey{peer_regions_[region]};
      offset = region * kPiece % kMemoryBytes;
    }
    sges_[i] = memory_.sge(number % (kMemoryBytes / load_.bytes) * load_.bytes, load_.bytes);
    SendWr& wr = wrs_[i];
    wr.sges = {&sges_[i], 1};
    wr.opcode = WrOpcode::kRdmaWrite;
    wr.flags = i + 1 == load_.list ? send_flag::kSignaled : std::uint8_t{0};
    wr.remote_addr = peer_addr_ + offset;
    wr.rkey = rkey;
  }
  if (qps_[qp].post_send(std::span<const SendWr>(wrs_).first(load_.list)) != load_.list) return false;
  posted_ += load_.list;
  ++in_flight_;
  return true;
}

std::uint32_t Crowd::reap() noexcept {
  const std::size_t count = cq_.poll(wcs_);
  for (std::size_t i = 0; i < count; ++i) {
    --in_flight_;
    if (!wcs_[i].ok() && failure_.empty()) failure_ = to_string(wcs_[i].status);
  }
  return static_cast<std::uint32_t>(count) * load_.list;
}

/// A QP whose ring is full is passed over.
void Crowd::fill() noexcept {
  for (std::uint32_t tries = 0; in_flight_ < load_.outstanding && failure_.empty(); ++tries) {
    if (load_.gap_ns != 0) {
      const std::uint64_t now = clock_.ticks();
      if (now < due_) return;
      due_ = std::max(due_ + clock_.from_ns(load_.gap_ns), now - clock_.from_ns(10 * load_.gap_ns));
    }
    const bool posted = post(load_.random_qp ? random() % qps_.size() : next_qp_);
    next_qp_ = next_qp_ + 1 == qps_.size() ? 0 : next_qp_ + 1;
    if (!posted && tries >= qps_.size()) return;
  }
}

void Crowd::begin(const Load& load) {
  load_ = load;
  load_.list = std::clamp(load_.list, 1U, kMaxList);
  load_.outstanding = std::min(load_.outstanding, kMaxLists);
  next_qp_ = 0;
  due_ = clock_.ticks();
  failure_.clear();
  fill();
}

std::uint32_t Crowd::step() noexcept {
  const std::uint32_t messages = reap();
  fill();
  return messages;
}

Status Crowd::drain(Patience& patience) noexcept {
  while (in_flight_ > 0) {
    if (reap() == 0 && patience.is_over()) {
      return Error{.code = Errc::kTimeout, .text = "WRITEs did not complete in time"};
    }
  }
  if (failure_.empty()) return {};
  return Error{.code = Errc::kPeer, .text = "a WRITE failed: " + failure_};
}

Result<Json> Crowd::rate(const Load& load, const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  RateMeter completed(kMillisecond, sample.warm_up_ns());
  const std::uint64_t end = clock_.ticks() + clock_.from_ns(sample.run_ns);
  begin(load);
  while (clock_.ticks() < end && failure_.empty()) {
    const std::uint32_t messages = reap();
    fill();
    if (messages > 0) completed.add(messages, now_ns());
    if (messages == 0 && patience.is_over()) break;
  }
  if (auto drained = drain(patience); !drained) return drained.error();
  return rate_result(completed);
}

Result<Json> Crowd::one_at_a_time(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  Histogram ticks;
  const std::uint64_t start = clock_.ticks();
  const std::uint64_t warm = start + clock_.from_ns(sample.warm_up_ns());
  const std::uint64_t end = start + clock_.from_ns(sample.run_ns);
  begin({.bytes = sample.bytes, .outstanding = 0});
  for (std::uint64_t begin = start; begin < end;) {
    begin = clock_.ticks();
    if (!post(0)) return Error{.code = Errc::kSystem, .text = qps_.front().error_text()};
    if (auto done = drain(patience); !done) return done.error();
    if (begin >= warm) ticks.add(clock_.ticks() - begin);
  }
  return rtt_result(ticks, clock_);
}

}  // namespace uroce::apps
