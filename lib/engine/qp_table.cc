#include "engine/qp_table.h"

namespace uroce::engine {

void QpTable::place(std::vector<Slot>& slots, transport::QueuePair& qp) noexcept {
  const std::size_t mask = slots.size() - 1;
  std::size_t i = hash(qp.context().qpn) & mask;
  while (slots[i].qpn != kEmpty) i = (i + 1) & mask;
  slots[i] = {raw(qp.context().qpn), &qp};
}

void QpTable::insert(transport::QueuePair& qp) {
  if (2 * (size_ + 1) > slots_.size()) {
    std::vector<Slot> larger(2 * slots_.size());
    for_each([&larger](transport::QueuePair& old) { place(larger, old); });
    slots_ = std::move(larger);
  }
  place(slots_, qp);
  ++size_;
}

void QpTable::erase(Qpn qpn) noexcept {
  std::size_t i = hash(qpn) & mask();
  while (slots_[i].qpn != raw(qpn)) {
    if (slots_[i].qpn == kEmpty) return;
    i = (i + 1) & mask();
  }
  slots_[i] = {};
  --size_;
  // Close the gap: what follows may have been placed beyond it.
  for (std::size_t j = (i + 1) & mask(); slots_[j].qpn != kEmpty; j = (j + 1) & mask()) {
    transport::QueuePair* moved = slots_[j].qp;
    slots_[j] = {};
    place(slots_, *moved);
  }
}

}  // namespace uroce::engine
