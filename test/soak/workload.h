/// The operations that one side of the mixed-operations soak performs: a function of seed and index alone, so
/// that the other side can tell what must arrive without being told.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "uroce/wr.h"

namespace uroce::soak {

inline constexpr std::uint32_t kTargetBytes = 256 * 1024;  // of the peer's memory, written by one side only
inline constexpr std::uint32_t kCounters = 64;             // 8-byte atomics behind the target
inline constexpr std::uint32_t kMaxBytes = 16 * 1024;      // of one operation

/// One operation.
struct Op {
  WrOpcode opcode{};
  std::uint32_t bytes = 0;
  std::uint32_t offset = 0;  // in the target, or the number of the counter
  std::uint32_t imm = 0;
  std::uint64_t operand = 0;  // addend, or new value
  std::uint64_t content = 0;  // seed of the payload

  [[nodiscard]] bool takes_recv() const noexcept {
    return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm ||
           opcode == WrOpcode::kRdmaWriteWithImm;
  }
  [[nodiscard]] bool is_send() const noexcept {
    return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendWithImm;
  }
  [[nodiscard]] bool is_write() const noexcept {
    return opcode == WrOpcode::kRdmaWrite || opcode == WrOpcode::kRdmaWriteWithImm;
  }
  [[nodiscard]] bool is_atomic() const noexcept {
    return opcode == WrOpcode::kAtomicCmpAndSwp || opcode == WrOpcode::kAtomicFetchAndAdd;
  }
};

/// Fills `out` with the payload that `seed` stands for.
inline void fill(std::uint64_t seed, std::span<std::byte> out) noexcept {
  std::uint64_t word = seed | 1;
  std::size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    std::memcpy(&out[i], &word, 8);
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
  }
  if (i < out.size()) std::memcpy(&out[i], &word, out.size() - i);
}

/// The stream of operations of one side, and what the peer's memory holds after those generated so far.
class Workload {
 public:
  explicit Workload(std::uint64_t seed) : random_(seed), target_(kTargetBytes), counters_{} {}

  /// The next operation; the model of the target moves on with it.
  Op next() {
    constexpr std::array kKinds{WrOpcode::kSend,           WrOpcode::kSend,      WrOpcode::kSendWithImm,
                                WrOpcode::kRdmaWrite,      WrOpcode::kRdmaWrite, WrOpcode::kRdmaWriteWithImm,
                                WrOpcode::kRdmaRead,       WrOpcode::kRdmaRead,  WrOpcode::kAtomicFetchAndAdd,
                                WrOpcode::kAtomicCmpAndSwp};
    Op op{.opcode = kKinds[random_.below(kKinds.size())]};
    op.content = random_.next();
    op.imm = random_.next32();
    op.operand = random_.next();
    if (op.is_atomic()) {
      op.bytes = 8;
      op.offset = static_cast<std::uint32_t>(random_.below(kCounters));
      return op;
    }
    const std::uint64_t kind = random_.below(16);
    op.bytes = static_cast<std::uint32_t>(kind == 0 ? random_.below(kMaxBytes + 1)
                                                    : random_.below(kind < 4 ? 2048 : 200));
    op.offset = static_cast<std::uint32_t>(random_.below(kTargetBytes - op.bytes + 1));
    if (op.is_write()) fill(op.content, std::span(target_).subspan(op.offset, op.bytes));
    return op;
  }

  /// Applies an atomic to the model. @return the value before.
  std::uint64_t apply_atomic(const Op& op, std::uint64_t compare) noexcept {
    std::uint64_t& counter = counters_[op.offset];
    const std::uint64_t original = counter;
    if (op.opcode == WrOpcode::kAtomicFetchAndAdd) {
      counter += op.operand;
    } else if (counter == compare) {
      counter = op.operand;
    }
    return original;
  }
  /// What a compare-and-swap compares with: every second one hits.
  [[nodiscard]] std::uint64_t compare_for(const Op& op) const noexcept {
    return (op.content & 1) != 0 ? counters_[op.offset] : counters_[op.offset] + 1;
  }

  [[nodiscard]] std::span<const std::byte> target() const noexcept { return target_; }
  [[nodiscard]] std::span<const std::uint64_t> counters() const noexcept { return counters_; }

 private:
  Random random_;
  std::vector<std::byte> target_;
  std::array<std::uint64_t, kCounters> counters_;
};

}  // namespace uroce::soak
