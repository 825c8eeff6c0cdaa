// What config/train lets the compiler watch: two processes exchange what applications do most, over shm,
// memif and, where namespaces are permitted, af_packet. The branches that are taken here are laid out in a
// row, the others out of the way.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "apps/common/netns.h"
#include "uroce/mr.h"
#include "uroce/qp.h"

using namespace uroce;

namespace {

constexpr std::uint32_t kMemory = 1U << 20U;  // bytes of each end
constexpr std::uint32_t kDepth = 256;
constexpr std::uint32_t kList = 16;
constexpr std::uint32_t kCrowd = 512;  // QPs
constexpr std::uint32_t kSmall = 64;   // bytes

[[noreturn]] void fail(const std::string& what) {
  std::cerr << "train: " << what << '\n';
  std::_Exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) fail(result.error().text);
  return std::move(result).value();
}

template <typename T>
void tell(int other, const T& what) {
  if (write(other, &what, sizeof what) != sizeof what) fail("the other end is gone");
}
template <typename T>
T hear(int other) {
  T what{};
  if (read(other, &what, sizeof what) != sizeof what) fail("the other end is gone");
  return what;
}

/// What an end tells the other of a QP.
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
        memory_(must(Mr::alloc(pd_, kMemory, access::kAll))) {
    for (std::uint32_t i = 0; i < kCrowd; ++i) {
      const std::uint32_t depth = i == 0 ? kDepth : kList;
      qps_.push_back(must(Qp::create(pd_, cq_, cq_, {.max_send_wr = depth, .max_recv_wr = depth})));
      connect(device, gid_index);
    }
    for (std::uint32_t i = 0; i < kDepth; ++i) post_recv();
    meet();
  }

  /// Serves the other end until that has come as far as this one.
  void meet() {
    char byte = 0;
    tell(other_, byte);
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
      if (qps_.front().post_send(std::span<const SendWr>(list)) != kList) fail("the send queue is full");
      if (i % 8 == 7) wait_for(0, 8);  // half of the peer's receives
    }
    meet();
  }

  /// One-sided operations of the first end, `window` in flight, by `qps` QPs that take turns.
  void one_sided(bool is_first, WrOpcode opcode, std::uint32_t bytes, unsigned count, unsigned window,
                 std::size_t qps = 1) {
    for (unsigned i = 0; is_first && i < count; ++i) {
      post(opcode, bytes, true, i % qps);
      if (i + 1 >= window) wait_for(0, 1);
      if (i + 1 == count) wait_for(0, window - 1);
    }
    meet();
  }

 private:
  /// The newest QP, with that of the other end.
  void connect(Device& device, std::size_t gid_index) {
    Qp& qp = qps_.back();
    tell(other_, Address{qp.qpn(), device.gids().at(gid_index).gid, memory_.addr(), memory_.rkey()});
    peer_ = hear<Address>(other_);
    QpAttr attr;
    attr.path_mtu = device.active_mtu();
    attr.dest_qpn = peer_.qpn;
    attr.dgid = peer_.gid;
    attr.sgid_index = static_cast<std::uint32_t>(gid_index);
    attr.access_flags = access::kAll;
    const Status agreed = qp.set_ece(device.config().offer());  // which the peer offers, too
    if (!agreed) fail(agreed.error().text);
    if (const Status connected = qp.connect(attr); !connected) fail(connected.error().text);
  }

  void post_recv() {
    const Sge sge = memory_.sge(0, kMemory / 2);
    if (!qps_.front().post_recv({.sges = {&sge, 1}})) fail("the receive queue is full");
  }
  void post(WrOpcode opcode, std::uint32_t bytes, bool is_signaled, std::size_t qp = 0) {
    const Sge sge = memory_.sge(0, bytes);
    const SendWr wr{.sges = {&sge, 1},
                    .opcode = opcode,
                    .flags = is_signaled ? send_flag::kSignaled : std::uint8_t{0},
                    .remote_addr = peer_.va,
                    .rkey = peer_.rkey};
    while (!qps_[qp].post_send(wr)) poll();  // what is not signaled is still in the queue
  }
  void poll() {
    std::array<Wc, kList> wcs;
    const std::size_t count = cq_.poll(wcs);
    for (std::size_t i = 0; i < count; ++i) {
      if (!wcs[i].ok()) fail(qps_.front().error_text());
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
  std::vector<Qp> qps_;
  Address peer_;  // memory and the newest QP
  unsigned received_ = 0;
  unsigned sent_ = 0;
};

/// @param scale  how much of it
void train(Device& device, int other, bool is_first, std::size_t gid_index, unsigned scale) {
  End end(device, other, gid_index);
  end.ping_pong(is_first, kSmall, 2000 * scale, kList);
  end.ping_pong(is_first, kSmall, 1000 * scale, 1);
  end.ping_pong(is_first, 4096, 500 * scale, kList);
  end.sends(is_first, 200 * scale);
  end.one_sided(is_first, WrOpcode::kRdmaWrite, kSmall, 1500 * scale, 64, kCrowd);
  end.one_sided(is_first, WrOpcode::kRdmaWrite, kSmall, 1000 * scale, 1);
  end.one_sided(is_first, WrOpcode::kRdmaWrite, 4096, 2000 * scale, 64);
  end.one_sided(is_first, WrOpcode::kRdmaWrite, 1U << 19U, 10 * scale, 4);
  end.one_sided(is_first, WrOpcode::kRdmaRead, kSmall, 1000 * scale, 1);
  end.one_sided(is_first, WrOpcode::kRdmaRead, 1U << 16U, 50 * scale, 4);
  end.one_sided(is_first, WrOpcode::kAtomicFetchAndAdd, 8, 500 * scale, 1);
}

/// On a link of its own; not if this build lacks its driver, or both ends the right to open it.
void train_over(const Config& config, int other, bool is_first, unsigned scale_v4, unsigned scale_v6) {
  Result<Device> device = Device::open(config);
  if (!device) {
    const Errc why = device.error().code;
    if (why == Errc::kUnsupported || why == Errc::kPermission) return;
    fail(device.error().text);
  }
  constexpr std::size_t kV6 = 0;
  constexpr std::size_t kV4 = 1;
  train(*device, other, is_first, kV4, scale_v4);
  train(*device, other, is_first, kV6, scale_v6);
}

/// The ends of a link of the kernel's, each in a network namespace of its own.
/// @return false if that is not permitted, or there is no ip(8)
bool make_veth(int other, bool is_first, pid_t child) {
  const auto meet = [other](bool is_well) {
    tell(other, is_well);
    return hear<bool>(other) && is_well;
  };
  if (!meet(static_cast<bool>(apps::enter_new_netns()))) return false;
  if (!meet(!is_first || static_cast<bool>(apps::make_veth(child)))) return false;
  return meet(is_first || static_cast<bool>(apps::address_veth()));
}

}  // namespace

int main() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("no socket pair");
  const std::string name = "uroce-train-" + std::to_string(getpid());
  const std::string socket = std::filesystem::temp_directory_path() / name;
  const pid_t child = fork();
  if (child < 0) fail("no second process");
  const bool is_first = child != 0;
  const int other = ends[is_first ? 0 : 1];
  alarm(60);
  Config config;
  config.no_huge = true;
  config.port = "shm:" + name;
  train_over(config, other, is_first, 10, 5);
  config.port = "memif:" + socket + (is_first ? ",role=server" : ",role=client");
  train_over(config, other, is_first, 2, 1);
  if (make_veth(other, is_first, child)) {
    config.port = is_first ? "af_packet:uroce0" : "af_packet:uroce1";
    config.ip = {(is_first ? apps::kVethClient : apps::kVethServer) + std::string("/24")};
    train_over(config, other, is_first, 1, 1);
  } else if (is_first) {
    std::cerr << "train: goes on without af_packet, which takes root and ip(8)\n";
  }
  if (!is_first) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
