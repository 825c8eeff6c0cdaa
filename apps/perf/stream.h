/// One side of a bandwidth test: as many operations as the rings take, on all QPs of a session.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/common/rate_meter.h"
#include "apps/perf/arrivals.h"
#include "apps/perf/tests.h"

namespace uroce::apps::perf {

/// Posts, if this side sends, and serves what the peer sends, until both are through.
///
/// Threads: one. Lifetime: the session outlives it.
class Stream {
 public:
  Stream(Session& session, std::uint32_t size, Part part);

  /// Both sides are ready: the time runs from now on.
  void start() noexcept;
  /// Whether this side sends: the client does, the server if the test is bidirectional.
  [[nodiscard]] bool is_sender() const noexcept { return session_.is_client() || spec_.bidirectional; }
  /// One round: posts what fits and takes completions. @return false after a failure, see error().
  [[nodiscard]] bool step() noexcept;
  /// All own operations are posted and complete.
  [[nodiscard]] bool has_sent_all() const noexcept;
  /// The peer's messages, of which it has told how many there are, have come, or are lost.
  [[nodiscard]] bool has_received_all();
  /// Whether it is time to look what the peer says.
  [[nodiscard]] bool has_news() { return idle_ ? watch_.has_news() : last_ns_ >= look_ns_ && look(); }
  [[nodiscard]] bool is_silent() const noexcept { return watch_.is_silent(); }
  /// Of the last completion, or later while there are none: nothing asks the clock for it.
  [[nodiscard]] std::uint64_t time() const noexcept { return last_ns_ + watch_.silence_ns(); }

  /// What the peer has to know at the end, and what it said.
  [[nodiscard]] Json totals() const;
  void set_peer_totals(const Json& totals);
  /// --verify: looks at the memory that WRITEs and atomics of the peer have changed.
  void check_memory();

  /// Of the peer's messages, once has_received_all().
  [[nodiscard]] std::uint64_t received() const noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept { return expected() - std::min(expected(), received()); }
  [[nodiscard]] Bandwidth result() const;
  /// Own operations.
  [[nodiscard]] std::uint64_t completed() const noexcept;
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
  /// How a work request is made.
  enum class Kind : std::uint8_t { kSend, kNumberedSend, kDatagram, kWrite, kRead, kAtomic };
  static constexpr std::uint32_t kMaxList = 64;
  static constexpr unsigned kPoll = 32;  ///< completions at a time
  static constexpr std::size_t kLanesInARow = 64;

  [[nodiscard]] static Kind kind_of(const TestSpec& spec) noexcept;
  void prepare_for_losses();
  void fill_lanes() noexcept;
  void fill_lane(std::size_t qp) noexcept;
  [[nodiscard]] std::uint32_t room(const Lane& lane) const noexcept;
  bool post_list(std::size_t qp, std::uint32_t count) noexcept;
  void fill(SendWr& wr, std::size_t qp, std::uint64_t number, const Sge& sge, bool is_end) const noexcept;
  [[nodiscard]] std::size_t local_offset(std::size_t qp, std::uint64_t number) const noexcept;
  void prepare_data(std::size_t qp, std::uint64_t number) noexcept;
  void on_sent(std::size_t qp, std::uint64_t up_to) noexcept;
  void on_received(const Wc& wc) noexcept;
  void take_message(const Wc& wc, std::size_t qp, std::uint64_t slot) noexcept;
  [[nodiscard]] bool look();
  [[nodiscard]] bool has_come() const noexcept;
  [[nodiscard]] bool is_quiet();
  [[nodiscard]] std::uint64_t expected() const noexcept;
  [[nodiscard]] std::uint64_t errors_in_slot(std::span<const std::byte> data, std::size_t qp,
                                             std::uint64_t number) const;
  [[nodiscard]] std::uint64_t errors_in_packet(std::span<const std::byte> packet, std::size_t at,
                                               std::size_t qp, std::uint64_t number) const;
  void check_sent(std::size_t qp, std::uint64_t number) noexcept;
  void fail(std::string text);

  Session& session_;
  const TestSpec& spec_;
  std::uint32_t size_;
  Kind kind_;
  std::uint32_t receive_len_;  ///< bytes of a completed receive
  bool takes_a_look_;          ///< at each message that comes, beside counting it
  std::uint32_t cq_mod_;
  std::uint64_t window_;  ///< operations in flight per QP
  std::uint64_t count_;   ///< operations per QP; 0: as many as fit into the time
  Watch watch_;
  std::vector<Lane> lanes_;
  std::uint32_t first_tag_;
  std::vector<Arrivals> arrivals_;      ///< of each QP, if SENDs may be lost
  std::uint64_t come_before_ = 0;       ///< UC, WRITE: messages until now ...
  std::uint64_t come_ = 0;              ///< ... and since
  std::vector<std::uint32_t> waiting_;  ///< QPs that may have room, in the order in which they got it
  std::size_t filled_ = 0;              ///< the first of them have been looked at since
  // Members, because to construct them for each call is a fifth of its cost.
  std::array<Sge, kMaxList> sges_{};
  std::array<SendWr, kMaxList> wrs_{};
  std::array<Wc, kPoll> wcs_{};
  bool idle_ = false;
  bool peer_told_ = false;
  std::uint64_t begin_ns_ = 0;
  std::uint64_t end_ns_ = 0;            ///< when a timed test stops posting; 0: iterations count
  std::uint64_t last_ns_ = 0;           ///< of the last completion
  std::uint64_t sent_ns_ = 0;           ///< of the last one of an own operation
  std::uint64_t look_ns_ = UINT64_MAX;  ///< when the peer is asked, busy or not: UC and UD do not miss it
  std::uint64_t quiet_ns_ = 0;          ///< for so long nothing has come, the peer having sent all
  std::uint64_t quiet_look_ns_ = 0;     ///< when that was looked at
  std::uint64_t quiet_last_ns_ = 0;     ///< last_ns_ then
  std::uint64_t count_ns_ = 0;          ///< when messages are counted again
  RateMeter meter_;
  std::uint64_t data_errors_ = 0;
  std::optional<Error> error_;
};

}  // namespace uroce::apps::perf
