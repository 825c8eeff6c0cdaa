/// Runs memif's control callbacks (connect, disconnect) in the thread that polls the port.
///
/// The stock driver runs them in the EAL's interrupt thread, which unmaps the rings under a poller when the
/// peer goes away. Here memif's calls of rte_intr_callback_*() end up in the ControlChannel that is current
/// on the calling thread, and its descriptors are watched by the poller itself, between bursts. So no ring
/// can vanish during one.
#pragma once

#include <sys/types.h>

#include <array>
#include <csignal>
#include <cstddef>

#include "base/cancellation.h"
#include "base/held_back_signal.h"

struct rte_intr_handle;

namespace uroce::drivers::dpdk {

/// The sockets of one memif port and what to call when they are readable.
///
/// Threads: one at a time, the one that polls the port.
class ControlChannel {
 public:
  using Callback = void (*)(void* argument);
  using Farewell = void (*)(rte_intr_handle* handle, void* argument);

  ControlChannel() = default;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  /// Closes what the driver left open.
  ~ControlChannel();

  /// While it lives, memif's callbacks registered on this thread belong to `channel`, a peer that is gone
  /// raises no SIGPIPE, and memif's system calls are no points of cancellation.
  class Scope {
   public:
    explicit Scope(ControlChannel* channel) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    NotCancelled here_;
    ControlChannel* outer_;
    HeldBackSignal no_pipe_{SIGPIPE};  // memif sends without MSG_NOSIGNAL
  };

  /// Runs what is due. @return whether anything was.
  bool dispatch() noexcept;
  /// Neither listening nor connected nor about to be.
  [[nodiscard]] bool is_idle() const noexcept;

  // What memif calls, with the meaning and the return values of rte_intr_callback_*().
  static ControlChannel* current() noexcept;
  int add(rte_intr_handle* handle, Callback callback, void* argument) noexcept;
  int remove(int fd, Callback callback, void* argument) noexcept;
  int remove_later(int fd, Callback callback, void* argument, Farewell farewell) noexcept;

 private:
  /// A listener, its connection, and connections that are just dying or being refused.
  static constexpr std::size_t kMaxSockets = 16;

  struct Entry {
    int fd = -1;
    ino_t inode = 0;  ///< of the socket: tells it from another one with the same number
    rte_intr_handle* handle = nullptr;
    Callback callback = nullptr;
    void* argument = nullptr;
    Farewell farewell = nullptr;
    bool is_active = false;
    bool is_leaving = false;
  };

  void run(Entry& entry) noexcept;
  void forget_closed() noexcept;

  std::array<Entry, kMaxSockets> entries_{};
};

}  // namespace uroce::drivers::dpdk
