/// What is going on, on stderr: one line that changes on a terminal, elsewhere a plain line now and then.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "apps/common/clock.h"
#include "apps/common/tell.h"

namespace uroce::apps {

class Progress {
 public:
  explicit Progress(bool quiet = false) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Something that replaces the line before it. Where lines cannot be replaced, one in five seconds is
  /// shown.
  void step(std::string_view text) {
    if (quiet_) return;
    if (!terminal_) return sign_of_life(text);
    tell("\r\x1b[K{:.{}}", text, columns());
    std::fflush(stderr);
    dirty_ = true;
  }
  /// Something that stays.
  void note(std::string_view text) {
    if (quiet_) return;
    clear();
    tell("{}\n", text);
  }
  void clear() {
    if (dirty_) tell("\r\x1b[K");
    std::fflush(stderr);
    dirty_ = false;
  }

 private:
  void sign_of_life(std::string_view text) {
    constexpr std::uint64_t kEvery = 5 * kSecond;
    const std::uint64_t now = now_ns();
    if (now - told_ns_ < kEvery) return;
    told_ns_ = now;
    tell("{}\n", text);
  }
  /// What fits into a line: one that went on in the next could not be replaced.
  static int columns() noexcept {
    constexpr int kMost = 100;
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kMost;
    return std::min(kMost, size.ws_col - 1);
  }

  bool quiet_;
  bool terminal_;
  bool dirty_ = false;
  std::uint64_t told_ns_ = now_ns();
};

}  // namespace uroce::apps
