/// Socket files that two processes meet on: looked at, and taken over from the dead.
#pragma once

#include <string>

#include "drivers/dpdk/device_spec.h"
#include "drivers/spec.h"
#include "uroce/result.h"

namespace uroce::drivers::dpdk {

/// @return kConfig unless the argument is an absolute path that fits a socket address; kNotFound, kPermission
/// if its
///         directory is of no use.
Status check_socket_path(const PortSpec& spec);

/// Locks the directory of `path` against others who are about to take over a socket in it.
Result<DirectoryLock> lock_directory_of(const std::string& path);

enum class Holder { kNobody, kDead, kAlive, kForbidden, kNotASocket };

/// Who listens on the socket file. A live server sees a connection that ends at once.
/// @param type  SOCK_SEQPACKET or SOCK_STREAM, as the server uses
/// @return kForbidden where this user may not ask; the error kSystem without a socket to ask by.
Result<Holder> find_holder(const std::string& path, int type);

/// Makes way for a new server: removes a dead one's socket.
/// @return kNameInUse if somebody lives there, kPermission.
Status take_over(const std::string& path, Holder holder, const std::string& text);

}  // namespace uroce::drivers::dpdk
