/// What a device counts, loop by loop: the counters of the engine, then those of the loop's port.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/counters.h"
#include "engine/poll_loop.h"
#include "port/port.h"

namespace uroce {

inline constexpr std::size_t kLoopCounters = kCounterNames.size() + port::kPortCounterNames.size();
using LoopCounters = std::array<std::uint64_t, kLoopCounters>;

[[nodiscard]] constexpr std::string_view loop_counter_name(std::size_t index) noexcept {
  return index < kCounterNames.size() ? kCounterNames[index]
                                      : port::kPortCounterNames[index - kCounterNames.size()].name;
}

/// Any thread. @param of_port  counters() or known_counters() of the loop's port
[[nodiscard]] inline LoopCounters read_counters(engine::PollLoop& loop,
                                                const port::PortCounters& of_port) noexcept {
  LoopCounters values{};
  auto* next = values.begin();
  for (std::size_t i = 0; i < kCounterNames.size(); ++i) *next++ = loop.counters().get(static_cast<Count>(i));
  for (const auto& one : port::kPortCounterNames) *next++ = of_port.*one.value;
  return values;
}

}  // namespace uroce
