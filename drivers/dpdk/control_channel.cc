#include "drivers/dpdk/control_channel.h"

#include <poll.h>
#include <rte_interrupts.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <span>
#include <utility>

namespace uroce::drivers::dpdk {
namespace {

thread_local ControlChannel* current_channel = nullptr;

/// Longest queue of connections that were not accepted yet. With memif's own value, 1, a client blocks in
/// connect() after three restarts beside a server that does not poll.
constexpr int kBacklog = 64;
/// Callback rounds per dispatch: accept, and each message of a handshake, takes one.
constexpr int kMaxRounds = 16;

ino_t inode_of(int fd) noexcept {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/// By number: poll() is a point of cancellation.
bool is_any_readable(std::span<pollfd> sockets) noexcept {
  timespec no_wait{};
  return syscall(SYS_ppoll, sockets.data(), sockets.size(), &no_wait, nullptr, std::size_t{0}) > 0;
}

}  // namespace

ControlChannel::Scope::Scope(ControlChannel* channel) noexcept
    : outer_(std::exchange(current_channel, channel)) {}

ControlChannel::Scope::~Scope() {
  current_channel = outer_;
}

ControlChannel* ControlChannel::current() noexcept {
  return current_channel;
}

ControlChannel::~ControlChannel() {
  for (const Entry& entry : entries_) {
    if (entry.fd >= 0) close(entry.fd);  // a listener: memif forgets it
  }
}

bool ControlChannel::is_idle() const noexcept {
  for (const Entry& entry : entries_) {
    if (entry.fd >= 0) return false;
  }
  return true;
}

bool ControlChannel::dispatch() noexcept {
  bool ran = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    std::array<pollfd, kMaxSockets> polled;
    for (std::size_t i = 0; i < kMaxSockets; ++i) {
      polled[i] = {.fd = entries_[i].fd, .events = POLLIN | POLLRDHUP, .revents = 0};  // -1 is skipped
    }
    if (!is_any_readable(polled)) break;
    ran = true;
    const Scope scope(this);
    // Connections before the listener, which came first: a dead peer has to go before its successor is let
    // in.
    for (std::size_t i = kMaxSockets; i-- > 0;) {
      if (polled[i].revents != 0 && entries_[i].fd == polled[i].fd) run(entries_[i]);
    }
  }
  return ran;
}

void ControlChannel::run(Entry& entry) noexcept {
  entry.is_active = true;
  entry.callback(entry.argument);
  entry.is_active = false;
  forget_closed();
  if (!entry.is_leaving) return;
  const Entry left = std::exchange(entry, Entry{});
  if (left.farewell != nullptr) left.farewell(left.handle, left.argument);
}

/// memif closes and frees a connection that dies while it is being accepted, but does not unregister it.
void ControlChannel::forget_closed() noexcept {
  for (Entry& entry : entries_) {
    if (entry.fd >= 0 && !entry.is_leaving && inode_of(entry.fd) != entry.inode) entry = {};
  }
}

int ControlChannel::add(rte_intr_handle* handle, Callback callback, void* argument) noexcept {
  const int fd = rte_intr_fd_get(handle);
  if (fd < 0 || callback == nullptr) return -EINVAL;
  int is_listener = 0;
  socklen_t len = sizeof is_listener;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listener, &len) == 0 && is_listener != 0) {
    listen(fd, kBacklog);
  }
  for (Entry& entry : entries_) {
    if (entry.fd >= 0) continue;
    entry = {.fd = fd,
             .inode = inode_of(fd),
             .handle = handle,
             .callback = callback,
             .argument = argument,
             .farewell = nullptr,
             .is_active = false,
             .is_leaving = false};
    return 0;
  }
  return -ENOSPC;
}

int ControlChannel::remove(int fd, Callback callback, void* argument) noexcept {
  for (Entry& entry : entries_) {
    if (entry.fd != fd || entry.callback != callback || entry.argument != argument) continue;
    if (entry.is_active) return -EAGAIN;
    entry = {};
    return 1;
  }
  return -ENOENT;
}

int ControlChannel::remove_later(int fd, Callback callback, void* argument, Farewell farewell) noexcept {
  for (Entry& entry : entries_) {
    if (entry.fd != fd || entry.callback != callback || entry.argument != argument) continue;
    if (!entry.is_active) return -EAGAIN;
    entry.is_leaving = true;
    entry.farewell = farewell;
    return 1;
  }
  return -ENOENT;
}

}  // namespace uroce::drivers::dpdk

using uroce::drivers::dpdk::ControlChannel;

extern "C" {
int uroce_memif_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                  void* argument);
int uroce_memif_callback_unregister(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                    void* argument);
int uroce_memif_callback_unregister_pending(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                            void* argument, rte_intr_unregister_callback_fn farewell);
}

int uroce_memif_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                  void* argument) {
  ControlChannel* channel = ControlChannel::current();
  if (channel == nullptr) return -EINVAL;
  return channel->add(const_cast<rte_intr_handle*>(handle), callback, argument);
}

int uroce_memif_callback_unregister(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                    void* argument) {
  ControlChannel* channel = ControlChannel::current();
  if (channel == nullptr) return -ENOENT;
  return channel->remove(rte_intr_fd_get(handle), callback, argument);
}

int uroce_memif_callback_unregister_pending(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                            void* argument, rte_intr_unregister_callback_fn farewell) {
  ControlChannel* channel = ControlChannel::current();
  if (channel == nullptr) return -ENOENT;
  return channel->remove_later(rte_intr_fd_get(handle), callback, argument, farewell);
}
