/// Addresses on the command line for connections by address and port.
#pragma once

#include <string>

#include "uroce/cm_types.h"
#include "uroce/device.h"

namespace uroce::apps {

/// The address of a host, given as a number or a name; empty: any.
/// @return kNotFound if nothing has that name, kInvalid if it is one of the loopback interface.
Result<CmAddress> cm_address(const std::string& host, std::uint16_t port);

/// What a client is to be told: the first address of the device that is not link-local, if there is one.
[[nodiscard]] std::string own_host(const Device& device);

/// A failure to connect to a server, with what may be the matter.
/// @param command  that starts one
[[nodiscard]] Error no_server(Error error, const Device& device, const std::string& command);

}  // namespace uroce::apps
