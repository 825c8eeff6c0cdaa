#include "sim/mix_receives.h"

#include <algorithm>

namespace uroce::sim {

namespace {

constexpr std::uint32_t kPd = 3;
constexpr std::uint32_t kMaxSges = 4;

}  // namespace

MixReceives::MixReceives(const MixQueue& plan, Endpoint& endpoint, std::uint32_t number)
    : plan_(plan), endpoint_(endpoint) {
  for (std::size_t i = 0; i < plan.slots.size(); ++i) free_.push_back(i);
  if (!plan.is_shared) return;
  shared_ = std::make_unique<transport::SharedReceives>(number, kPd, 16, kMaxSges);
  ring_ = &shared_->ring;
}

std::string MixReceives::name(const char* what) const {
  return "receive queue " + std::to_string(shared_ ? shared_->number : 0) + " of endpoint " +
         std::to_string(plan_.at) + ": " + what;
}

bool MixReceives::post(std::uint64_t now_ns, Random& random) {
  if (now_ns < next_post_ns_ || plan_.users == 0) return false;
  bool any = false;
  while (!free_.empty()) {
    std::swap(free_[random.below(free_.size())], free_.back());
    const std::size_t slot = free_.back();
    std::vector<Sge> list;
    const Bank& inbox = endpoint_.memory.inbox;
    for (const Piece& piece : plan_.slots[slot]) {
      list.push_back({inbox.addr(piece.at), piece.len, Lkey{inbox.key()}});
    }
    if (!ring_->put({.wr_id = slot, .sges = list}, 0)) break;
    ring_->publish(1);
    free_.pop_back();
    posted_.push_back(slot);
    any = true;
    if (plan_.pause_ns == 0 || random.below(2) == 0) continue;
    next_post_ns_ = now_ns + 1 + random.below(plan_.pause_ns);
    break;
  }
  return any;
}

MixReceives::Has MixReceives::has_one() const noexcept {
  if (!plan_.is_shared) return taken_ < posted_.size() ? Has::kYes : Has::kNo;
  // Each packet of this burst may have taken one, and each user may hold one.
  return posted_.size() > packets_ + plan_.users ? Has::kYes : Has::kMaybe;
}

const std::vector<Piece>& MixReceives::complete(std::uint64_t wr_id) {
  const auto slot = std::find(posted_.begin(), posted_.end(), wr_id);
  require(slot != posted_.end(), name("a receive completed that is not posted"));
  require(plan_.is_shared || slot == posted_.begin(), name("a receive completed before an older one"));
  posted_.erase(slot);
  if (taken_ > 0) --taken_;
  free_.push_back(wr_id);
  return plan_.slots[wr_id];
}

void MixReceives::end_burst() {
  packets_ = 0;
  require(taken_ == 0, name("a receive has not completed"));
  require(limit_ == 0 || posted_.size() >= limit_, name("fewer receives than the limit, and no event"));
}

void MixReceives::change(Random& random) {
  if (!plan_.is_shared) return;
  if (random.below(50) == 0) {
    const auto depth = static_cast<std::uint32_t>(1U << random.below(6));
    const bool is_resized = shared_->resize(depth);
    // Users may hold receives that are posted here and not in the queue any more.
    require(is_resized || posted_.size() > depth || limit_ > depth, name("it cannot be resized"));
    require(!is_resized || (posted_.size() <= depth + plan_.users && limit_ <= depth),
            name("it became smaller than what is posted"));
  }
  if (!plan_.is_limited || limit_ != 0 || random.below(20) != 0) return;
  limit_ = static_cast<std::uint32_t>(1 + random.below(posted_.size() + 2));
  endpoint_.loop.arm_limit(*shared_, limit_);
}

void MixReceives::on_limit_event() {
  require(limit_ != 0, name("a limit event although none is armed"));
  require(posted_.size() < limit_ + plan_.users, name("a limit event although enough receives are left"));
  limit_ = 0;
  ++limit_events_;
}

void MixReceives::accept_remains() {
  if (!plan_.is_shared || !plan_.has_uc) return;
  Bank& inbox = endpoint_.memory.inbox;
  for (const std::size_t slot : posted_) {
    for (const Piece& piece : plan_.slots[slot]) {
      const auto bytes = inbox.bytes(piece.at, piece.len);
      std::copy(bytes.begin(), bytes.end(), inbox.image(piece.at, piece.len).begin());
    }
  }
}

}  // namespace uroce::sim
