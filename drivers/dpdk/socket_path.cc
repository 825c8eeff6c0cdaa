#include "drivers/dpdk/socket_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace uroce::drivers::dpdk {
namespace {

std::string directory_of(const std::string& path) {
  return path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
}

}  // namespace

Status check_socket_path(const PortSpec& spec) {
  const std::string& path = spec.argument;
  const std::string example = "; e.g. " + spec.driver + ":/tmp/demo.sock";
  if (path.empty() || path.front() != '/' || path.back() == '/') {
    return Error{Errc::kConfig,
                 "port \"" + spec.text + "\" must name a socket by an absolute path" + example};
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error{Errc::kConfig, "socket path " + path + " is longer than " +
                                    std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes" + example};
  }
  const std::string directory = directory_of(path);
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return Error{Errc::kNotFound,
                 "no directory " + directory + " for the socket; run: mkdir -p " + directory};
  }
  if (access(directory.c_str(), R_OK | W_OK | X_OK) != 0) {
    return Error{Errc::kPermission, "you may not write to directory " + directory +
                                        " of the socket; take one of your own" + example};
  }
  return {};
}

Result<DirectoryLock> lock_directory_of(const std::string& path) {
  const std::string directory = directory_of(path);
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DirectoryLock lock(fd);
  if (fd < 0) return Error{Errc::kSystem, "cannot open directory " + directory + ": " + std::strerror(errno)};
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Error{Errc::kSystem, "cannot lock directory " + directory + ": " + std::strerror(errno)};
    }
    if (std::chrono::steady_clock::now() > give_up) {
      return Error{Errc::kTimeout, "directory " + directory + " stays locked; see: fuser " + directory};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return lock;
}

Result<Holder> find_holder(const std::string& path, int type) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return Holder::kNobody;
  if (!S_ISSOCK(status.st_mode)) return Holder::kNotASocket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error{Errc::kSystem, "cannot ask who serves " + path + ": " + std::strerror(errno)};
  const int code = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  close(fd);
  if (code == EACCES || code == EPERM) return Holder::kForbidden;
  return code == ECONNREFUSED ? Holder::kDead : code == ENOENT ? Holder::kNobody : Holder::kAlive;
}

Status take_over(const std::string& path, Holder holder, const std::string& text) {
  const std::string port = "port \"" + text + "\": ";
  switch (holder) {
    case Holder::kNobody:
      return {};
    case Holder::kNotASocket:
      return Error{Errc::kNameInUse, port + path + " exists and is not a socket; take another name"};
    case Holder::kAlive:
      return Error{Errc::kNameInUse, port + "a live process serves " + path +
                                         "; be its client (role=client), or take another name; see: fuser " +
                                         path};
    case Holder::kForbidden:
      return Error{Errc::kPermission, port + path + " belongs to another user; run both ends as the same " +
                                          "one, or take another name"};
    case Holder::kDead:
      if (unlink(path.c_str()) == 0 || errno == ENOENT) return {};
      return Error{Errc::kPermission, port + path + " is stale but cannot be removed; run: sudo rm " + path};
  }
  return {};
}

}  // namespace uroce::drivers::dpdk
