/// Datagrams to groups over a faulty network: who is attached gets a copy of what arrives, and nobody else.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/flow.h"
#include "sim/net.h"
#include "sim/world.h"
#include "transport/unreliable_qp.h"

namespace uroce::sim {

/// Devices with UD QPs that attach to groups, send to them and detach again, all drawn from one seed.
///
/// A QP completes exactly one receive, with the datagram's bytes, for each datagram to a group of its that
/// the port shows undamaged or that its own device sends, if the Q_Key is right and there is a receive; its
/// own only if it wants that. A network that repeats nothing is promised each datagram at most once per QP.
/// QPs of different devices may have the same number. IBA 10.5.
class MulticastWorld {
 public:
  /// @param messages  datagrams, of all QPs together
  MulticastWorld(std::uint64_t seed, std::size_t messages);

  /// Runs until everything has been sent, then until nothing moves. Throws Violation.
  void run();
  void add_to(Totals& totals) const;

  [[nodiscard]] Net& net() noexcept { return net_; }

 private:
  static constexpr std::size_t kGroups = 3;

  struct Datagram {
    std::size_t group = 0;
    std::uint32_t length = 0;
    std::uint32_t qkey = 0;
    std::uint64_t seed = 0;  // of the data
    std::size_t source_at = 0;
  };
  struct Member {  // one QP
    unsigned at = 0;
    Qpn qpn{};
    Psn first_psn;
    std::uint32_t qkey = 0;
    bool blocks_own = false;
    std::uint64_t pause_ns = 0;         // longest between two datagrams, and between two posts of receives
    std::vector<std::size_t> slots_at;  // in `inbox`
    std::vector<Datagram> datagrams;

    std::unique_ptr<transport::UdQp> qp;
    std::array<bool, kGroups> groups{};  // attached to
    std::size_t posted = 0;
    std::size_t completed = 0;
    std::uint64_t next_post_ns = 0;
    std::uint64_t next_receive_ns = 0;
    std::deque<std::size_t> free;      // slots
    std::deque<std::size_t> receives;  // posted slots that nothing has been foretold for
    struct Copy {
      std::size_t from;      // member
      std::size_t datagram;  // of it
      std::size_t slot;
    };
    std::deque<Copy> expected;
    std::set<std::pair<std::size_t, std::size_t>> seen;  // member and datagram
  };
  struct Tally {  // of an endpoint
    std::uint64_t copies = 0;
    std::uint64_t bad_qkeys = 0;
    std::uint64_t no_receive = 0;
    std::uint64_t own = 0;
    std::uint64_t no_member = 0;
  };
  struct Frame {  // on its way to the members of an endpoint
    std::size_t from;
    std::size_t datagram;
  };

  void draw_members(Dice& dice, std::size_t messages);
  void open(Member& member);
  void watch();
  [[nodiscard]] Frame frame_of(const wire::PacketView& packet) const;
  void deliver(unsigned at, const Frame& frame);
  [[nodiscard]] bool has_member(unsigned at, std::size_t group) const;

  bool step();
  void jump();
  bool run_endpoint(unsigned at);
  void take_completions(Endpoint& endpoint, unsigned at);
  void on_receive(Member& member, const Wc& wc);
  void end_burst(unsigned at) const;
  bool post(Member& member);
  bool post_receives(Member& member);
  void change_group(Member& member, std::size_t group);
  void check_end();
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] Ticks now() const noexcept;

  Plan setting_;
  std::array<Gid, kGroups> groups_;
  Random random_;
  Net net_;
  std::uint64_t now_ns_ = 0;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::vector<Frame>> shown_;  // by endpoint: what its port showed in this iteration
  std::vector<std::deque<Frame>> local_;   // by endpoint: what it sent to members of its own
  std::vector<Tally> tallies_;             // by endpoint
  std::string broken_promise_;
};

}  // namespace uroce::sim
