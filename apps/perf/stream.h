/// One side of a bandwidth test: as many operations as the rings take, on all QPs of a session.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/common/rate_meter.h"
#include "apps/perf/tests.h"

namespace uroce::apps::perf {

/// Posts, if this side sends, and serves what the peer sends, until both are through.
///
/// Threads: one. Lifetime: the session outlives it.
class Stream {
 public:
  Stream(Session& session, std::uint32_t size);

  /// Both sides are ready: the time runs from now on.
  void start() noexcept;
  /// Whether this side sends: the client does, the server if the test is bidirectional.
  [[nodiscard]] bool is_sender() const noexcept { return session_.is_client() || spec_.bidirectional; }
  /// One round: posts what fits and takes completions. @return false after a failure, see error().
  [[nodiscard]] bool step() noexcept;
  /// All own operations are posted and complete.
  [[nodiscard]] bool has_sent_all() const noexcept;
  /// The peer's messages, of which it has told how many there are, have come.
  [[nodiscard]] bool has_received_all() const noexcept;
  /// Whether it is time to look what the peer says.
  [[nodiscard]] bool has_news() noexcept { return idle_ && watch_.has_news(); }
  [[nodiscard]] bool is_silent() const noexcept { return watch_.is_silent(); }

  /// What the peer has to know at the end, and what it said.
  [[nodiscard]] Json totals() const;
  void set_peer_totals(const Json& totals);
  /// --verify: looks at the memory that WRITEs and atomics of the peer have changed.
  void check_memory();

  [[nodiscard]] Bandwidth result() const;
  [[nodiscard]] std::uint64_t data_errors() const noexcept { return data_errors_; }
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }

 private:
  /// Counts of one QP, in operations.
  struct Lane {
    std::uint64_t posted = 0;
    std::uint64_t completed = 0;
    std::uint64_t received = 0;
    std::uint64_t expected = 0;  ///< what the peer sent
  };
  static constexpr std::uint32_t kMaxList = 64;
  static constexpr unsigned kPoll = 32;  ///< completions at a time
  static constexpr std::size_t kLanesInARow = 64;

  void fill_lanes() noexcept;
  void fill_lane(std::size_t qp) noexcept;
  [[nodiscard]] std::uint32_t room(const Lane& lane) const noexcept;
  bool post_list(std::size_t qp, std::uint32_t count) noexcept;
  void fill(SendWr& wr, std::size_t qp, std::uint64_t number, const Sge& sge, bool is_end) const noexcept;
  [[nodiscard]] std::size_t local_offset(std::size_t qp, std::uint64_t number) const noexcept;
  void prepare_data(std::size_t qp, std::uint64_t number) noexcept;
  void on_sent(std::size_t qp, std::uint64_t up_to) noexcept;
  void on_received(const Wc& wc) noexcept;
  void check_sent(std::size_t qp, std::uint64_t number) noexcept;
  void fail(std::string text);

  Session& session_;
  const TestSpec& spec_;
  std::uint32_t size_;
  std::uint32_t cq_mod_;
  std::uint64_t window_;  ///< operations in flight per QP
  Watch watch_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> waiting_;  ///< QPs that may have room, in the order in which they got it
  std::size_t filled_ = 0;              ///< the first of them have been looked at since
  // Members, because to construct them for each call is a fifth of its cost.
  std::array<Sge, kMaxList> sges_{};
  std::array<SendWr, kMaxList> wrs_{};
  std::array<Wc, kPoll> wcs_{};
  bool idle_ = false;
  bool peer_told_ = false;
  std::uint64_t begin_ns_ = 0;
  std::uint64_t end_ns_ = 0;   ///< when a timed test stops posting; 0: iterations count
  std::uint64_t last_ns_ = 0;  ///< of the last completion
  RateMeter meter_;
  std::uint64_t data_errors_ = 0;
  std::optional<Error> error_;
};

}  // namespace uroce::apps::perf
