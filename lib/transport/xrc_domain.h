/// The shared receive queues that XRC connections reach.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "transport/context.h"

namespace uroce::transport {

/// XRC domain: every target QP of it delivers into every shared receive queue of it. IBA A14 ?
///
/// Threads: control commands by whoever owns the loop; find() by the loop.
class XrcDomain {
 public:
  struct Entry {
    SharedReceives* receives = nullptr;
    CqRing* cq = nullptr;  ///< where they complete
  };

  void add(SharedReceives& receives, CqRing& cq) {
    receives.make_room(targets_.size());
    entries_.emplace(receives.number, Entry{&receives, &cq});
    for (std::size_t i = 0; i < targets_.size(); ++i) receives.add_user();
  }
  void remove(SharedReceives& receives) noexcept {
    entries_.erase(receives.number);
    for (QpContext* target : targets_) {
      if (target->receives.shared() == &receives) target->receives.use(nullptr);
    }
  }
  void add_target(QpContext& target) {
    for (auto& [number, entry] : entries_) entry.receives->make_room(1);  // all of it or nothing
    targets_.push_back(&target);
    target.domain = this;
    for (auto& [number, entry] : entries_) entry.receives->add_user();
  }
  void remove_target(QpContext& target) noexcept {
    target.receives.use(nullptr);
    target.domain = nullptr;
    std::erase(targets_, &target);
    for (auto& [number, entry] : entries_) entry.receives->remove_user();
  }
  [[nodiscard]] const Entry* find(std::uint32_t number) const noexcept {
    const auto found = entries_.find(number);
    return found == entries_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::vector<QpContext*> targets_;
};

}  // namespace uroce::transport
