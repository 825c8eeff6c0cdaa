#include "eal/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace uroce::test {
namespace {

int milliseconds_left(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

}  // namespace

void Report::line(const std::string& text) const {
  const std::string whole = text + '\n';
  if (write(fd_, whole.data(), whole.size()) < 0) std::perror("report");
}

Child::Child(const std::function<int(const Report&)>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    const int status = body(Report(ends[1]));
    std::fflush(nullptr);
    _exit(status);
  }
  close(ends[1]);
  lines_ = ends[0];
}

Child::~Child() {
  kill9();
  close(lines_);
}

std::string Child::next_line(Deadline deadline) {
  for (;;) {
    const auto end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd readable{.fd = lines_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, milliseconds_left(deadline)) <= 0) return {};
    char buffer[4096];
    const ssize_t bytes = read(lines_, buffer, sizeof buffer);
    if (bytes <= 0) return {};
    unread_.append(buffer, static_cast<std::size_t>(bytes));
  }
}

int Child::wait(Deadline deadline) {
  if (!is_gone_) {
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
    const bool has_ended = poll(&ended, 1, milliseconds_left(deadline)) > 0;
    close(fd);
    if (!has_ended) return -1;
    waitpid(pid_, &status_, 0);
    is_gone_ = true;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
}

void Child::kill9() {
  if (is_gone_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
  is_gone_ = true;
}

bool Child::is_running() {
  if (!is_gone_ && waitpid(pid_, &status_, WNOHANG) == pid_) is_gone_ = true;
  return !is_gone_;
}

std::string printed_by(const std::function<void()>& body) {
  const int file = memfd_create("printed", MFD_CLOEXEC);
  std::fflush(nullptr);
  const int out = dup(STDOUT_FILENO);
  const int err = dup(STDERR_FILENO);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  body();
  std::fflush(nullptr);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  close(out);
  close(err);
  std::string text(static_cast<std::size_t>(lseek(file, 0, SEEK_END)), '\0');
  const ssize_t bytes = pread(file, text.data(), text.size(), 0);
  close(file);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return text;
}

}  // namespace uroce::test
