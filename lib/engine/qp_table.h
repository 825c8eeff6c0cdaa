/// QPs of a loop by number.
#pragma once

#include <cstdint>
#include <vector>

#include "base/prefetch.h"
#include "transport/queue_pair.h"

namespace uroce::engine {

/// Open-addressing table QPN -> QP, so that QPNs can be random over all 24 bits.
///
/// Threads: loop.
class QpTable {
 public:
  QpTable() : slots_(64) {}

  [[nodiscard]] transport::QueuePair* find(Qpn qpn) const noexcept {
    for (std::size_t i = hash(qpn) & mask();; i = (i + 1) & mask()) {
      if (slots_[i].qpn == raw(qpn)) return slots_[i].qp;
      if (slots_[i].qpn == kEmpty) return nullptr;
    }
  }
  /// Brings the place of that QPN into the cache.
  void prefetch(Qpn qpn) const noexcept { uroce::prefetch(&slots_[hash(qpn) & mask()]); }
  void insert(transport::QueuePair& qp);
  void erase(Qpn qpn) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  template <typename F>
  void for_each(F&& use) {
    for (auto& slot : slots_) {
      if (slot.qp != nullptr) use(*slot.qp);
    }
  }

 private:
  static constexpr std::uint32_t kEmpty = 0xffff'ffff;
  struct Slot {
    std::uint32_t qpn = kEmpty;
    transport::QueuePair* qp = nullptr;
  };
  [[nodiscard]] static std::size_t hash(Qpn qpn) noexcept { return raw(qpn) * 0x9e3779b1U >> 8; }
  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
  static void place(std::vector<Slot>& slots, transport::QueuePair& qp) noexcept;

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace uroce::engine
