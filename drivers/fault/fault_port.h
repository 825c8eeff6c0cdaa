/// Decorator that loses, duplicates, reorders, corrupts, truncates, delays and marks frames, from a seed.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "base/random.h"
#include "drivers/fault/held_frames.h"
#include "drivers/fault/rules.h"
#include "port/port.h"
#include "port/port_counters.h"

namespace uroce::drivers {

/// Events injected in one direction. All monotonic.
struct FaultCounters {
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t truncated = 0;
  std::uint64_t delayed = 0;
  std::uint64_t ce_marked = 0;
  std::uint64_t skipped = 0;  ///< faults that were due, but not injected for lack of room
};

/// A port with faults. The same seed, rules and frames give the same faults.
///
/// Threads: as Port; fault_counters() any.
class FaultPort final : public port::Port {
 public:
  /// @param clock  nanoseconds, monotonic; asked for the delay action only
  FaultPort(std::unique_ptr<port::Port> inner, std::vector<fault::Rule> rules, std::uint64_t seed,
            std::function<std::uint64_t()> clock);
  ~FaultPort() override;

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return inner_->info(); }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override;
  void rx_release() noexcept override;
  [[nodiscard]] bool shows_more() const noexcept override { return inner_->shows_more(); }
  [[nodiscard]] unsigned bursts_to_see_all() const noexcept override { return inner_->bursts_to_see_all(); }
  void leave_fetching_to(FetchAhead* ahead) noexcept override { inner_->leave_fetching_to(ahead); }
  void leave_ringing_to(DueBell* bell) noexcept override { inner_->leave_ringing_to(bell); }
  void spare_others(bool yes) noexcept override { inner_->spare_others(yes); }
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override;
  void tx_commit() noexcept override;
  [[nodiscard]] bool takes_pieces() const noexcept override { return inner_->takes_pieces(); }
  void tx_flush() noexcept override;
  [[nodiscard]] int rx_fd() const noexcept override { return inner_->rx_fd(); }
  bool arm_rx() noexcept override;
  bool arm_rx_beside() noexcept override { return inner_->arm_rx_beside(); }
  void disarm_rx() noexcept override { inner_->disarm_rx(); }
  void keep_awake() noexcept override { inner_->keep_awake(); }
  [[nodiscard]] bool holds_back() const noexcept override {
    return rx_.store.has_held() || tx_.store.has_held() || inner_->holds_back();
  }
  void enter_thread() noexcept override { inner_->enter_thread(); }
  [[nodiscard]] port::LinkState link_state() noexcept override { return inner_->link_state(); }
  void listen(std::span<const MacAddress> groups) noexcept override { inner_->listen(groups); }
  void keep_from_kernel(std::span<const Gid> addresses) noexcept override {
    inner_->keep_from_kernel(addresses);
  }
  [[nodiscard]] port::PortCounters counters() const noexcept override { return with_own(inner_->counters()); }
  [[nodiscard]] port::PortCounters known_counters() const noexcept override {
    return with_own(inner_->known_counters());
  }
  [[nodiscard]] FaultCounters fault_counters(fault::Direction direction) const noexcept;

 private:
  using Frame = fault::HeldFrames::Frame;
  using Bytes = std::span<const std::byte>;

  [[nodiscard]] port::PortCounters with_own(port::PortCounters counters) const noexcept;
  /// All that the rules say about one frame.
  struct Verdict {
    bool drop = false;
    bool duplicate = false;
    bool corrupt = false;
    bool truncate = false;
    bool mark_ce = false;
    std::uint64_t reorder = 0;
    std::uint64_t delay_ns = 0;

    [[nodiscard]] bool alters() const noexcept { return corrupt || truncate || mark_ce; }
    [[nodiscard]] bool holds() const noexcept { return reorder != 0 || delay_ns != 0; }
    [[nodiscard]] bool is_clean() const noexcept { return !drop && !duplicate && !alters() && !holds(); }
  };
  struct LiveCounters {
    port::Tally dropped, duplicated, reordered, corrupted, truncated, delayed, ce_marked, skipped;
  };
  /// Everything about one direction.
  struct Path {
    Path(std::uint64_t seed, std::size_t frame_bytes);

    std::vector<fault::Rule> rules;
    Random random;
    fault::HeldFrames store;
    LiveCounters counters;
  };

  [[nodiscard]] Verdict judge(Path& path, Bytes frame, const RoceFields* fields) noexcept;
  void alter(Path& path, Frame& frame, const Verdict& verdict, const RoceFields* fields) noexcept;
  void hold(Path& path, Frame* frame, const Verdict& verdict) noexcept;
  void duplicate(Path& path, Bytes bytes) noexcept;
  unsigned show_due(std::span<port::RxFrame> frames, unsigned count, std::size_t limit) noexcept;
  unsigned receive(const port::RxFrame& frame, std::span<port::RxFrame> frames, unsigned count) noexcept;
  void send_altered(Bytes bytes, const Verdict& verdict, const RoceFields* fields) noexcept;
  bool send_due() noexcept;
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return uses_clock_ ? clock_() : 0; }

  std::unique_ptr<port::Port> inner_;
  std::function<std::uint64_t()> clock_;
  bool uses_clock_ = false;
  Path rx_;
  Path tx_;
  bool is_inner_showing_ = false;
  std::array<port::RxFrame, port::kBurst> arrived_{};  // a member, so that no burst clears it
  std::vector<Frame*> shown_;                          // from rx_.store, until rx_release()
  std::byte* claimed_ = nullptr;
  std::uint32_t claimed_len_ = 0;
};

}  // namespace uroce::drivers
