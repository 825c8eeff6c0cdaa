/// Sends the frames of an af_packet port.
#pragma once

#include <span>
#include <string>

#include "base/owned_fd.h"
#include "uroce/result.h"

struct rte_mbuf;

namespace uroce::drivers::dpdk {

/// A packet socket that only sends, in place of the ring of DPDK's driver: the kernel sends what lies in that
/// ring from there, and then needs pages to copy it to before a veth or a tap may hand it on. Copied by the
/// system call, a short frame takes a quarter less time there and back.
///
/// Threads: one at a time.
class PacketSender {
 public:
  /// @param bypasses_qdisc  frames skip the interface's queueing discipline and its taps
  /// @return kSystem with the kernel's words
  static Result<PacketSender> open(const std::string& interface, bool bypasses_qdisc);

  struct Outcome {
    unsigned sent = 0;          ///< the first so many are with the kernel; the others can be tried again
    bool is_next_lost = false;  ///< but not the next one: the interface is down or takes no frame so long
  };
  /// The mbufs, of one segment each, remain the caller's.
  [[nodiscard]] Outcome send(std::span<rte_mbuf* const> frames) noexcept;

 private:
  explicit PacketSender(int fd) noexcept : fd_(fd) {}

  OwnedFd fd_;
};

}  // namespace uroce::drivers::dpdk
