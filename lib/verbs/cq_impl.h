/// The inside of a Cq.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/asymmetric_barrier.h"
#include "engine/loop_runner.h"
#include "engine/patience.h"
#include "transport/cq_ring.h"
#include "uroce/cq.h"
#include "verbs/device_impl.h"

namespace uroce {

struct Cq::Impl {
  Impl(Device::Impl& device_impl, const CqAttr& attr);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Device::Impl& device;
  engine::LoopRunner& runner;
  const unsigned loop;
  transport::CqRing ring;
  engine::Patience patience;  // of who waits for its events

  /// The descriptor of its events, made with the first call; -1 with errno: there is none left.
  [[nodiscard]] int event_fd() noexcept;
  /// That, if somebody has asked for it; otherwise -1.
  [[nodiscard]] int known_fd() const noexcept { return fd_.load(std::memory_order_acquire); }

  /// Takes completions, without those of QPs that are gone.
  std::size_t take(std::span<Wc> out) noexcept { return ring.is_empty() ? 0 : take_some(out); }
  /// Those that had no room, too: fewer than wanted means that there are no more. Waits for the loop.
  std::size_t take_late(std::span<Wc> out) noexcept;
  /// One more QP, or one less, can be purged. The former may throw bad_alloc.
  void add_qp();
  void remove_qp() noexcept;
  /// Removes the completions of `qpn` that are in the ring now. The caller owns the loop. While another
  /// thread takes completions they may keep their room, until those behind them are taken.
  void purge(Qpn qpn) noexcept;

 private:
  std::mutex fd_mutex_;  // one thread makes it
  std::atomic<int> fd_{-1};

  struct Purge {
    Qpn qpn;
    std::uint32_t until;  // ring index
  };
  std::size_t take_some(std::span<Wc> out) noexcept {
    is_taking_.store(true, std::memory_order_relaxed);
    light_barrier();  // pairs with purge(): it sees that, or this the purge
    if (has_purges_.load(std::memory_order_acquire)) [[unlikely]]
      return take_others(out);
    const std::size_t count = ring.poll(out);
    is_taking_.store(false, std::memory_order_release);  // pairs with purge()
    return count;
  }
  std::size_t take_others(std::span<Wc> out) noexcept;
  std::size_t filter(std::span<Wc> taken, std::uint32_t first) noexcept;
  [[nodiscard]] bool is_gone(Qpn qpn, std::uint32_t index) const noexcept;

  std::atomic<bool> is_taking_{false};  // the application, without the mutex
  std::atomic<bool> has_purges_{false};
  std::mutex purge_mutex_;
  std::vector<Purge> purges_;  // one for a QP, with room for those of all
  std::size_t qps_ = 0;
};

/// "completion queue of 8 entries overflowed: its QPs need 64", and how to mend it.
[[nodiscard]] std::string describe_overflow(const transport::CqSize& cq);

}  // namespace uroce
