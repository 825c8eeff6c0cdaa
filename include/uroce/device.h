/// The device: an open port with its poll loops. Everything else is made from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "uroce/async_event.h"
#include "uroce/config.h"
#include "uroce/result.h"
#include "uroce/types.h"

namespace uroce {

/// Same meaning as the fields of struct ibv_device_attr.
struct Limits {
  std::uint32_t max_qp = 65536;
  std::uint32_t max_qp_wr = 32768;
  std::uint32_t max_sge = 32;
  std::uint32_t max_inline = 1024;  ///< bytes
  std::uint32_t max_cqe = 1U << 22;
  std::uint32_t max_rd_atomic = 128;          ///< READs and atomics in flight per QP, each way
  std::uint32_t max_mcast_grp = 1024;         ///< groups with attached QPs
  std::uint32_t max_mcast_qp_attach = 65536;  ///< QPs per group
  std::uint64_t max_msg_bytes = 1ULL << 31;
};

/// An address of the port. IBA A17.
struct GidEntry {
  Gid gid;
  unsigned prefix_len = 0;
  std::uint16_t vlan = 0;  ///< 802.1Q VLAN of its frames; 0: none
  GidType type = GidType::kRoceV2;
};

/// Same values as enum ibv_port_state.
enum class PortState : std::uint8_t {
  kDown = 1,  ///< no cable, no peer, or the device is gone
  kActive = 4,
};

struct Counter {
  std::string name;
  std::uint64_t value = 0;
};

/// An open RoCE device.
///
/// Threads: control calls from any thread, one after the other is not required. Lifetime: must outlive every
/// object made from it.
class Device {
 public:
  /// What open() refuses on every machine: values that a key does not allow, a port or fault rules that
  /// nobody can read, a number of loops that there is not. Opens nothing.
  /// @return kConfig; kNotFound for a file of fault rules.
  static Status check(const Config& config);
  /// Opens the port, starts the loops (Mode::kLcore) or the helper (Mode::kAuto).
  /// @return the failure of the port or the configuration, with the command that mends it; kNoMemory.
  static Result<Device> open(const Config& config);
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;
  ~Device();

  [[nodiscard]] const Limits& limits() const noexcept;
  [[nodiscard]] const Config& config() const noexcept;
  /// Index 0 is the link-local fe80:: address made from the MAC; then those of Config::ip in order. All are
  /// of type RoCE v2; with Config::roce_v1 the same follow once more as RoCE v1.
  /// Indices never change: what add_ip() adds comes last, and what remove_ip() removes leaves a zero GID.
  [[nodiscard]] std::vector<GidEntry> gids() const;
  /// Adds an address, written as in Config::ip, while the port is open; raises kGidChange.
  /// @return kConfig if it is none, kInvalid if it is there, kNoMemory.
  Status add_ip(const std::string& address);
  /// Removes one, whatever its prefix; raises kGidChange. QPs and address handles that were made from it keep
  /// it, for as long as peers and gateways remember its Ethernet address: nobody answers for it any more. No
  /// new ones can be made. @return kConfig, kNotFound, kNoMemory; the link-local address of index 0
  /// stays.
  Status remove_ip(const std::string& address);
  [[nodiscard]] MacAddress mac() const noexcept;
  /// Poll loops: as many as Config::lcores names cores, or one. CqAttr::loop is below it. In Mode::kApp each
  /// runs only while an application polls a CQ of it, or calls progress().
  [[nodiscard]] unsigned loops() const noexcept;
  /// Looks at the link. Changes are also told by kPortActive, kPortErr and kDeviceFatal, within 0.1 s while
  /// somebody runs the loops. Links that cannot tell are active: those of DPDK drivers without link status.
  [[nodiscard]] PortState port_state() const;
  /// How many processes the link joins at most, as shm and memif do: it is down until another one is there.
  /// 0: it is a network.
  [[nodiscard]] unsigned ends() const noexcept;
  /// Bytes of the largest Ethernet payload, and the path MTU that fits.
  [[nodiscard]] std::uint32_t link_mtu() const noexcept;
  [[nodiscard]] PathMtu active_mtu() const noexcept;

  /// All counters, summed over the loops, in a fixed order.
  [[nodiscard]] std::vector<Counter> counters() const;
  /// Adds them to the file that Config::counters names, as the end of the device does: for processes that end
  /// otherwise.
  void write_counters() const;
  /// The next asynchronous event, if any. async_fd() is readable while there is one.
  [[nodiscard]] bool next_async_event(AsyncEvent& event);
  [[nodiscard]] int async_fd() const noexcept;

  /// Nanoseconds on the clock of Wc::timestamp_ns: monotonic, of this device alone.
  [[nodiscard]] std::uint64_t now_ns() const noexcept;

  /// Runs the loops once in the calling thread if nobody else does: for programs that only serve one-sided
  /// requests. In kLcore mode that is a loop whose thread lends it, because it shares its core with the
  /// application; others are left alone.
  void progress() noexcept;
  /// The calling thread sleeps until one of `fds`, say a Cq::fd(), is readable, the time is over, or it has
  /// found work and run the loop: in Mode::kAuto it sleeps in the place of the loop's helper, so that what
  /// comes wakes it at once instead of the helper first. In the other modes as poll(2). A point of
  /// cancellation; the Device outlives it.
  /// @param loop  below loops()
  /// @param fds  at most 2; those below 0 do not count
  /// @return how many of them are readable, which may be none; -1 with errno
  int sleep(unsigned loop, std::span<const int> fds, std::chrono::nanoseconds longest);
  /// Threads that are in sleep() return soon. One that is about to sleep may not.
  void disturb(unsigned loop) noexcept;

  /// Whether the calling thread is inside the engine, and a registered region has that byte: how a handler of
  /// SIGSEGV tells faults of the program from those that memory causes which was unmapped before it was
  /// deregistered. Threads: any; async-signal-safe.
  [[nodiscard]] bool is_touching(const void* address) const noexcept;

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  explicit Device(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
