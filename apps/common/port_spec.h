/// Port specifications of links whose two ends are on this machine.
#pragma once

#include <string>

namespace uroce::apps {

/// Two port specifications for the two ends of a link on this machine: memif gets its roles, and of vhost and
/// virtio_user the server, which is opened first, takes the one that the other connects to.
[[nodiscard]] std::string port_spec_for_end(const std::string& spec, bool server);

/// Another link of the same kind: "shm:x" -> "shm:x-raw"; an interface is shared.
[[nodiscard]] std::string another_link(std::string spec, const std::string& suffix);

/// A capture file has one writer: FILE becomes FILE.LINK.client or FILE.LINK.server. None stays none.
[[nodiscard]] std::string capture_for_end(const std::string& file, const std::string& link, bool server);

}  // namespace uroce::apps
