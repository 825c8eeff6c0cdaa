#include "drivers/dpdk/packet_sender.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <rte_mbuf.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "port/port.h"

namespace uroce::drivers::dpdk {
namespace {

/// Bytes that frames may take in the kernel until a NIC has sent them.
constexpr int kKernelBuffer = 4 << 20;

/// System calls by number: librspreload takes over those that have names, and those are points of
/// cancellation.
long send_one(int fd, const rte_mbuf& frame) noexcept {
  return syscall(SYS_sendto, fd, rte_pktmbuf_mtod(&frame, const void*), std::size_t{frame.data_len},
                 MSG_DONTWAIT, nullptr, 0);
}

/// @return how many left; -1 if none did
long send_all(int fd, std::span<rte_mbuf* const> frames) noexcept {
  std::array<iovec, port::kBurst> bytes;
  std::array<mmsghdr, port::kBurst> messages;
  const std::size_t count = std::min(frames.size(), messages.size());
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = {.iov_base = rte_pktmbuf_mtod(frames[i], void*), .iov_len = frames[i]->data_len};
    messages[i] = {};
    messages[i].msg_hdr.msg_iov = &bytes[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  return syscall(SYS_sendmmsg, fd, messages.data(), static_cast<unsigned>(count), MSG_DONTWAIT);
}

/// Whether the kernel may take the frame a little later.
bool is_busy(int error) noexcept {
  return error == EAGAIN || error == ENOBUFS || error == ENOMEM || error == EINTR;
}

}  // namespace

Result<PacketSender> PacketSender::open(const std::string& interface, bool bypasses_qdisc) {
  PacketSender sender(static_cast<int>(syscall(SYS_socket, AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;  // and protocol 0, which receives nothing
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  const int bypass = bypasses_qdisc ? 1 : 0;
  const void* const where = &address;
  const int fd = sender.fd_.get();
  if (fd < 0 || bind(fd, static_cast<const sockaddr*>(where), sizeof address) != 0 ||
      setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof bypass) != 0) {
    return Error{Errc::kSystem, "no packet socket to send on " + interface + ": " + std::strerror(errno)};
  }
  // The first is for administrators alone; the second grants what everybody may have.
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kKernelBuffer, sizeof kKernelBuffer) != 0)
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kKernelBuffer, sizeof kKernelBuffer);
  return sender;
}

PacketSender::Outcome PacketSender::send(std::span<rte_mbuf* const> frames) noexcept {
  Outcome outcome;
  while (outcome.sent < frames.size()) {
    const auto rest = frames.subspan(outcome.sent);
    const bool is_one = rest.size() == 1;
    const long result = is_one ? send_one(fd_.get(), *rest.front()) : send_all(fd_.get(), rest);
    if (result < 0) {
      outcome.is_next_lost = !is_busy(errno);
      break;
    }
    outcome.sent += is_one ? 1 : static_cast<unsigned>(result);
  }
  return outcome;
}

}  // namespace uroce::drivers::dpdk
