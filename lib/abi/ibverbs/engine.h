/// The one device of this process, which all contexts share.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "abi/ibverbs/verbs.h"
#include "uroce/cm.h"
#include "uroce/device.h"

namespace uroce::abi {

class Context;
struct QueuePair;
struct SharedQueue;

/// The configuration that programs get: that of the uroce program, but in Mode::kAuto, without hugepages and
/// with a long keepalive unless it says otherwise. The other side of a one-sided operation never calls
/// anything.
[[nodiscard]] Result<Config> read_config();
/// Made from the configuration, so that it is known before the device is open. Network byte order.
[[nodiscard]] __be64 guid_of(const Config& config) noexcept;

/// Opens the device with its first user, a context or whoever wants the Cm, and closes it with the last, and
/// hands its events to the contexts that they concern. A child that was forked has contexts, but no device:
/// its calls fail.
///
/// Threads: any. Lifetime: for ever.
class Engine {
 public:
  static Engine& instance();

  /// @return the device, open; what is wrong otherwise.
  Result<Device*> enter(Context& context);
  void leave(Context& context);
  /// @return the Cm of the device, for one at a time; what is wrong otherwise.
  Result<Cm*> enter_cm();
  void leave_cm();

  /// From here on events of the object reach its context; after remove() none does.
  void add(QueuePair& qp);
  void remove(QueuePair& qp);
  void add(SharedQueue& srq);
  void remove(SharedQueue& srq);

  /// Whether this is the process that opened the device.
  [[nodiscard]] bool is_here() const noexcept { return !is_child_.load(std::memory_order_relaxed); }

 private:
  Engine();
  Status open();
  void close();
  [[nodiscard]] bool has_users() const noexcept { return !contexts_.empty() || cm_.has_value(); }
  void run_events();
  void dispatch(const AsyncEvent& event);
  void tell_all(ibv_event_type type);
  void tell(const QueuePair& qp, ibv_event_type type);

  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  std::mutex opening_;  // one context at a time comes or goes
  std::mutex mutex_;    // guards what follows; never held while something waits for a loop
  std::vector<Context*> contexts_;
  std::unordered_map<std::uint32_t, QueuePair*> qps_;     // by number
  std::unordered_map<std::uint32_t, SharedQueue*> srqs_;  // by number

  std::optional<Device> device_;
  std::optional<Cm> cm_;
  std::thread events_;
  int stop_fd_ = -1;
  std::atomic<bool> is_child_{false};
};

}  // namespace uroce::abi
