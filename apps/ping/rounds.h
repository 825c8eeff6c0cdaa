/// The rounds of rping: the client offers memory that the server READs, then memory that it WRITEs the same
/// bytes to; each time the server says by an empty offer that it is done.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "apps/common/endpoint.h"
#include "uroce/connection.h"

namespace uroce::apps::ping {

/// Fewest bytes of a round: rping's, which puts the number of the round there as text.
inline constexpr std::uint32_t kFewestBytes = 26;
/// rping's default and its bound; a server takes so much whatever its --size.
inline constexpr std::uint32_t kDefaultBytes = 64;
inline constexpr std::uint32_t kRpingBytes = 64 * 1024;
inline constexpr std::uint16_t kDefaultPort = 7174;

/// The only message: memory that the peer may use. An answer has zeros, which nobody looks at.
///
///    0-7  address   8-11  rkey   12-15  bytes
struct Offer {
  static constexpr std::size_t kSize = 16;  // bytes

  std::uint64_t addr = 0;
  Rkey rkey{};
  std::uint32_t bytes = 0;

  friend constexpr bool operator==(const Offer&, const Offer&) = default;
  [[nodiscard]] static Offer parse(std::span<const std::byte, kSize> in) noexcept;
  void emit(std::span<std::byte, kSize> out) const noexcept;
};

/// What rping sends in round `number`: "rdma-ping-<number>: ", letters from one that moves on with the
/// number, and a zero at the end. `out` has kFewestBytes at least.
void fill_text(std::span<std::byte> out, std::uint64_t number) noexcept;

/// One side: a QP with its memory, and the connection once there is one.
///
/// Threads: one. Lifetime: the Device and the Cm outlive it.
class Side {
 public:
  /// @param bytes     of a round, at most
  static Result<std::unique_ptr<Side>> create(Device& device, std::uint32_t bytes, bool is_client);

  /// In Init, with its receives posted.
  [[nodiscard]] Qp& qp() noexcept { return *qp_; }
  void attach(Connection connection) { connection_.emplace(std::move(connection)); }
  void disconnect() { connection_.reset(); }

  enum class Outcome : std::uint8_t { kDone, kEnded, kStopped };
  /// Client: one round with all of the memory. @return kEnded if the peer ended the connection in good order.
  Result<Outcome> ask(std::uint64_t number);
  /// Server: answers one round.
  Result<Outcome> answer();

  /// Client: what was read, and what came back.
  [[nodiscard]] std::span<std::byte> source() const noexcept { return memory_->memory().first(bytes_); }
  [[nodiscard]] std::span<std::byte> sink() const noexcept {
    return memory_->memory().subspan(is_client_ ? bytes_ : 0, bytes_);
  }
  /// Of the last round.
  [[nodiscard]] std::uint32_t bytes() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t nanoseconds() const noexcept { return took_; }

 private:
  static constexpr std::uint32_t kSlots = 2;  // receives

  Side(Device& device, std::uint32_t bytes, bool is_client);
  Status make(Device& device);
  Status post_receive(std::uint32_t slot);
  Status send(const Offer& offer);
  Status post_rdma(WrOpcode opcode, const Offer& with);
  /// Waits for an offer, or the completion of a READ or WRITE.
  Result<Outcome> wait_for(WcOpcode wanted);
  Status on_completion(const Wc& wc);
  Result<Outcome> end();

  std::uint32_t bytes_;
  bool is_client_;
  GiveWay give_way_;
  std::optional<Pd> pd_;
  std::optional<Cq> cq_;
  std::optional<Mr> memory_;
  std::optional<Mr> slots_;
  std::optional<Qp> qp_;
  std::optional<Connection> connection_;
  std::optional<Offer> offer_;  ///< came, and is not used yet
  std::uint32_t used_ = 0;
  std::uint64_t took_ = 0;
};

}  // namespace uroce::apps::ping
