/// One side of a latency test: one operation at a time on the session's first QP.
#pragma once

#include <optional>

#include "apps/perf/tests.h"

namespace uroce::apps::perf {

/// Steps of a latency test. Functions return false when the test must end: error() says why, or the peer has
/// news.
///
/// Over UC and UD the client sends a message again whose answer does not come, each time under another
/// number, and the server answers each number that is new to it with the same. A SEND has its number as
/// immediate data, a WRITE in its last byte.
///
/// Threads: one. Lifetime: the session outlives it.
class OneAtATime {
 public:
  OneAtATime(Session& session, std::uint32_t size);

  /// The client's operation number `number`, until its answer or completion is there.
  [[nodiscard]] bool turn(std::uint64_t number) noexcept;
  /// Whether it was a later message that was answered. If the answer to the first one was only late, it is
  /// not.
  [[nodiscard]] bool was_repeated() const noexcept { return was_repeated_; }
  /// The server's answer to the next message; one-sided operations need none.
  [[nodiscard]] bool answer() noexcept;
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
  void prepare_request() noexcept;
  /// @return whether something completed.
  bool poll() noexcept;
  bool take_completion() noexcept;
  void take_message(const Wc& wc) noexcept;
  void on_silence() noexcept;
  void send_again(std::uint64_t now) noexcept;
  [[nodiscard]] bool is_over() const noexcept { return error_.has_value() || has_news_; }
  [[nodiscard]] bool is_answer(std::uint32_t tag) noexcept;
  [[nodiscard]] bool is_answer(std::byte mark) noexcept;
  [[nodiscard]] bool take_answer(std::uint32_t later) noexcept;
  [[nodiscard]] bool post_message(std::size_t from) noexcept;
  [[nodiscard]] bool post(std::size_t from, bool signaled) noexcept;
  [[nodiscard]] bool repost() noexcept { return repost(last_slot_); }
  [[nodiscard]] bool repost(std::uint64_t slot) noexcept;
  [[nodiscard]] bool wait_for_message() noexcept;
  [[nodiscard]] bool wait_for_mark() noexcept;
  [[nodiscard]] bool wait_for_completion() noexcept;
  [[nodiscard]] bool give_up(const char* why) noexcept;
  /// Offset of the message that came last.
  [[nodiscard]] std::size_t incoming() const noexcept;
  [[nodiscard]] std::size_t pattern_bytes() const noexcept;
  [[nodiscard]] std::byte& mark(std::size_t message) const noexcept {
    return session_.bytes(message + size_ - 1, 1)[0];
  }

  Session& session_;
  const TestSpec& spec_;
  std::uint32_t size_;
  std::uint32_t receive_len_;  ///< bytes of a completed receive
  bool is_numbered_;           ///< SENDs are
  Area area_;
  Watch watch_;
  std::uint64_t patience_ns_;          ///< until something must be done about silence
  SendWr wr_;                          ///< what all operations have in common
  std::uint64_t sent_ = 0;             ///< messages, but for those that were sent again
  std::uint64_t posted_ = 0;           ///< signaled operations
  std::uint64_t completed_ = 0;        ///< likewise
  std::optional<std::uint64_t> slot_;  ///< of a message not yet answered
  std::uint64_t last_slot_ = 0;
  std::uint64_t tag_;        ///< number of what was sent last; server: of what came last
  std::uint64_t first_tag_;  ///< under which the client's message went out first, until it is answered
  std::byte seen_mark_{};    ///< of the last WRITE that came
  bool was_repeated_ = false;
  std::uint64_t silent_since_ns_ = 0;  ///< when a message was sent again first; 0: not yet
  bool has_news_ = false;
  std::optional<Error> error_;
  std::uint64_t data_errors_ = 0;
};

}  // namespace uroce::apps::perf
