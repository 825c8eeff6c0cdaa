// What config/train lets the compiler watch: two processes exchange over shm what applications do most. The
// branches that are taken here are laid out in a row, the others out of the way.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <string>

#include "uroce/mr.h"
#include "uroce/qp.h"

using namespace uroce;

namespace {

constexpr std::uint32_t kMemory = 1U << 20U;  // bytes of each end
constexpr std::uint32_t kDepth = 256;
constexpr std::uint32_t kList = 16;
constexpr std::uint32_t kSmall = 64;  // bytes

[[noreturn]] void fail(const std::string& what) {
  std::cerr << "train: " << what << '\n';
  std::_Exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) fail(result.error().text);
  return std::move(result).value();
}

/// What an end tells the other.
struct Address {
  Qpn qpn{};
  Gid gid{};
  std::uint64_t va = 0;
  Rkey rkey{};
};

/// One process.
class End {
 public:
  End(Device& device, int other, std::size_t gid_index)
      : other_(other),
        pd_(must(Pd::create(device))),
        cq_(must(Cq::create(device, 4 * kDepth))),
        memory_(must(Mr::alloc(pd_, kMemory, access::kAll))),
        qp_(must(Qp::create(pd_, cq_, cq_, {.max_send_wr = kDepth, .max_recv_wr = kDepth}))) {
    const Address own{qp_.qpn(), device.gids().at(gid_index).gid, memory_.addr(), memory_.rkey()};
    if (write(other_, &own, sizeof own) != sizeof own) fail("the other end is gone");
    if (read(other_, &peer_, sizeof peer_) != sizeof peer_) fail("the other end is gone");
    QpAttr attr;
    attr.path_mtu = device.active_mtu();
    attr.dest_qpn = peer_.qpn;
    attr.dgid = peer_.gid;
    attr.sgid_index = static_cast<std::uint32_t>(gid_index);
    attr.access_flags = access::kAll;
    if (const Status connected = qp_.connect(attr); !connected) fail(connected.error().text);
    for (std::uint32_t i = 0; i < kDepth; ++i) post_recv();
    meet();
  }

  /// Serves the other end until that has come as far as this one.
  void meet() {
    char byte = 0;
    if (write(other_, &byte, 1) != 1) fail("the other end is gone");
    for (ssize_t count = -1; count != 1; count = recv(other_, &byte, 1, MSG_DONTWAIT)) {
      if (count == 0) fail("the other end is gone");
      for (int i = 0; i < 100; ++i) poll();
    }
    sent_ = 0;  // those that were waited for have been taken off
  }

  /// A message there and back, `count` times; one of `each` is signaled.
  void ping_pong(bool is_first, std::uint32_t bytes, unsigned count, unsigned each) {
    for (unsigned i = 0; i < count; ++i) {
      const bool is_signaled = i % each == each - 1;
      if (is_first) post(WrOpcode::kSend, bytes, is_signaled);
      wait_for(1, each == 1 && is_first ? 1 : 0);
      post_recv();
      if (!is_first) post(WrOpcode::kSend, bytes, is_signaled);
      if (each == 1 && !is_first) wait_for(0, 1);
    }
    meet();
  }

  /// `count` lists of SENDs from the first end to the other.
  void sends(bool is_first, unsigned count) {
    const Sge sge = memory_.sge(0, kSmall);
    std::array<SendWr, kList> list;
    list.fill({.sges = {&sge, 1}});
    list.back().flags = send_flag::kSignaled;
    for (unsigned i = 0; i < count; ++i) {
      if (!is_first) {
        wait_for(kList, 0);
        for (std::uint32_t k = 0; k < kList; ++k) post_recv();
        continue;
      }
      if (qp_.post_send(std::span<const SendWr>(list)) != kList) fail("the send queue is full");
      if (i % 8 == 7) wait_for(0, 8);  // half of the peer's receives
    }
    meet();
  }

  /// One-sided operations of the first end, `window` in flight.
  void one_sided(bool is_first, WrOpcode opcode, std::uint32_t bytes, unsigned count, unsigned window) {
    for (unsigned i = 0; is_first && i < count; ++i) {
      post(opcode, bytes, true);
      if (i + 1 >= window) wait_for(0, 1);
      if (i + 1 == count) wait_for(0, window - 1);
    }
    meet();
  }

 private:
  void post_recv() {
    const Sge sge = memory_.sge(0, kMemory / 2);
    if (!qp_.post_recv({.sges = {&sge, 1}})) fail("the receive queue is full");
  }
  void post(WrOpcode opcode, std::uint32_t bytes, bool is_signaled) {
    const Sge sge = memory_.sge(0, bytes);
    const SendWr wr{.sges = {&sge, 1},
                    .opcode = opcode,
                    .flags = is_signaled ? send_flag::kSignaled : std::uint8_t{0},
                    .remote_addr = peer_.va,
                    .rkey = peer_.rkey};
    while (!qp_.post_send(wr)) poll();  // what is not signaled is still in the queue
  }
  void poll() {
    std::array<Wc, kList> wcs;
    const std::size_t count = cq_.poll(wcs);
    for (std::size_t i = 0; i < count; ++i) {
      if (!wcs[i].ok()) fail(qp_.error_text());
      ++(wcs[i].opcode == WcOpcode::kRecv ? received_ : sent_);
    }
  }
  void wait_for(unsigned received, unsigned sent) {
    while (received_ < received || sent_ < sent) poll();
    received_ -= received;
    sent_ -= sent;
  }

  int other_;
  Pd pd_;
  Cq cq_;
  Mr memory_;
  Qp qp_;
  Address peer_;
  unsigned received_ = 0;
  unsigned sent_ = 0;
};

void train(Device& device, int other, bool is_first, std::size_t gid_index, unsigned scale) {
  End end(device, other, gid_index);
  end.ping_pong(is_first, kSmall, 2000 * scale, kList);
  end.ping_pong(is_first, kSmall, 1000 * scale, 1);
  end.ping_pong(is_first, 4096, 500 * scale, kList);
  end.sends(is_first, 200 * scale);
  end.one_sided(is_first, WrOpcode::kRdmaWrite, kSmall, 1000 * scale, 1);
  end.one_sided(is_first, WrOpcode::kRdmaWrite, 4096, 2000 * scale, 64);
  end.one_sided(is_first, WrOpcode::kRdmaWrite, 1U << 19U, 10 * scale, 4);
  end.one_sided(is_first, WrOpcode::kRdmaRead, kSmall, 1000 * scale, 1);
  end.one_sided(is_first, WrOpcode::kRdmaRead, 1U << 16U, 50 * scale, 4);
  end.one_sided(is_first, WrOpcode::kAtomicFetchAndAdd, 8, 500 * scale, 1);
}

}  // namespace

int main() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("no socket pair");
  Config config;
  config.port = "shm:train-" + std::to_string(getpid());
  config.no_huge = true;
  const pid_t child = fork();
  if (child < 0) fail("no second process");
  const bool is_first = child != 0;
  alarm(60);
  {
    Device device = must(Device::open(config));
    const std::size_t v6 = 0;
    const std::size_t v4 = 1;
    train(device, ends[is_first ? 0 : 1], is_first, v4, 10);
    train(device, ends[is_first ? 0 : 1], is_first, v6, 1);
  }
  if (!is_first) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
