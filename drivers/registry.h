/// Opens a port by its specification: the one list of drivers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "port/port.h"
#include "uroce/result.h"

namespace uroce::drivers {

/// What open_ports() needs to know.
struct PortOptions {
  std::string spec;  ///< "driver:argument[,key=value...]", e.g. "shm:demo", "memif:/run/x.sock,role=server"
  std::uint32_t link_mtu = 0;  ///< bytes; 0: the driver's default
  unsigned queues = 1;         ///< rx/tx queue pairs, one Port each
  bool no_huge = false;        ///< do without hugepages
  std::string fault;           ///< rules for the fault decorator; empty: none
  std::uint64_t seed = 1;      ///< of the fault decorator
  std::string pcap;            ///< capture file; empty: none
};

/// What open_ports() refuses without a look at the machine: fault rules, a driver that there is not, options
/// that the driver does not have.
/// @return kConfig; kNotFound for a file of rules.
Status check_ports(const PortOptions& options);

/// Opens the port and applies the decorators.
/// @return one Port per queue (fewer if the driver has fewer); kConfig, kNotFound, kNameInUse, kNoHugepages,
///         kPermission, kUnsupported, each with one line naming the command that mends it.
Result<std::vector<std::unique_ptr<port::Port>>> open_ports(const PortOptions& options);

}  // namespace uroce::drivers
