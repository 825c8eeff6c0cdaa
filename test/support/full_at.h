/// Files that have no more room.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

namespace uroce::test {

/// Files end at so many bytes, as if there were no more room: nothing is to be said about it meanwhile.
class FullAt {
 public:
  explicit FullAt(std::uintmax_t bytes) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FullAt() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullAt(const FullAt&) = delete;
  FullAt& operator=(const FullAt&) = delete;

 private:
  rlimit before_{};
};

/// What becomes of a process of its own that does that, as signals may end it.
/// @param call  answers whether it went well; it checks nothing by itself
/// @return      "good", "bad" or the signal's number
template <typename Call>
std::string end_of(Call&& call) {
  const pid_t child = fork();
  if (child == 0) _exit(call() ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "good" : "bad";
}

/// Likewise, where files end at so many bytes.
template <typename Call>
std::string end_of_full_at(std::uintmax_t bytes, Call&& call) {
  return end_of([&] {
    const FullAt full(bytes);
    return call();
  });
}

}  // namespace uroce::test
