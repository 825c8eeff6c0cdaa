/// QP 1: management datagrams in and out.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "uroce/ah.h"
#include "uroce/cq.h"
#include "uroce/mr.h"
#include "uroce/pd.h"
#include "uroce/qp.h"
#include "wire/mad.h"

namespace uroce::cm {

/// General service interface. IBA 13.5.1 ?
///
/// Address handles are kept for those who were spoken to lately. What is for somebody whose Ethernet address
/// is not known yet waits here, so that nobody else waits for it, and so does what the send queue has no room
/// for.
///
/// Threads: one at a time.
class Gsi {
 public:
  static Result<std::unique_ptr<Gsi>> open(Device& device);

  /// What cannot be sent is dropped: the communication manager repeats.
  void send(const AhAttr& to, const wire::Mad& mad);
  using OnMad = std::function<void(const AhAttr& from, std::span<const std::byte, wire::kMadBytes> mad)>;
  /// Takes some of what has come and has left, and sends what could not be sent before.
  /// @return how many; what stays behind them is told of by no event of the CQ.
  std::size_t poll(const OnMad& on_mad);
  /// Why nobody may have heard what was sent to `to` last, after "; "; empty if somebody may have.
  [[nodiscard]] std::string trouble(const AhAttr& to) const;
  /// Whether something waits for an Ethernet address, or for room.
  [[nodiscard]] bool is_waiting() const noexcept { return !waiting_.empty(); }
  /// Whether poll() has not seen yet that all has left that was sent.
  [[nodiscard]] bool is_sending() const noexcept { return free_sends_.size() != kSends; }

  [[nodiscard]] Cq& cq() noexcept { return *cq_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  static constexpr std::uint32_t kReceives = 512;
  static constexpr std::uint32_t kSends = 256;
  static constexpr std::size_t kHandles = 1024;  // beyond, the one not used for longest goes
  static constexpr std::size_t kWaiting = 1024;
  static constexpr std::uint32_t kReceiveBytes = kGrhBytes + wire::kMadBytes;
  static constexpr std::uint64_t kSendMark = 1ULL << 32;  // of work request ids

  struct Handle {
    Ah ah;
    std::chrono::steady_clock::time_point made;
    bool resolved = false;
    std::uint64_t used = 0;
    std::optional<Ah> former{};  // which sends on their way name
  };
  struct Waiting {
    AhAttr to;
    wire::Mad mad;
    std::chrono::steady_clock::time_point until;
  };
  struct Order {
    bool operator()(const AhAttr& a, const AhAttr& b) const noexcept;
  };

  explicit Gsi(Device& device) : device_(device) {}
  Status make();
  Handle* handle_to(const AhAttr& to);
  bool post(const Handle& handle, const wire::Mad& mad);
  void post_receive(std::uint32_t slot);
  void receive(const Wc& wc, const OnMad& on_mad);
  [[nodiscard]] bool waits_for(const AhAttr& to) const;
  [[nodiscard]] bool is_ready(Handle& handle);
  void send_waiting();

  Device& device_;
  std::optional<Pd> pd_;
  std::optional<Cq> cq_;
  std::optional<Mr> memory_;
  std::optional<Qp> qp_;
  std::map<AhAttr, Handle, Order> handles_;
  std::vector<Waiting> waiting_;
  std::vector<std::uint32_t> free_sends_;  // slots
  std::uint64_t uses_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace uroce::cm
