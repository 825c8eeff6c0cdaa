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
      if (target->receives.shared() == &receives) detach(*target);
    }
  }
  void add_target(QpContext& target) {
    for (auto& [number, entry] : entries_) entry.receives->make_room(1);  // all of it or nothing
    targets_.push_back(&target);
    target.domain = this;
    target.recv_cq = &none_;
    for (auto& [number, entry] : entries_) entry.receives->add_user();
  }
  void remove_target(QpContext& target) noexcept {
    detach(target);
    target.domain = nullptr;
    std::erase(targets_, &target);
    for (auto& [number, entry] : entries_) entry.receives->remove_user();
  }
  /// What a target has for a CQ before a request names a queue, and when that queue has gone.
  [[nodiscard]] CqRing& no_cq() noexcept { return none_; }
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [number, entry] : entries_) visit(entry);
  }
  [[nodiscard]] const Entry* find(std::uint32_t number) const noexcept {
    const auto found = entries_.find(number);
    return found == entries_.end() ? nullptr : &found->second;
  }

 private:
  void detach(QpContext& target) noexcept {
    target.receives.use(nullptr);
    target.recv_cq = &none_;
  }

  CqRing none_{1};
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::vector<QpContext*> targets_;
};

}  // namespace uroce::transport
