/// The counters of a device and of its QPs, where `uroce stat` sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/poll_loop.h"
#include "uroce/qp_attr.h"
#include "verbs/stat_layout.h"

namespace uroce {

/// A file without a name that other processes find among the descriptors of this one.
///
/// Threads: show(), hide() and write() by each loop for itself and its QPs; take_row() and give_row() by any.
class StatPage final : public engine::Display {
 public:
  /// Words of a text are apart by one space each.
  struct Texts {
    std::string_view port;
    std::string_view addresses;
    std::string_view names;     ///< of the counters
    std::string_view qp_names;  ///< of those of a QP
  };
  struct QpRow {
    Qpn qpn{};
    QpType type{};
    QpState state{};
    Gid peer;  ///< zero: none
    Qpn peer_qpn{};
    std::span<const std::uint64_t> values;  ///< one for each of Texts::qp_names
  };

  /// @param qps  that there may be
  /// @return nullptr if the system has none to give
  [[nodiscard]] static std::unique_ptr<StatPage> make(unsigned loops, std::uint32_t qps, const Texts& texts);
  ~StatPage() override;
  StatPage(const StatPage&) = delete;
  StatPage& operator=(const StatPage&) = delete;

  /// A row for a QP, from 1; 0: there are no more, or no memory. Throws bad_alloc.
  [[nodiscard]] std::uint32_t take_row();
  void give_row(std::uint32_t row) noexcept;

  void show(engine::PollLoop& loop) noexcept override;
  /// In its row, if it has one.
  void show(const transport::QueuePair& qp) noexcept override;
  void hide(const transport::QueuePair& qp) noexcept override;
  /// @param values  one for each name. In a child that was forked it does nothing: the page is its parent's.
  void write(unsigned loop, std::uint64_t time_ns, std::span<const std::uint64_t> values) noexcept;
  /// Likewise. @param qp  Qpn 0: none
  void write(std::uint32_t row, const QpRow& qp) noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  explicit StatPage(const stat_layout::Header& header) noexcept;
  [[nodiscard]] bool map() noexcept;
  void publish(std::string_view texts) noexcept;

  int fd_ = -1;
  std::byte* bytes_ = nullptr;  // all but the rows
  std::byte* rows_ = nullptr;
  const stat_layout::Header header_;
  const unsigned forks_;  // before it was made

  std::mutex control_;                    // guards what follows
  std::uint32_t last_row_ = 0;            // that any QP had
  std::vector<std::uint32_t> free_rows_;  // before that
};

/// The names of a device's counters, as StatPage takes them.
[[nodiscard]] std::string counter_names();
[[nodiscard]] std::string qp_counter_names();

}  // namespace uroce
