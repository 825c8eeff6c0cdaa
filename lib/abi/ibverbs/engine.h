/// The one device of this process, which all contexts share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/ibverbs/unmapped_memory.h"
#include "abi/ibverbs/verbs.h"
#include "uroce/cm.h"
#include "uroce/device.h"
#include "uroce/xrcd.h"

namespace uroce::abi {

class Context;
struct CompletionQueue;
struct QueuePair;
struct SharedQueue;

/// The configuration that programs get: that of the uroce program, but in Mode::kAuto, without hugepages and
/// with a long keepalive unless it says otherwise. The other side of a one-sided operation never calls
/// anything. Processes that were forked with the device open meet on a shm link of their own.
[[nodiscard]] Result<Config> read_config();
/// Made from the configuration, so that it is known before the device is open. Network byte order.
[[nodiscard]] __be64 guid_of(const Config& config) noexcept;

/// XRC domains that files name: to open one again is to open the same.
struct NamedDomains {
  using File = std::pair<std::uint64_t, std::uint64_t>;  // its device and inode
  std::mutex mutex;
  std::map<File, std::weak_ptr<Xrcd>> by_file;
};

/// Opens the device with its first user, a context or whoever wants the Cm, and closes it with the last, and
/// hands its events to the contexts that they concern. A child that was forked has its parent's contexts, but
/// not the device: calls there fail. With those that it opens it has an engine of its own.
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

  /// From here on events of the object reach its context, and children that are forked are told that they
  /// have not got it; after remove() no more.
  void add(QueuePair& qp);
  void remove(QueuePair& qp);
  void add(SharedQueue& srq);
  void remove(SharedQueue& srq);
  void add(CompletionQueue& cq);
  void remove(CompletionQueue& cq);

  /// Of the device; they are forgotten with it.
  [[nodiscard]] NamedDomains& named_domains() noexcept { return named_domains_; }

 private:
  Engine() = default;
  static std::atomic<Engine*>& current();
  Status open();
  void close();
  void stop_events() const;
  [[nodiscard]] bool has_users() const noexcept { return !contexts_.empty() || cm_.has_value(); }
  void run_events();
  void dispatch(const AsyncEvent& event);
  void tell_all(ibv_event_type type);

  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  static void at_exit();

  std::mutex opening_;  // one context at a time comes or goes
  std::mutex mutex_;    // guards what follows; never held while something waits for a loop
  std::vector<Context*> contexts_;
  std::unordered_map<std::uint32_t, QueuePair*> qps_;        // by number
  std::unordered_map<std::uint32_t, SharedQueue*> srqs_;     // by number
  std::unordered_map<std::uint32_t, CompletionQueue*> cqs_;  // by number

  NamedDomains named_domains_;
  std::optional<Device> device_;
  std::optional<UnmappedMemory> unmapped_;
  std::optional<Cm> cm_;
  std::thread events_;
  std::binary_semaphore settled_{0};  // the thread has ended
  int stop_fd_ = -1;
};

}  // namespace uroce::abi
