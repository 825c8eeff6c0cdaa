/// One process of the mixed-operations soak.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "soak/workload.h"
#include "uroce/mr.h"
#include "uroce/qp.h"

namespace uroce::soak {

/// What the two processes tell each other, in memory shared by fork().
struct Meeting {
  struct Side {
    std::atomic<std::uint32_t> stage;  // 1: addresses are set, 2: connected, 3: all done
    std::uint32_t qpn;
    std::uint32_t rkey;
    std::uint64_t addr;
    Gid gid;
  };
  Side side[2];
};

struct Options {
  std::uint64_t ops = 10'000;
  std::uint64_t seed = 1;
  unsigned seconds = 60;  // deadline
  std::uint32_t mtu = 1024;
  std::uint8_t timeout = 17;  // ack timeout code: 0.54 s, so that no peer which stands still is given up
  Config config[2];
};

/// Runs one side to the end.
///
/// Both sides send and receive: each works on its own part of the peer's memory, keeps a model of it, and
/// checks the data of every READ, atomic and receive; at the end the whole target is compared with what the
/// peer's workload makes of it.
class Side {
 public:
  Side(const Options& options, Meeting& meeting, unsigned index);

  /// @return 0, or 1 after printing what went wrong.
  int run();

 private:
  struct Posted {
    Op op;
    std::uint64_t wr_id;
    std::uint32_t slot;
    std::uint64_t original;           // expected of an atomic
    std::vector<std::byte> expected;  // of a READ
  };

  bool open();
  bool meet(std::uint32_t stage);
  bool connect();
  bool post_some();
  bool post(const Op& op);
  [[nodiscard]] bool overlaps_read(const Op& op) const;
  bool post_receives();
  bool handle(const Wc& wc);
  bool on_sent(const Wc& wc);
  bool on_received(const Wc& wc);
  bool poll();
  bool check_target();
  bool check_faults();
  bool fail(const std::string& what);
  [[nodiscard]] bool is_late() const;

  const Options& options_;
  Meeting& meeting_;
  const unsigned index_;
  Workload own_;    // what this side does
  Workload peers_;  // what the peer does
  std::vector<Device> device_;
  std::vector<Pd> pd_;
  std::vector<Cq> cq_;
  std::vector<Mr> memory_;  // target and counters | send slots | receive slots
  std::vector<Qp> qp_;
  std::deque<Posted> posted_;
  std::deque<std::uint32_t> receives_;  // slots, in order
  std::uint64_t posted_ops_ = 0;
  std::uint64_t completed_ops_ = 0;
  std::uint64_t peers_ops_ = 0;  // of the peer's workload that are known to have arrived
  std::uint64_t received_ = 0;
  std::uint32_t next_slot_ = 0;
  std::uint64_t deadline_ns_ = 0;
};

}  // namespace uroce::soak
