/// A test that runs for a time (-D), second by second, and when it is over.
#pragma once

#include <algorithm>
#include <cmath>
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

/// How long a test goes on: for so many operations, or for a time. Of those that are due at fixed times all
/// that are due within it are done, however late they begin: else those that a pause holds up just before the
/// end would be missing, and with them the longest latencies. Where they are too many for the link, a fifth
/// of the time more is all that they get.
///
/// Threads: any.
class Extent {
 public:
  /// @param seconds     0: `operations` count
  /// @param rate        operations due per second; 0: each when the one before it is done
  /// @param second      in the unit of `took`
  Extent(std::uint64_t seconds, std::uint64_t operations, double rate, std::uint64_t second) noexcept
      : is_timed_(seconds > 0), most_(operations) {
    if (!is_timed_) return;
    const bool is_fixed = rate > 0;
    most_ = is_fixed ? due(rate * static_cast<double>(seconds)) : UINT64_MAX;
    longest_ = seconds * second + (is_fixed ? seconds * second / kPartMore : 0);
  }

  [[nodiscard]] bool is_timed() const noexcept { return is_timed_; }
  /// Operations; UINT64_MAX: as many as the time allows.
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }
  /// @param took  since the beginning
  [[nodiscard]] bool is_over(std::uint64_t took, std::uint64_t operations) const noexcept {
    return operations >= most_ || took >= longest_;
  }
  /// Operations that were due in the time and have not been begun when it is over.
  [[nodiscard]] std::uint64_t missing(std::uint64_t operations) const noexcept {
    return most_ == UINT64_MAX ? 0 : most_ - std::min(most_, operations);
  }

 private:
  static constexpr std::uint64_t kPartMore = 5;

  /// The first one is due at once. As a product 3.3 times 10 is a little more than 33.
  static std::uint64_t due(double operations) noexcept {
    return static_cast<std::uint64_t>(std::ceil(operations * (1 - 1e-12)));
  }

  bool is_timed_;
  std::uint64_t most_;                  ///< operations
  std::uint64_t longest_ = UINT64_MAX;  ///< time
};

}  // namespace uroce::apps::perf
