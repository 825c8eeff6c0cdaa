/// QP 1: management datagrams in and out.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
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
/// for. Whoever was not spoken to for longest makes room for others, so that senders without number, of whom
/// nobody may be there, keep nobody from being answered.
///
/// Threads: one at a time.
class Gsi {
 public:
  static Result<std::unique_ptr<Gsi>> open(Device& device);

  /// What cannot be sent is dropped: the communication manager repeats.
  void send(const AhAttr& to, const wire::Mad& mad) noexcept;
  using OnMad = std::function<void(const AhAttr& from, std::span<const std::byte, wire::kMadBytes> mad)>;
  /// Takes some of what has come and has left, and sends what could not be sent before.
  /// @return how many; what stays behind them is told of by no event of the CQ.
  std::size_t poll(const OnMad& on_mad);
  /// Why nobody may have heard what was sent to `to` last, after "; "; empty if somebody may have.
  [[nodiscard]] std::string trouble(const AhAttr& to) const;
  /// Whether something waits for an Ethernet address, or for room.
  [[nodiscard]] bool is_waiting() const noexcept { return waiting_ != 0; }
  /// Whether poll() has not seen yet that all has left that was sent.
  [[nodiscard]] bool is_sending() const noexcept { return free_sends_.size() != kSends; }

  [[nodiscard]] Cq& cq() noexcept { return *cq_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  static constexpr std::uint32_t kReceives = 512;
  static constexpr std::uint32_t kSends = 256;
  static constexpr std::size_t kPeers = 1024;
  static constexpr std::size_t kWaiting = 1024;
  static constexpr std::uint32_t kReceiveBytes = kGrhBytes + wire::kMadBytes;
  static constexpr std::uint64_t kSendMark = 1ULL << 32;  // of work request ids

  using Time = std::chrono::steady_clock::time_point;
  struct Waiting {
    wire::Mad mad;
    Time until;
  };
  /// Somebody who was spoken to lately.
  struct Peer {
    AhAttr to;
    Ah ah;
    Time made;  // the handle
    bool resolved = false;
    std::optional<Ah> former{};  // which sends on their way name
    std::vector<Waiting> waiting{};
    Time next_look{};  // whether the address is known by now
  };
  struct Order {
    bool operator()(const AhAttr& a, const AhAttr& b) const noexcept;
  };

  explicit Gsi(Device& device) : device_(device) {}
  Status make();
  Peer* peer_at(const AhAttr& to, Time now);
  bool renew(Peer& peer, Time now);
  void drop_last();
  bool try_send(const AhAttr& to, const wire::Mad& mad);
  bool post(const Peer& peer, const wire::Mad& mad);
  void post_receive(std::uint32_t slot);
  void receive(const Wc& wc, const OnMad& on_mad);
  [[nodiscard]] bool is_ready(Peer& peer);
  bool keep(Peer& peer, const wire::Mad& mad, Time until);
  void drop(Peer& peer, std::size_t count);
  void forget(Peer& peer, std::size_t count);
  void send_waiting(Peer& peer, Time now);
  void send_waiting();

  Device& device_;
  std::optional<Pd> pd_;
  std::optional<Cq> cq_;
  std::optional<Mr> memory_;
  std::optional<Qp> qp_;
  std::list<Peer> peers_;  // the one spoken to last first
  std::map<AhAttr, std::list<Peer>::iterator, Order> by_address_;
  std::size_t waiting_ = 0;                // MADs of all of them
  std::vector<std::uint32_t> free_sends_;  // slots
  std::uint64_t dropped_ = 0;
};

}  // namespace uroce::cm
