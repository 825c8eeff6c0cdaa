/// One side of a latency test: one operation at a time on the session's first QP.
#pragma once

#include <optional>

#include "apps/perf/tests.h"

namespace uroce::apps::perf {

/// Steps of a latency test. Functions return false when the test must end: error() says why, or the peer has
/// news.
///
/// Threads: one. Lifetime: the session outlives it.
class OneAtATime {
 public:
  OneAtATime(Session& session, std::uint32_t size);

  /// The client's operation number `number`, until its answer or completion is there.
  [[nodiscard]] bool turn(std::uint64_t number) noexcept;
  /// The server's answer to message `number`; one-sided operations need none.
  [[nodiscard]] bool answer(std::uint64_t number) noexcept;
  /// Polls until the peer has news: a server of one-sided operations.
  void wait_for_news() noexcept;
  /// Polls until then, on `clock`.
  [[nodiscard]] bool wait_until(const TickClock& clock, std::uint64_t due) noexcept;
  /// --verify, outside the timed part: fills what turn() sends, checks what came back.
  void fill(std::uint64_t number) noexcept;
  void check(std::uint64_t number) noexcept;

  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  [[nodiscard]] std::uint64_t data_errors() const noexcept { return data_errors_; }

 private:
  /// @return whether something completed.
  bool poll() noexcept;
  bool take_completion() noexcept;
  [[nodiscard]] bool is_over() const noexcept { return error_.has_value() || has_news_; }
  [[nodiscard]] bool post_message(std::uint64_t number, std::size_t from) noexcept;
  [[nodiscard]] bool post(std::uint64_t number, std::size_t from, bool signaled) noexcept;
  [[nodiscard]] bool repost() noexcept;
  [[nodiscard]] bool wait_for_message() noexcept;
  [[nodiscard]] bool wait_for_mark(std::uint64_t number) noexcept;
  [[nodiscard]] bool wait_for_completion() noexcept;
  [[nodiscard]] bool give_up(const char* why) noexcept;
  /// Offset of the message that came last.
  [[nodiscard]] std::size_t incoming() const noexcept;
  [[nodiscard]] std::size_t pattern_bytes() const noexcept;

  Session& session_;
  const TestSpec& spec_;
  std::uint32_t size_;
  Area area_;
  Watch watch_;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;        ///< signaled operations
  std::optional<std::uint64_t> slot_;  ///< of a message not yet answered
  std::uint64_t last_slot_ = 0;
  bool has_news_ = false;
  std::optional<Error> error_;
  std::uint64_t data_errors_ = 0;
};

}  // namespace uroce::apps::perf
