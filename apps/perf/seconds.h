/// A test that runs for a time (-D), second by second.
#pragma once

#include <cstdint>
#include <functional>

namespace uroce::apps::perf {

/// What was done in a second, or in more where the program had no core.
struct Second {
  std::uint64_t number = 0;  ///< from the beginning, 1 for the first
  std::uint64_t operations = 0;
  double seconds = 0;
};

/// Called for each but the last, which the result is of as well.
using OnSecond = std::function<void(const Second&)>;

/// Threads: one.
class Seconds {
 public:
  /// @param count   seconds that the test runs; 0: not by time
  /// @param length  of one, in the unit of `now`
  Seconds(std::uint64_t count, std::uint64_t length) noexcept : count_(count), length_(length) {}

  void begin(std::uint64_t now) noexcept {
    begin_ = last_ = now;
    end_at(1);
  }
  [[nodiscard]] bool is_over(std::uint64_t now) const noexcept { return now >= end_; }
  /// Once it is over.
  /// @param done  operations since the beginning
  [[nodiscard]] Second take(std::uint64_t now, std::uint64_t done) noexcept {
    const Second second{.number = (now - begin_) / length_,
                        .operations = done - done_,
                        .seconds = static_cast<double>(now - last_) / static_cast<double>(length_)};
    last_ = now;
    done_ = done;
    end_at(second.number + 1);
    return second;
  }

 private:
  void end_at(std::uint64_t number) noexcept {
    end_ = number < count_ ? begin_ + number * length_ : UINT64_MAX;
  }

  std::uint64_t count_;
  std::uint64_t length_;
  std::uint64_t begin_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t end_ = UINT64_MAX;
  std::uint64_t done_ = 0;
};

}  // namespace uroce::apps::perf
