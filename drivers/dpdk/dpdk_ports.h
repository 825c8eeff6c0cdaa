/// Ports that DPDK drives: memif, af_packet, af_xdp, tap, ring and PCI NICs.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "drivers/registry.h"
#include "drivers/spec.h"

namespace uroce::drivers {

/// Whether `driver` (the part of a port specification before the ':') is one of these.
[[nodiscard]] bool is_dpdk_driver(std::string_view driver) noexcept;

/// What open_dpdk() refuses on every machine: an option that the driver does not have.
/// @param spec  of a driver that is_dpdk_driver()
Status check_dpdk(const PortSpec& spec);

/// Starts EAL if need be and opens the port. Decorators are the caller's.
/// @return one Port per queue; kUnsupported in a build without DPDK.
Result<std::vector<std::unique_ptr<port::Port>>> open_dpdk(const PortOptions& options);

}  // namespace uroce::drivers
