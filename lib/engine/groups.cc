#include "engine/groups.h"

#include <algorithm>
#include <utility>

namespace uroce::engine {

namespace {

template <typename Vector>
auto place_of(Vector& groups, const Gid& gid) noexcept {
  return std::lower_bound(groups.begin(), groups.end(), gid,
                          [](const Group& group, const Gid& wanted) { return group.gid < wanted; });
}

}  // namespace

const Group* Groups::find(const Gid& gid) const noexcept {
  const auto place = place_of(groups_, gid);
  return place != groups_.end() && place->gid == gid ? &*place : nullptr;
}

void Groups::attach(const Gid& gid, unsigned owner, transport::QueuePair* member) {
  auto place = place_of(groups_, gid);
  if (place != groups_.end() && place->gid == gid) {
    if (member != nullptr) place->members.push_back(member);
  } else {
    Group made{.gid = gid, .members = {}, .attached = std::vector<std::uint32_t>(loops_, 0)};
    if (member != nullptr) made.members.push_back(member);
    place = groups_.insert(place, std::move(made));
  }
  ++place->attached[owner];
}

void Groups::detach(const Gid& gid, unsigned owner, transport::QueuePair* member) noexcept {
  const auto place = place_of(groups_, gid);
  if (place == groups_.end() || place->gid != gid || place->attached[owner] == 0) return;
  if (member != nullptr) std::erase(place->members, member);
  --place->attached[owner];
  const bool is_left = std::all_of(place->attached.begin(), place->attached.end(),
                                   [](std::uint32_t members) { return members == 0; });
  if (is_left) groups_.erase(place);
}

}  // namespace uroce::engine
