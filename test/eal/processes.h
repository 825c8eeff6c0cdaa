/// Child processes of a test: each runs one function, reports lines through a pipe, and can be killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

namespace uroce::test {

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline in_seconds(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}
inline bool is_past(Deadline deadline) {
  return std::chrono::steady_clock::now() >= deadline;
}

/// What a child writes its lines to.
class Report {
 public:
  explicit Report(int fd) noexcept : fd_(fd) {}
  void line(const std::string& text) const;

 private:
  int fd_;
};

/// A forked process. The destructor kills it.
class Child {
 public:
  /// `body` returns the exit status.
  explicit Child(const std::function<int(const Report&)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// @return the next line the child reported; empty at its end or at the deadline.
  std::string next_line(Deadline deadline);
  /// @return the exit status; -1 if it is still running at the deadline or was killed by a signal.
  int wait(Deadline deadline);
  /// SIGKILL, and waits until it is gone.
  void kill9();
  [[nodiscard]] bool is_running();

 private:
  pid_t pid_ = -1;
  int lines_ = -1;
  int status_ = 0;
  bool is_gone_ = false;
  std::string unread_;
};

/// What `body` printed to stdout and stderr, run in this process.
std::string printed_by(const std::function<void()>& body);

}  // namespace uroce::test
