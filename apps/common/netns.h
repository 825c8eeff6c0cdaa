/// A private network for TCP measurements: two namespaces joined by a veth pair. It vanishes with its
/// processes.
#pragma once

#include "uroce/result.h"

namespace uroce::apps {

/// Addresses of the two ends.
inline constexpr const char* kVethClient = "10.91.0.1";
inline constexpr const char* kVethServer = "10.91.0.2";

/// Moves this process into a new network namespace. @return kPermission.
Status enter_new_netns();
/// In the client's namespace: makes the pair, gives one end to the namespace of `peer_pid`, sets the address.
Status make_veth(int peer_pid);
/// In the server's namespace: sets the address of the end it was given.
Status address_veth();

}  // namespace uroce::apps
