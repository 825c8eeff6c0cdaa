#include "drivers/dpdk/packet_sockets.h"

#include <linux/if_packet.h>

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

void PacketSockets::note(int fd) noexcept {
  if (noting == nullptr || fd < 0) return;
  try {
    noting->opened_.push_back(fd);
  } catch (const std::bad_alloc&) {  // its loop looks by itself
  }
}

int PacketSockets::set(int fd, int level, int name, const void* value, socklen_t size) noexcept {
  const bool is_group = level == SOL_PACKET && name == PACKET_FANOUT;
  if (is_group && noting != nullptr && noting->is_single_) return 0;
  return setsockopt(fd, level, name, value, size);
}

std::vector<int> PacketSockets::receiving() const {
  std::vector<int> found;
  for (const int fd : opened_) {
    if (is_bound(fd)) found.push_back(fd);
  }
  return found;
}

}  // namespace uroce::drivers::dpdk
