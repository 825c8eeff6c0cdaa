/// One direction of a connection at run time: posts what the plan says and judges what comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/poll_loop.h"
#include "sim/plan.h"
#include "transport/rc_qp.h"

namespace uroce::sim {

/// A machine: a loop, memory, completion queues, and what the flows to it share.
struct Endpoint {
  Endpoint(const Plan& plan, unsigned index, Net& net);

  EndpointPlan memory;  // first: its bytes outlive the QPs
  std::unique_ptr<port::Port> port;
  engine::Addresses addresses;
  mem::KeyTable keys;
  engine::PollLoop loop;
  transport::CqRing first_cq;
  transport::CqRing second_cq;
  transport::CqRing& send_cq;
  transport::CqRing& recv_cq;
  std::uint64_t stalled_until_ns = 0;
  std::uint64_t now_ns = 0;  ///< of its application, when it last ran
  std::uint64_t completions = 0;

  std::set<std::uint64_t> tickets;  // original values that additions to the ticket word returned
  struct Swap {
    std::uint64_t compare, swap, original;
    std::uint64_t posted_ns, done_ns;
  };
  std::vector<Swap> lock_swaps;
};

/// Work requests of one requester and the receives of its responder.
class Flow {
 public:
  /// @param qp  the requester's QP; @param peer the responder's
  Flow(const FlowPlan& plan, Endpoint& from, Endpoint& to, transport::RcQp& qp, transport::RcQp& peer);

  /// Posts sends, as the application of `from`. @return true if something was posted.
  bool post_sends(std::uint64_t now_ns, Random& random);
  /// Posts receives, as the application of `to`.
  bool post_receives(std::uint64_t now_ns, Random& random);
  void on_send_completion(const Wc& wc);
  void on_receive_completion(const Wc& wc);

  [[nodiscard]] bool is_done() const noexcept {
    return completed_ == plan_.messages.size() && received_ == receives_.size();
  }
  /// When the applications want to post again; 0: not before something completes.
  [[nodiscard]] std::uint64_t next_send_ns() const noexcept;
  [[nodiscard]] std::uint64_t next_receive_ns() const noexcept;
  [[nodiscard]] const FlowPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] transport::RcQp& qp() noexcept { return qp_; }
  [[nodiscard]] std::size_t completed() const noexcept { return completed_; }
  [[nodiscard]] std::string progress(Ticks now) const;
  /// Messages that send packets.
  [[nodiscard]] std::uint64_t sent_messages() const noexcept;
  /// Messages that the responder counts: long READs come in several requests.
  [[nodiscard]] std::uint64_t wire_messages(std::uint32_t mtu, std::uint32_t max_unacked) const noexcept;

 private:
  struct Running {  // of one message
    std::uint64_t compare = 0;
    std::uint32_t invalidate_key = 0;
    bool binds = false;  // a message that is local does, or else invalidates
    std::uint64_t posted_ns = 0;
  };

  [[nodiscard]] bool may_post() const noexcept;
  bool post(const Message& message, std::size_t index);
  void apply(const Message& message, Running& running);
  void apply_atomic(const Message& message, Running& running);
  void aim_local(SendWr& wr, const MwBind& to, Running& running);
  void check_windows(std::size_t index);
  void scatter(Bank& bank, const std::vector<Piece>& pieces, std::span<const std::byte> data);
  void finish(std::size_t index);
  void finish_atomic(const Message& message, const Running& running);
  void scribble(Bank& bank, const std::vector<Piece>& pieces);
  [[nodiscard]] std::string name(const char* what, std::size_t index) const;
  [[nodiscard]] static std::vector<Sge> sges(const Bank& bank, const std::vector<Piece>& pieces);

  const FlowPlan& plan_;
  Endpoint& from_;
  Endpoint& to_;
  transport::RcQp& qp_;
  transport::RcQp& peer_;
  std::vector<Running> running_;
  std::vector<std::size_t> receives_;  // messages that take one
  std::size_t posted_ = 0;
  std::size_t completed_ = 0;
  std::size_t receives_posted_ = 0;
  std::size_t received_ = 0;
  std::uint64_t next_post_ns_ = 0;
  std::uint64_t next_receive_ns_ = 0;
  std::uint64_t lock_seen_ = 0;  // of the lock word, when it was last swapped
  std::vector<std::byte> scratch_;
  std::uint32_t window_ = 0;        // of type 1
  std::uint32_t binds_ = 0;         // of it, posted
  std::uint32_t local_window_ = 0;  // of type 2
  bool is_bound_ = false;           // it will be, once all that is posted is done
};

}  // namespace uroce::sim
