/// What to do to which frames, as text and as data. The language is described in README.md beside this file.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "drivers/frame_fields.h"
#include "uroce/result.h"

namespace uroce::drivers::fault {

enum class Action : std::uint8_t { kDrop, kDuplicate, kReorder, kCorrupt, kTruncate, kDelay, kMarkCe };

enum class Direction : std::uint8_t { kRx, kTx };

/// By the syndrome of the AETH. IBA 9.7.5.2.
enum class AckKind : std::uint8_t { kAck, kRnrNak, kNak };

/// One action and the frames it applies to. A frame must satisfy all predicates that are set.
struct Rule {
  Action action = Action::kDrop;
  Direction direction = Direction::kRx;
  bool any_frame = false;  ///< else RoCE frames only
  std::optional<double> probability;
  std::optional<std::uint8_t> opcode;
  std::optional<std::uint32_t> dest_qpn;
  std::optional<std::uint32_t> psn;
  std::optional<AckKind> ack;
  std::uint64_t larger = 0;  ///< only frames of more bytes, from the Ethernet header on
  std::uint64_t nth = 0;     ///< only the nth match, from 1; 0: each
  std::uint64_t every = 0;   ///< only each every-th match; 0: each
  std::uint64_t amount = 0;  ///< kDelay: ns; kReorder: frames that overtake

  std::uint64_t matches = 0;  ///< so far; kept by who applies the rule

  /// Whether a frame of `len` bytes satisfies the predicates that look at it. `fields` is null if it is not
  /// RoCE.
  [[nodiscard]] bool fits(const RoceFields* fields, std::size_t len) const noexcept;
};

/// @return kConfig naming the clause that is wrong and what is allowed. Empty text gives no rules.
Result<std::vector<Rule>> parse_rules(std::string_view text);

/// Opcode by name ("RC_WRITE_MIDDLE", "UD_SEND_ONLY", "CNP") or number ("0x07").
[[nodiscard]] std::optional<std::uint8_t> opcode_by_name(std::string_view name) noexcept;

}  // namespace uroce::drivers::fault
