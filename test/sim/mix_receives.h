/// A receive queue of a mixed schedule at run time: posts, and what is known of which receive is used when.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sim/flow.h"
#include "sim/mix_plan.h"
#include "transport/receives.h"

namespace uroce::sim {

/// Receives of one QP, in order, or of several, in any order. Completions of a burst are foretold from its
/// packets: exactly where one QP takes them, and as far as possible where several do.
class MixReceives {
 public:
  MixReceives(const MixQueue& plan, Endpoint& endpoint, std::uint32_t number);

  /// nullptr unless shared.
  [[nodiscard]] transport::SharedReceives* shared() noexcept { return shared_.get(); }
  [[nodiscard]] const MixQueue& plan() const noexcept { return plan_; }
  /// Not shared: the queue of its QP.
  void attach(transport::RecvQueue& ring) noexcept { ring_ = &ring; }

  bool post(std::uint64_t now_ns, Random& random);
  [[nodiscard]] std::uint64_t next_post_ns() const noexcept { return free_.empty() ? 0 : next_post_ns_; }

  // While packets arrive.
  enum class Has : std::uint8_t { kNo, kMaybe, kYes };
  [[nodiscard]] Has has_one() const noexcept;
  void note_packet() noexcept { ++packets_; }
  /// Not shared: the receive for the next message, whose end is foretold by take().
  [[nodiscard]] const std::vector<Piece>& front() const { return plan_.slots[posted_[taken_]]; }
  void take() noexcept { ++taken_; }

  /// A receive has completed, and belongs to the application again.
  [[nodiscard]] const std::vector<Piece>& complete(std::uint64_t wr_id);
  /// All completions of the burst have been seen.
  void end_burst();

  /// Shared: now and then arms its limit, or takes on another capacity.
  void change(Random& random);
  void on_limit_event();
  [[nodiscard]] std::uint64_t limit_events() const noexcept { return limit_events_; }

  /// Bytes of posted receives that messages which came to nothing may have left there.
  void accept_remains();

 private:
  [[nodiscard]] std::string name(const char* what) const;

  const MixQueue& plan_;
  Endpoint& endpoint_;
  std::unique_ptr<transport::SharedReceives> shared_;
  transport::RecvQueue* ring_ = nullptr;
  std::vector<std::size_t> free_;   // slots
  std::deque<std::size_t> posted_;  // slots, oldest first
  std::size_t taken_ = 0;           // of them, in this burst
  std::size_t packets_ = 0;         // of this burst, for any user
  std::uint64_t next_post_ns_ = 0;
  std::uint32_t limit_ = 0;  // armed
  std::uint64_t limit_events_ = 0;
};

}  // namespace uroce::sim
