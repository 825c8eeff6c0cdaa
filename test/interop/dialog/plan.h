/// What a batch of work requests does, and what memory must hold before and after. Both sides derive it from
/// one text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "endpoint.h"

namespace uroce::interop {

/// One work request of a batch. Its bytes have a place of their own in the memory of both sides.
struct Step {
  Request request;
  std::uint64_t fetched = 0;  ///< atomics: the value that must come back
};

/// A batch: at most Endpoint::kMaxWr steps that are all posted at once.
///
/// Every byte of memory has a value given by seed, side and offset before the batch; a transfer replaces the
/// target's bytes by the source's and nothing else, so that stray writes and swapped places are seen.
class Plan {
 public:
  /// @param spec  KIND:BYTES[:COUNT] with KIND send, sendimm, write, writeimm, read, cas, faa or mixed (BYTES
  /// is then
  ///              the greatest size); nothing if it is malformed or does not fit
  [[nodiscard]] static std::optional<Plan> parse(const std::string& spec, std::uint64_t seed);

  [[nodiscard]] std::span<const Step> steps() const noexcept { return steps_; }
  /// The steps that use up one of the passive side's receives, in order.
  [[nodiscard]] std::vector<Step> receives() const;

  /// Writes the bytes that must be there before the batch.
  void prepare_active(std::span<std::byte> memory) const;
  void prepare_passive(std::span<std::byte> memory) const;
  /// Empty if memory is as it must be after the batch, else what is wrong.
  [[nodiscard]] std::string verify_active(std::span<const std::byte> memory) const;
  [[nodiscard]] std::string verify_passive(std::span<const std::byte> memory) const;

 private:
  enum class Side : std::uint8_t { kActive = 1, kPassive = 2 };
  explicit Plan(std::uint64_t seed) noexcept : seed_(seed) {}
  [[nodiscard]] bool add(Verb verb, std::uint32_t bytes);
  void add_atomic(Step& step);
  [[nodiscard]] std::vector<std::byte> initial(Side side) const;
  [[nodiscard]] std::vector<std::byte> final(Side side) const;

  static constexpr std::uint64_t kGuardBytes = 72;    // between places, never written by a right transfer
  static constexpr std::uint64_t kCounterOffset = 8;  // the word that all fetch-and-adds of a batch share
  std::uint64_t seed_;
  std::uint64_t end_ = kCounterOffset + 8 + kGuardBytes;  // first offset not yet given away
  std::uint64_t counter_ = 0;                             // value of the shared word so far
  std::vector<Step> steps_;
};

/// A well mixed function of `value`.
[[nodiscard]] std::uint64_t scramble(std::uint64_t value) noexcept;

}  // namespace uroce::interop
