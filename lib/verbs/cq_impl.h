/// The inside of a Cq.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/loop_runner.h"
#include "transport/cq_ring.h"
#include "uroce/cq.h"

namespace uroce {

struct Cq::Impl {
  Impl(engine::LoopRunner& loop_runner, unsigned loop_index, std::uint32_t entries, int event_fd);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  engine::LoopRunner& runner;
  const unsigned loop;
  const int fd;
  transport::CqRing ring;
  std::atomic<std::uint32_t> qps{0};  // that use this CQ

  /// Takes completions, without those of QPs that are gone.
  std::size_t take(std::span<Wc> out) noexcept;
  /// Removes the completions of `qpn` that are in the ring now. The caller owns the loop.
  void purge(Qpn qpn);

 private:
  struct Purge {
    Qpn qpn;
    std::uint32_t until;  // ring index
  };
  std::size_t filter(std::span<Wc> taken, std::uint32_t first) noexcept;

  std::atomic<bool> has_purges_{false};
  std::mutex purge_mutex_;
  std::vector<Purge> purges_;
};

}  // namespace uroce
