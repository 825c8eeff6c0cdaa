#include "verbs/counters_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace uroce {

namespace {

int open_to_append(const std::string& path) noexcept {
  constexpr mode_t kMode = 0644;
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
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

void append_counters(const std::string& path, const std::string& what, std::span<const Counter> counters) {
  if (path.empty()) return;
  std::string text = "# " + std::string(program_invocation_short_name) + " " + std::to_string(::getpid()) +
                     ", " + what + "\n";
  for (const Counter& one : counters) {
    if (one.value != 0) text += one.name + " " + std::to_string(one.value) + "\n";
  }
  const int fd = open_to_append(path);
  if (fd < 0) return;  // it was there when the device opened
  [[maybe_unused]] const auto written = ::write(fd, text.data(), text.size());
  ::close(fd);
}

}  // namespace uroce
