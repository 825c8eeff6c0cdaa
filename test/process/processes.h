/// Child processes of a test, and memory that they share with it.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace uroce::test {

/// Where links are while this object lives: a folder of its own, because killed processes leave files behind.
class RuntimeDir {
 public:
  RuntimeDir() {
    if (::mkdtemp(path_) == nullptr) throw std::runtime_error("no temporary folder");
    ::setenv("UROCE_RUNTIME_DIR", path_, 1);
  }
  ~RuntimeDir() {
    ::unsetenv("UROCE_RUNTIME_DIR");
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RuntimeDir(const RuntimeDir&) = delete;
  RuntimeDir& operator=(const RuntimeDir&) = delete;

 private:
  char path_[32] = "/dev/shm/uroce-test-XXXXXX";
};

/// A forked child. It dies with the test, and with this object.
class Child {
 public:
  /// Runs `body` in a child, whose exit status it returns.
  template <typename F>
  explicit Child(F&& body) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(body());
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  /// kill -9.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void stop() const { ::kill(pid_, SIGSTOP); }
  void resume() const { ::kill(pid_, SIGCONT); }

  [[nodiscard]] bool has_ended() {
    if (pid_ <= 0) return true;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
    pid_ = 0;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }
  /// @return the exit status; 128 + signal; -1 if it still runs after `seconds`.
  [[nodiscard]] int wait(int seconds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!has_ended()) {
      if (std::chrono::steady_clock::now() > deadline) return -1;
      ::usleep(1000);
    }
    return status_;
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
};

/// A T that the test and its children see alike.
template <typename T>
class Shared {
 public:
  Shared() : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    object_ = new (memory_) T();
  }
  ~Shared() { ::munmap(memory_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  void* memory_;
  T* object_;
};

/// Waits until `done()` holds. @return false if it does not within `seconds`.
template <typename F>
[[nodiscard]] bool await(F&& done, int seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::usleep(200);
  }
  return true;
}

}  // namespace uroce::test
