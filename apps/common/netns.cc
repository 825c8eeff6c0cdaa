#include "apps/common/netns.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace uroce::apps {
namespace {

/// Runs ip(8) without output.
Status ip(std::vector<std::string> words) {
  words.insert(words.begin(), "ip");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* environment[] = {path.data(), nullptr};
  pid_t pid = -1;
  int status = 0;
  // The search uses this process's PATH, which seldom has sbin.
  for (const char* program : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (::access(program, X_OK) != 0) continue;
    if (::posix_spawn(&pid, program, &actions, nullptr, argv.data(), environment) == 0) break;
  }
  posix_spawn_file_actions_destroy(&actions);
  if (pid < 0) return Error{.code = Errc::kNotFound, .text = "ip(8) is missing: apt install iproute2"};
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + word;
  return Error{.code = Errc::kSystem, .text = fmt::format("`{}` failed", line)};
}

Status set_up(const char* name, const std::string& address) {
  if (auto done = ip({"addr", "add", address + "/24", "dev", name}); !done) return done;
  return ip({"link", "set", name, "up"});
}

}  // namespace

Status enter_new_netns() {
  if (::unshare(CLONE_NEWNET) == 0) return {};
  return Error{.code = Errc::kPermission,
               .text = fmt::format("no network namespace: {}", std::strerror(errno))};
}

Status make_veth(int peer_pid) {
  const auto peer = std::to_string(peer_pid);
  if (auto done = ip({"link", "add", "uroce0", "type", "veth", "peer", "name", "uroce1", "netns", peer});
      !done) {
    return done;
  }
  return set_up("uroce0", kVethClient);
}

Status address_veth() {
  return set_up("uroce1", kVethServer);
}

}  // namespace uroce::apps
