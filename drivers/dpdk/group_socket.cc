#include "drivers/dpdk/group_socket.h"

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>

namespace uroce::drivers::dpdk {

GroupSocket::GroupSocket(unsigned interface_index, std::span<const MacAddress> groups) noexcept
    : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
  if (!fd_.is_open()) return;
  for (const MacAddress& group : groups) {
    packet_mreq request{};
    request.mr_ifindex = static_cast<int>(interface_index);
    request.mr_type = PACKET_MR_MULTICAST;
    request.mr_alen = static_cast<unsigned short>(group.raw.size());
    std::copy(group.raw.begin(), group.raw.end(), request.mr_address);
    if (setsockopt(fd_.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request) != 0) return;
  }
}

}  // namespace uroce::drivers::dpdk
