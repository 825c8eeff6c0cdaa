/// Agents of the communication manager and their applications over a faulty network, in virtual time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cm/agent.h"
#include "sim/cm_plan.h"

namespace uroce::sim {

/// Runs one schedule; throws std::runtime_error when a promise is broken:
/// an id brings at most one event that ends it, and exactly one if it is neither open nor let go;
/// in the end a connection is established at both of its ends, with the same numbers, or at none;
/// where both applications want it and the network does what it must, it is established;
/// private data arrive as sent; nothing is left when all ids are closed.
class CmWorld {
 public:
  explicit CmWorld(const CmPlan& plan, bool trace = false);
  ~CmWorld();
  void run();
  void add_to(CmTotals& totals) const;

 private:
  struct Node;
  /// One end of a connection, as its application sees it.
  struct Side {
    unsigned attempt = 0;
    unsigned node = 0;
    unsigned life = 0;  ///< of the node
    CmId id{};
    bool is_active = false;
    bool is_established = false;
    bool is_let_go = false;  ///< closed or refused by its own application: no event is due
    bool is_closed = false;
    bool has_heard = false;
    bool has_replied = false;
    unsigned ends = 0;
    unsigned exits = 0;
    std::optional<Qpn> qpn;  ///< while it has a QP
    std::optional<QpAttr> attr;
  };
  struct Attempt {
    unsigned from = 0;
    unsigned to = 0;
    Side* active = nullptr;
    std::vector<Side*> passive;
    bool is_disturbed = false;  ///< by an application, or by another use of its QPs
  };

  // The clock.
  void at(std::uint64_t ns, std::function<void()> what);
  void after(std::uint64_t most_ns, std::function<void()> what);
  void run_until(std::uint64_t ns);
  [[nodiscard]] bool chance(double p);
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }

  // The network.
  void carry(unsigned from, const AhAttr& to, const wire::Mad& mad);
  [[nodiscard]] bool is_lost(const wire::Mad& mad, unsigned to);
  void deliver(unsigned from, unsigned to, const wire::Mad& mad);
  void send_data(Side& side);

  // The applications.
  void start(unsigned node);
  void restart(unsigned node);
  void listen(unsigned node, std::uint16_t port);
  void begin_attempt();
  void on_event(Node& node, CmEvent&& event);
  Side& side_of(Node& node, const CmEvent& event);
  void on_end(Side& side, const CmEvent& event);
  void answer(Side& side);
  void take_reply(Side& side);
  void live(Side& side);
  void close(Side& side);
  void disconnect(Side& side);
  [[nodiscard]] bool is_alive(const Side& side) const;
  [[nodiscard]] std::optional<Qpn> free_qpn(unsigned node);
  [[nodiscard]] cm::Agent& agent(const Side& side);

  // The promises.
  void require(bool holds, const std::string& what) const;
  void check_private(std::span<const std::byte> bytes, unsigned attempt, bool is_reply) const;
  void check_attempt(const Attempt& attempt);
  void check_side(const Side& side);
  void check_all();
  void say(const std::string& text) const;
  [[nodiscard]] std::string name(const Side& side) const;

  CmPlan plan_;
  bool trace_;
  Random random_;
  Ticks now_{1};
  std::uint64_t order_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::function<void()>> agenda_;
  std::unordered_map<std::string, unsigned> kills_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  bool is_whole_ = false;  ///< the network, from now on
  CmTotals totals_;
};

}  // namespace uroce::sim
