/// The inside of a Device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>
#include <vector>

#include "base/random.h"
#include "engine/addresses.h"
#include "engine/clock.h"
#include "engine/loop_runner.h"
#include "engine/poll_loop.h"
#include "mem/key_table.h"
#include "port/port.h"
#include "uroce/device.h"
#include "verbs/numbers.h"
#include "verbs/stat_page.h"

namespace uroce {

/// An address handle that has been destroyed, and the sends that may still need it.
struct LeavingHandle {
  struct Sends {
    Qpn qpn{};
    std::uint32_t end = 0;  // index in its send queue
  };
  AhId id{};
  std::vector<Sends> awaited;
};

/// Members are destroyed in reverse order: threads first, ports last.
struct Device::Impl {
  Impl(const Config& cfg, std::uint64_t seed_value)
      : config(cfg),
        seed(seed_value),
        random(seed_value ^ 0x7069'0001),
        keys(seed_value, [this] { quiesce(); }) {}
  ~Impl();

  Config config;
  Limits limits;
  std::uint64_t seed;
  int async_fd = -1;
  std::vector<std::unique_ptr<port::Port>> ports;  // one per loop
  engine::Clock clock;

  std::mutex control;  // guards what follows
  engine::Addresses addresses;
  Random random;
  std::unordered_set<std::uint32_t> qpns;
  std::vector<std::uint32_t> qpns_of_loops;  // how many of those each has
  std::uint32_t next_pd = 1;
  std::uint32_t next_cq = 1;
  Numbers srqs{0xff'ffff};                    // 24 bits: XRC requests name them
  std::vector<std::uint32_t> ah_generations;  // by index
  std::vector<std::uint32_t> free_ahs;        // indices

  std::mutex leaving;  // guards what follows
  std::set<Qpn> datagram_qps;
  std::vector<LeavingHandle> leaving_ahs;

  std::mutex multicast;                      // one attachment at a time, over all loops; guards what follows
  std::map<Gid, std::uint32_t> group_users;  // attached QPs

  mem::KeyTable keys;
  std::unique_ptr<StatPage> stat_page;  // nullptr: the system has none to give
  std::vector<std::unique_ptr<engine::PollLoop>> loops;
  std::vector<std::unique_ptr<engine::LoopRunner>> runners;

  /// Returns once every loop has passed an iteration boundary.
  void quiesce() {
    for (auto& runner : runners) runner->execute([](engine::PollLoop&, Ticks) {});
  }
  [[nodiscard]] std::vector<Counter> counters() const;
  /// The GID table as it is now.
  [[nodiscard]] engine::Addresses address_table() {
    const std::lock_guard lock(control);
    return addresses;
  }
  [[nodiscard]] std::vector<engine::Address> own_addresses() {
    const std::lock_guard lock(control);
    return addresses.own();
  }
  [[nodiscard]] std::uint32_t gid_count() {
    const std::lock_guard lock(control);
    return static_cast<std::uint32_t>(addresses.own().size());
  }
  /// `changed` is what `addresses` are from now on, here and in the loops; with `control` held. Throws
  /// bad_alloc, and nothing has changed then.
  void publish(engine::Addresses changed);
  /// A QPN not in use whose low bits name `loop`. IBA 10.3.1 leaves the choice to us: random, so not
  /// guessable. @return kLimit if the device has max_qp QPs, or the loop has no number left.
  Result<Qpn> take_qpn(unsigned loop);
  /// That one. @return kBusy if it is in use.
  Result<Qpn> take_qpn(Qpn qpn);
  void release_qpn(Qpn qpn);
  /// An identifier that no address handle has or had.
  AhId take_ah();
  void release_ah(AhId id);
  /// Removes the handle, once all that is posted by now has left. Without memory it does so at once.
  void retire_ah(AhId id) noexcept;
  /// Removes those handles for which all has left: when handles or QPs come and go.
  void reap_ahs() noexcept;
  void remove_ah(AhId id);
  void add_sends(engine::PollLoop& loop, std::vector<LeavingHandle::Sends>& to) const;
  [[nodiscard]] bool have_left(const LeavingHandle::Sends& sends);
  [[nodiscard]] engine::LoopRunner& runner_of(Qpn qpn) noexcept {
    return *runners[raw(qpn) & (runners.size() - 1)];
  }

  [[nodiscard]] std::uint32_t link_mtu() const noexcept { return ports.front()->info().link_mtu; }
  [[nodiscard]] PathMtu active_mtu() const noexcept {
    return path_mtu_for_link(link_mtu()).value_or(PathMtu::k256);
  }
};

}  // namespace uroce
