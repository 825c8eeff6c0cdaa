#include "transport/responder_resources.h"

#include <algorithm>

namespace uroce::transport {

void ResponderResources::resize(std::size_t depth) {
  if (depth <= entries_.size()) return;
  // Oldest first, so that the ring keeps its order; `order_` names the same entries by their new places.
  const std::size_t old_size = entries_.size();
  std::vector<std::uint32_t> order(depth);
  for (std::size_t i = 0; i < queued_; ++i) {
    const std::size_t place = order_[(order_head_ + i) % old_size];
    order[i] = static_cast<std::uint32_t>((place + old_size - newest_) % old_size);
  }
  entries_.reserve(depth);  // from here on nothing fails
  std::rotate(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(newest_), entries_.end());
  entries_.resize(depth);
  order_ = std::move(order);
  newest_ = old_size;
  order_head_ = 0;
}

void ResponderResources::clear() noexcept {
  for (auto& entry : entries_) entry = {};
  parts_.clear();
  queued_ = 0;
}

ResponderResource* ResponderResources::add() noexcept {
  if (entries_.empty()) return nullptr;
  ResponderResource& entry = entries_[newest_];
  if (entry.queued) {
    if (!entry.answered) return nullptr;
    unqueue(entry);
  }
  newest_ = (newest_ + 1) % entries_.size();
  entry = {};
  return &entry;
}

ResponderResource* ResponderResources::find(Psn psn) noexcept {
  std::size_t i = newest_;
  for (std::size_t left = entries_.size(); left > 0; --left) {
    i = (i == 0 ? entries_.size() : i) - 1;
    if (span_from(psn, entries_[i].first_psn) < entries_[i].packets) return &entries_[i];
  }
  return nullptr;
}

void ResponderResources::queue(ResponderResource& entry) noexcept {
  if (entry.queued) return;
  entry.queued = true;
  const auto index = static_cast<std::uint32_t>(&entry - entries_.data());
  const auto age = [this](std::uint32_t of) { return (of + entries_.size() - newest_) % entries_.size(); };
  std::size_t place = queued_++;
  for (; place > 0; --place) {
    const std::uint32_t other = order_[(order_head_ + place - 1) % order_.size()];
    if (age(other) < age(index)) break;
    order_[(order_head_ + place) % order_.size()] = other;
  }
  order_[(order_head_ + place) % order_.size()] = index;
}

bool ResponderResources::add_part(const ResponderResource& entry, std::uint32_t next,
                                  std::uint32_t end) noexcept {
  if (next <= entry.end && end >= entry.next) return false;
  Part* last = nullptr;
  for (Part& part : parts_) {
    if (part.first_psn != entry.first_psn) continue;
    if (part.next <= next && end <= part.end) return true;
    last = &part;
  }
  if (parts_.size() < parts_.capacity()) {
    parts_.push_back({.first_psn = entry.first_psn, .next = next, .end = end});
    return true;
  }
  if (last == nullptr) return false;
  last->next = std::min(last->next, next);
  last->end = std::max(last->end, end);
  return true;
}

/// @return whether a part of `entry` waits
bool ResponderResources::take_part(ResponderResource& entry) noexcept {
  const auto part = std::ranges::find(parts_, entry.first_psn, &Part::first_psn);
  if (part == parts_.end()) return false;
  entry.next = part->next;
  entry.end = part->end;
  parts_.erase(part);
  return true;
}

void ResponderResources::pop() noexcept {
  ResponderResource& entry = entries_[order_[order_head_]];
  entry.answered = true;
  if (!parts_.empty() && take_part(entry)) [[unlikely]]
    return;
  entry.queued = false;
  order_head_ = (order_head_ + 1) % order_.size();
  --queued_;
}

void ResponderResources::unqueue(const ResponderResource& entry) noexcept {
  const auto place = static_cast<std::uint32_t>(&entry - entries_.data());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < queued_; ++i) {
    const std::uint32_t index = order_[(order_head_ + i) % order_.size()];
    if (index != place) order_[(order_head_ + kept++) % order_.size()] = index;
  }
  queued_ = kept;
  std::erase_if(parts_, [&](const Part& part) { return part.first_psn == entry.first_psn; });
}

}  // namespace uroce::transport
