/// What the kernel knows about network interfaces and about this process's rights, asked before a driver
/// fails on it.
#pragma once

#include <cstdint>
#include <string>

#include "port/port.h"
#include "uroce/result.h"

namespace uroce::drivers::dpdk {

struct Interface {
  unsigned index = 0;
  std::uint32_t mtu = 0;    ///< largest Ethernet payload, bytes
  unsigned rx_queues = 1;   ///< combined ones among them
  unsigned xdp_queues = 1;  ///< of these, what DPDK's af_xdp binds: the combined ones, else one
  bool is_up = false;
  bool is_veth = false;
  bool has_combined_queues = false;  ///< can have them
  bool has_xdp_program = false;
};

/// @return kNotFound with the names that do exist, kConfig for an empty name.
Result<Interface> find_interface(const std::string& name);
[[nodiscard]] bool interface_exists(const std::string& name);

/// @return kBadState with the command that brings it up.
Status require_up(const std::string& name, const Interface& interface);

/// The XDP program of DPDK leaves to the kernel what comes to queues other than the `bound` ones.
/// @return kConfig with the command that leaves the interface `bound` queues.
Status require_all_queues(const std::string& name, const Interface& interface, unsigned bound);

/// Looks again and again at one interface, which was up. While there is no descriptor to look with, it is as
/// it was seen last.
///
/// Threads: one at a time.
class InterfaceWatch {
 public:
  explicit InterfaceWatch(const std::string& name);
  ~InterfaceWatch();
  InterfaceWatch(const InterfaceWatch&) = delete;
  InterfaceWatch& operator=(const InterfaceWatch&) = delete;

  /// Up means that it is set up and has a carrier; gone, that the interface which was there is there no more,
  /// under whatever name.
  [[nodiscard]] port::LinkState state() noexcept;

 private:
  [[nodiscard]] port::LinkState look() noexcept;

  std::string name_;
  int fd_ = -1;    // none yet
  int index_ = 0;  // likewise
  port::LinkState seen_ = port::LinkState::kUp;
};

/// Rights that a driver needs; see capabilities(7).
enum class Right { kRawSockets, kNetAdmin, kXdp, kTunDevice };
/// @return kPermission naming the capability and how to get it.
Status require_right(Right right, const std::string& driver);

}  // namespace uroce::drivers::dpdk
