#include "drivers/dpdk/packet_sockets.h"

#include <linux/if_packet.h>

#include <cstring>
#include <new>

namespace uroce::drivers::dpdk {
namespace {

thread_local constinit PacketSockets* noting = nullptr;

bool is_bound(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  void* const room = &storage;
  if (getsockname(fd, static_cast<sockaddr*>(room), &size) != 0 || storage.ss_family != AF_PACKET)
    return false;
  return static_cast<const sockaddr_ll*>(room)->sll_ifindex != 0;
}

}  // namespace

PacketSockets::PacketSockets(unsigned queues) noexcept : is_single_(queues == 1) {
  noting = this;
}

PacketSockets::~PacketSockets() {
  noting = nullptr;
}

bool PacketSockets::note(int fd) noexcept {
  if (noting == nullptr || fd < 0) return true;
  try {
    noting->opened_.push_back(fd);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

int PacketSockets::set(int fd, int level, int name, const void* value, socklen_t size) noexcept {
  const bool is_group = level == SOL_PACKET && name == PACKET_FANOUT;
  if (!is_group || noting == nullptr || size != sizeof(unsigned))
    return setsockopt(fd, level, name, value, size);
  if (noting->is_single_) return 0;
  unsigned wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  return noting->join_group(fd, wanted);
}

/// @param wanted  the driver's number, and above it how frames are shared out
int PacketSockets::join_group(int fd, unsigned wanted) noexcept {
  constexpr unsigned kNumber = 0xffff;
  constexpr unsigned kUnused = PACKET_FANOUT_FLAG_UNIQUEID << 16;
  const unsigned sharing = wanted & ~kNumber;
  const unsigned asked = sharing | (group_ ? *group_ : kUnused);
  if (setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &asked, sizeof asked) != 0) return -1;
  unsigned made = 0;
  socklen_t size = sizeof made;
  if (getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &made, &size) != 0) return -1;
  group_ = made & kNumber;
  return 0;
}

std::vector<int> PacketSockets::receiving() const {
  std::vector<int> found;
  for (const int fd : opened_) {
    if (is_bound(fd)) found.push_back(fd);
  }
  return found;
}

}  // namespace uroce::drivers::dpdk
