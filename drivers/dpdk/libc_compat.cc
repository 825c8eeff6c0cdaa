/// Functions that take the place of others in DPDK (see meson.build): two for which it would need libbsd, the
/// source of af_packet's fanout group number, the settings of its sockets, sockets that are the kernel's in
/// every program, memif's rings with all their pages, system calls that a cancelled thread goes on from, and
/// one that af_xdp waits in.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "base/eventfd.h"
#include "drivers/dpdk/packet_sockets.h"

extern "C" {
std::size_t uroce_dpdk_strlcpy(char* target, const char* source, std::size_t size);
std::size_t uroce_dpdk_strlcat(char* target, const char* source, std::size_t size);
int uroce_af_packet_group();
void* uroce_memif_mmap(void* address, std::size_t len, int protection, int flags, int fd, off_t offset);
int uroce_dpdk_socket(int domain, int type, int protocol);
int uroce_af_packet_setsockopt(int fd, int level, int name, const void* value, socklen_t size);
ssize_t uroce_dpdk_read(int fd, void* bytes, std::size_t count);
ssize_t uroce_dpdk_write(int fd, const void* bytes, std::size_t count);
ssize_t uroce_dpdk_readv(int fd, const iovec* pieces, int count);
ssize_t uroce_dpdk_writev(int fd, const iovec* pieces, int count);
ssize_t uroce_dpdk_send(int fd, const void* bytes, std::size_t count, int flags);
ssize_t uroce_dpdk_sendto(int fd, const void* bytes, std::size_t count, int flags, const sockaddr* to,
                          socklen_t size);
ssize_t uroce_dpdk_recvfrom(int fd, void* bytes, std::size_t count, int flags, sockaddr* from,
                            socklen_t* size);
int uroce_dpdk_poll(pollfd* fds, nfds_t count, int timeout_ms);
int uroce_af_xdp_poll(pollfd* fds, nfds_t count, int timeout_ms);
int uroce_dpdk_eventfd_write(int fd, eventfd_t count);
}

/// Each packet would have its pages made when it first comes to a slot. Measured: the first 4000 round trips
/// of 64 B 8 us, 0.57 without.
void* uroce_memif_mmap(void* address, std::size_t len, int protection, int flags, int fd, off_t offset) {
  return mmap(address, len, protection, flags | MAP_POPULATE, fd, offset);
}

/// Copies at most size - 1 characters and always ends the target with 0. @return strlen(source).
std::size_t uroce_dpdk_strlcpy(char* target, const char* source, std::size_t size) {
  const std::size_t len = std::strlen(source);
  if (size > 0) {
    const std::size_t copied = std::min(len, size - 1);
    std::memcpy(target, source, copied);
    target[copied] = '\0';
  }
  return len;
}

/// Appends likewise. @return the length that was wanted.
std::size_t uroce_dpdk_strlcat(char* target, const char* source, std::size_t size) {
  const std::size_t used = strnlen(target, size);
  return used + uroce_dpdk_strlcpy(target + used, source, size - used);
}

/// A number for the sockets of one port; called once per port. The kernel's own takes its place.
int uroce_af_packet_group() {
  unsigned short number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<unsigned short>(getpid());
  return number;
}

/// socket(2) itself: a program may have a library before the C library that makes rsockets of datagram
/// sockets.
int uroce_dpdk_socket(int domain, int type, int protocol) {
  const auto fd = static_cast<int>(syscall(SYS_socket, domain, type | SOCK_CLOEXEC, protocol));
  if (domain == AF_PACKET && !uroce::drivers::dpdk::PacketSockets::note(fd)) {
    close(fd);
    errno = ENOMEM;
    return -1;
  }
  return fd;
}

/// setsockopt(2), of the sockets of af_packet.
int uroce_af_packet_setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  return uroce::drivers::dpdk::PacketSockets::set(fd, level, name, value, size);
}

// By number: the functions are points of cancellation, and bursts cannot be left by force.

ssize_t uroce_dpdk_read(int fd, void* bytes, std::size_t count) {
  return uroce::read_uncancelled(fd, bytes, count);
}

ssize_t uroce_dpdk_write(int fd, const void* bytes, std::size_t count) {
  return uroce::write_uncancelled(fd, bytes, count);
}

ssize_t uroce_dpdk_readv(int fd, const iovec* pieces, int count) {
  return syscall(SYS_readv, fd, pieces, count);
}

ssize_t uroce_dpdk_writev(int fd, const iovec* pieces, int count) {
  return syscall(SYS_writev, fd, pieces, count);
}

ssize_t uroce_dpdk_send(int fd, const void* bytes, std::size_t count, int flags) {
  return uroce_dpdk_sendto(fd, bytes, count, flags, nullptr, 0);
}

ssize_t uroce_dpdk_sendto(int fd, const void* bytes, std::size_t count, int flags, const sockaddr* to,
                          socklen_t size) {
  return syscall(SYS_sendto, fd, bytes, count, flags, to, size);
}

ssize_t uroce_dpdk_recvfrom(int fd, void* bytes, std::size_t count, int flags, sockaddr* from,
                            socklen_t* size) {
  return syscall(SYS_recvfrom, fd, bytes, count, flags, from, size);
}

int uroce_dpdk_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  timespec limit{.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1'000'000L};
  return static_cast<int>(
      syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? nullptr : &limit, nullptr, std::size_t{0}));
}

/// Wakes the driver and does not wait for frames: the next burst finds them.
int uroce_af_xdp_poll(pollfd* fds, nfds_t count, int /*timeout_ms*/) {
  return uroce_dpdk_poll(fds, count, 0);
}

int uroce_dpdk_eventfd_write(int fd, eventfd_t count) {
  return uroce::signal_eventfd(fd, count) ? 0 : -1;
}
