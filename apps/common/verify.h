/// Byte verification of every operation between two processes.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "apps/common/endpoint.h"
#include "apps/common/worker.h"

namespace uroce::apps {

/// One end of a connection on which operations are checked: the driving end carries them out, the other one
/// prepares and checks its memory on request, by messages on the same connection.
///
/// Threads: one. Lifetime: Device and Pd outlive it.
class Verifier {
 public:
  static Result<Verifier> create(Device& device, Pd& pd, bool give_way);

  [[nodiscard]] Json describe() const;
  Status connect(const Json& peer);

  /// Carries out every operation in every size, 0 to 1 MiB, `rounds` times. The other end runs serve().
  /// @return {"operations", "bytes", "errors", "first_error"}; a failure if the connection broke.
  Result<Json> drive(std::uint64_t seed, unsigned rounds);
  Result<Json> serve();

 private:
  enum class Op : std::uint32_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kAtomics, kEnd };
  /// What the driving end says to the other one, before and after an operation.
  struct Step {
    Op op{};
    std::uint32_t bytes = 0;
    std::uint64_t seed = 0;
    std::uint64_t value = 0;   ///< of the counter that atomics change
    std::uint64_t errors = 0;  ///< in answers: bytes found wrong
  };
  static constexpr std::uint32_t kMaxBytes = 1U << 20U;
  static constexpr std::size_t kGuard = 64;  ///< bytes on both sides of the data that must not change
  static constexpr std::size_t kStepOut = 0;
  static constexpr std::size_t kStepIn = 64;
  static constexpr std::size_t kDataAt = 128 + kGuard;
  static constexpr std::size_t kMemoryBytes = kDataAt + kMaxBytes + kGuard;

  Verifier(Mr memory, Link link, bool give_way)
      : memory_(std::move(memory)), link_(std::move(link)), give_way_(give_way) {}

  static bool takes_receive(Op op) noexcept { return op <= Op::kSendImm || op == Op::kWriteImm; }
  static bool has_immediate(Op op) noexcept { return op == Op::kSendImm || op == Op::kWriteImm; }
  static std::string_view name(Op op) noexcept;

  Status carry_out(const Step& step);
  Status transfer(const Step& step);
  Status atomics(Step& step);
  /// One atomic; counts an error unless it returns `expected`.
  Status atomic(const Step& step, WrOpcode opcode, std::uint64_t operand, std::uint64_t swap,
                std::uint64_t expected);
  Status serve_one(const Step& step);
  [[nodiscard]] std::uint64_t check_served(const Step& step, const Wc& received) const;

  Status post(SendWr wr);
  Status post_receive(std::uint64_t wr_id, std::size_t offset, std::uint32_t bytes);
  Result<Wc> wait_for(std::uint64_t wr_id);
  Status tell(const Step& step);
  Result<Step> hear();
  Result<Step> ask(const Step& step);

  void clear_data(std::uint32_t bytes);
  [[nodiscard]] std::span<std::byte> data(std::uint32_t bytes) const {
    return memory_.memory().subspan(kDataAt, bytes);
  }
  [[nodiscard]] std::uint64_t data_errors(std::uint32_t bytes, std::uint64_t seed) const;
  void count(std::uint64_t errors, const Step& step, std::string_view where);

  Mr memory_;
  Link link_;
  bool give_way_;
  std::uint64_t peer_addr_ = 0;
  Rkey peer_rkey_{};
  std::uint64_t operations_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t errors_ = 0;
  std::string first_error_;
};

}  // namespace uroce::apps
