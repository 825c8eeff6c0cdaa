/// Port specifications of links whose two ends are on this machine.
#pragma once

#include <array>
#include <string>

#include "uroce/config.h"
#include "uroce/result.h"

namespace uroce::apps {

/// Two port specifications for the two ends of a link on this machine: memif gets its roles, and of vhost and
/// virtio_user the server, which is opened first, takes the one that the other connects to.
[[nodiscard]] std::string port_spec_for_end(const std::string& spec, bool server);

/// Whether a link of this kind has two ends on this machine and is made by its name, as many as there are
/// names: shm, memif, vhost with virtio_user.
[[nodiscard]] bool makes_links(const std::string& spec);

/// Whether two processes that open this do not reach each other: an interface or a NIC is one end of a link,
/// with one address. The loopback interface is not: what one sends over it all get.
[[nodiscard]] bool is_one_end(const std::string& spec);

/// The same interface, whatever its options are.
[[nodiscard]] bool is_same_interface(const std::string& spec, const std::string& other);

/// The ports of the client and of the server of one link.
/// @param spec  the client's
/// @param peer  the server's; empty: made from `spec`
/// @return kInvalid: both are the same end
[[nodiscard]] Result<std::array<std::string, 2>> ends_of_link(const std::string& spec,
                                                              const std::string& peer);

/// Another link of the same kind: "shm:x" -> "shm:x-raw"; an interface is shared.
[[nodiscard]] std::string another_link(std::string spec, const std::string& suffix);

/// Of a command that opens both ends of a link by one configuration: they cannot have the same addresses,
/// which are for other commands then, as UROCE_IP is for the examples. A note on stderr says so if there are
/// any.
[[nodiscard]] Config without_addresses(Config config);

/// Of the bare link beside the one that is measured.
inline constexpr const char* kBareSuffix = "-raw";

/// A capture file has one writer: FILE becomes FILE.LINK.client or FILE.LINK.server. None stays none.
[[nodiscard]] std::string capture_for_end(const std::string& file, const std::string& link, bool server);
/// That it does, on stderr; of none nothing.
void tell_of_captures(const std::string& file);

}  // namespace uroce::apps
