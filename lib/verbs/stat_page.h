/// The counters of a device, where `uroce stat` sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/poll_loop.h"
#include "verbs/stat_layout.h"

namespace uroce {

/// A file without a name that other processes find among the descriptors of this one.
///
/// Threads: show() and write() by each loop for itself.
class StatPage final : public engine::Display {
 public:
  /// @param addresses, names  apart by spaces
  /// @return nullptr if the system has none to give
  [[nodiscard]] static std::unique_ptr<StatPage> make(unsigned loops, std::string_view port,
                                                      std::string_view addresses, std::string_view names);
  ~StatPage() override;
  StatPage(const StatPage&) = delete;
  StatPage& operator=(const StatPage&) = delete;

  void show(engine::PollLoop& loop) noexcept override;
  /// @param values  one for each name. In a child that was forked it does nothing: the page is its parent's.
  void write(unsigned loop, std::uint64_t time_ns, std::span<const std::uint64_t> values) noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  explicit StatPage(const stat_layout::Header& header) noexcept;
  [[nodiscard]] bool map() noexcept;
  void publish(std::string_view texts) noexcept;

  int fd_ = -1;
  std::byte* bytes_ = nullptr;
  const stat_layout::Header header_;
  const unsigned forks_;  // before it was made
};

/// The names of a device's counters, as StatPage takes them.
[[nodiscard]] std::string counter_names();

}  // namespace uroce
