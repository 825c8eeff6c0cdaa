#include "drivers/dpdk/group_socket.h"

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>

namespace uroce::drivers::dpdk {
namespace {

bool is_in(const std::vector<MacAddress>& groups, const MacAddress& group) noexcept {
  return std::ranges::binary_search(groups, group.raw, {}, &MacAddress::raw);
}

}  // namespace

void GroupSocket::listen(unsigned interface_index, std::span<const MacAddress> groups) noexcept try {
  std::vector<MacAddress> wanted(groups.begin(), groups.end());
  std::ranges::sort(wanted, {}, &MacAddress::raw);
  std::vector<MacAddress> heard;
  heard.reserve(wanted.size());
  if (!fd_.is_open()) fd_ = OwnedFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  // From here on nothing throws.
  for (const MacAddress& group : wanted) {
    if (is_in(heard_, group) || change(PACKET_ADD_MEMBERSHIP, interface_index, group)) heard.push_back(group);
  }
  for (const MacAddress& group : heard_) {
    if (!is_in(wanted, group)) change(PACKET_DROP_MEMBERSHIP, interface_index, group);
  }
  heard_ = std::move(heard);
} catch (const std::bad_alloc&) {
  // What was heard goes on.
}

bool GroupSocket::change(int what, unsigned interface_index, const MacAddress& group) const noexcept {
  packet_mreq request{};
  request.mr_ifindex = static_cast<int>(interface_index);
  request.mr_type = PACKET_MR_MULTICAST;
  request.mr_alen = static_cast<unsigned short>(group.raw.size());
  std::copy(group.raw.begin(), group.raw.end(), request.mr_address);
  return setsockopt(fd_.get(), SOL_PACKET, what, &request, sizeof request) == 0;
}

}  // namespace uroce::drivers::dpdk
