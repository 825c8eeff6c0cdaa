#include "drivers/dpdk/packet_sockets.h"

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <new>

namespace uroce::drivers::dpdk {
namespace {

thread_local constinit std::vector<int>* noted = nullptr;

bool is_bound(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  void* const room = &storage;
  if (getsockname(fd, static_cast<sockaddr*>(room), &size) != 0 || storage.ss_family != AF_PACKET)
    return false;
  return static_cast<const sockaddr_ll*>(room)->sll_ifindex != 0;
}

}  // namespace

PacketSockets::PacketSockets() noexcept {
  noted = &opened_;
}

PacketSockets::~PacketSockets() {
  noted = nullptr;
}

void PacketSockets::note(int fd) noexcept {
  if (noted == nullptr || fd < 0) return;
  try {
    noted->push_back(fd);
  } catch (const std::bad_alloc&) {  // its loop looks by itself
  }
}

std::vector<int> PacketSockets::receiving() const {
  std::vector<int> found;
  for (const int fd : opened_) {
    if (is_bound(fd)) found.push_back(fd);
  }
  return found;
}

}  // namespace uroce::drivers::dpdk
