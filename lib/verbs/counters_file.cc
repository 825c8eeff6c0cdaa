#include "verbs/counters_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/eventfd.h"
#include "base/held_back_signal.h"

namespace uroce {

namespace {

int open_to_append(const std::string& path) noexcept {
  constexpr mode_t kMode = 0644;
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
}

/// @return 0 or errno
int write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const long written = write_uncancelled(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// @return 0 or errno
int append(const std::string& path, std::string_view text) noexcept {
  const int fd = open_to_append(path);
  if (fd < 0) return errno;
  int error = write_all(fd, text);
  if (::close(fd) != 0 && error == 0) error = errno;  // of file systems that write late
  return error;
}

std::string text_of(std::string_view what, const std::vector<Counter>& counters) {
  std::string text = "# " + std::string(program_invocation_short_name) + " " + std::to_string(::getpid()) +
                     ", " + std::string(what) + "\n";
  for (const Counter& one : counters) {
    if (one.value != 0) text += one.name + " " + std::to_string(one.value) + "\n";
  }
  return text;
}

/// On stderr: whoever runs the program has asked for the file, and the device has nobody left to answer to.
/// The communication manager closes as well: one line is enough.
void tell_once(const std::string& path, int error) noexcept {
  static std::atomic_flag told;
  if (told.test_and_set(std::memory_order_relaxed)) return;
  std::fprintf(stderr, "uroce: counters: '%s': %s\n", path.c_str(), std::strerror(error));
}

}  // namespace

Status check_counters_file(const std::string& path) {
  if (path.empty()) return {};
  const int fd = open_to_append(path);
  if (fd < 0) {
    return Error{Errc::kConfig, "counters: '" + path + "': " + std::strerror(errno) +
                                    "; allowed is a file that can be written"};
  }
  ::close(fd);
  return {};
}

void append_counters(const std::string& path, std::string_view what,
                     const std::function<std::vector<Counter>()>& counters) noexcept {
  if (path.empty()) return;
  const HeldBackSignal no_limit(SIGXFSZ);
  const HeldBackSignal no_pipe(SIGPIPE);  // nor of stderr
  int error = ENOMEM;
  try {
    error = append(path, text_of(what, counters()));
  } catch (const std::exception&) {
    // There is no memory for them.
  }
  if (error != 0) tell_once(path, error);
}

}  // namespace uroce
