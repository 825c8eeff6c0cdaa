/// Runs a plan in virtual time and checks every promise.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/flow.h"
#include "sim/net.h"
#include "sim/plan.h"
#include "sim/wire_rules.h"
#include "transport/rc_qp.h"

namespace uroce::sim {

/// Sums over one or more runs.
struct Totals {
  std::uint64_t schedules = 0;
  std::uint64_t messages = 0;
  std::uint64_t packets = 0;
  std::uint64_t go_backs = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t probes = 0;
  std::uint64_t rnr_naks = 0;
  std::uint64_t credit_waits = 0;  // turns that ended for want of credits
  std::uint64_t credit_updates = 0;
  std::uint64_t credit_questions = 0;
  std::uint64_t limited = 0;  // messages that began without credits
  std::uint64_t duplicates = 0;
  std::uint64_t replays = 0;
  std::uint64_t implied_naks = 0;
  std::uint64_t selective_naks = 0;
  std::uint64_t joint_acks = 0;
  std::uint64_t repeated = 0;  // packets, by requesters that repeat selectively
  std::uint64_t held = 0;
  std::uint64_t cnps_sent = 0;
  std::uint64_t cnps_handled = 0;
  std::uint64_t cnps_ignored = 0;
  std::uint64_t paced = 0;  // turns that ended for want of the right to send
  std::uint64_t damaged = 0;
  std::uint64_t received = 0;       // of mixed schedules
  std::uint64_t lost_messages = 0;  // dropped by their responder
  std::uint64_t no_receive = 0;     // datagrams and UC packets that found no receive
  std::uint64_t bad_qkeys = 0;
  std::uint64_t limit_events = 0;
  std::uint64_t virtual_ns = 0;
};
void add_counters(Totals& totals, const Counters& counters);

/// All endpoints, flows and the network between them.
class World {
 public:
  explicit World(const Plan& plan);

  /// Runs until everything has completed, then until nothing moves. Throws Violation.
  void run();
  void add_to(Totals& totals) const;

  /// When everything had completed.
  [[nodiscard]] std::uint64_t done_ns() const noexcept { return done_ns_; }
  [[nodiscard]] Net& net() noexcept { return net_; }
  [[nodiscard]] Endpoint& endpoint(unsigned index) noexcept { return *endpoints_[index]; }
  [[nodiscard]] Flow& flow(std::size_t index) noexcept { return *flows_[index]; }

 private:
  void connect(const FlowPlan& flow, const FlowPlan& back, transport::RcQp& qp);
  void watch();
  void judge(const wire::PacketView& packet);
  void judge_alone(const wire::PacketView& packet);
  void judge_cnp(std::size_t flow, const wire::PacketView& packet);
  bool step();
  bool run_endpoint(unsigned index);
  void take_completions(Endpoint& endpoint);
  void jump();
  void check_memory();
  void check_atomics(unsigned index);
  void check_swaps(Endpoint& endpoint, std::uint64_t word);
  void check_counters(unsigned index);
  void check_cnps(unsigned index) const;
  void check_clean_counters(unsigned index) const;
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] std::uint64_t limit_ns() const;
  [[nodiscard]] std::uint64_t timeout_ns() const noexcept;
  [[nodiscard]] Ticks now() const noexcept;

  const Plan& plan_;
  Random random_;
  Net net_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t done_ns_ = 0;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<transport::RcQp>> qps_;  // of the flow with the same index
  std::vector<std::unique_ptr<Flow>> flows_;
  std::unordered_map<std::uint32_t, std::size_t> flow_of_qpn_;
  std::vector<WireRules> rules_;  // of the flow with the same index
  std::string broken_rule_;
};

}  // namespace uroce::sim
