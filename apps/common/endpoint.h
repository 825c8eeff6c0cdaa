/// A device and connections on it, as every measuring program needs them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/common/clock.h"
#include "apps/common/cores.h"
#include "apps/common/exchange.h"
#include "uroce/ah.h"
#include "uroce/cq.h"
#include "uroce/device.h"
#include "uroce/mr.h"
#include "uroce/pd.h"
#include "uroce/qp.h"

namespace uroce::apps {

/// Index of the GID to use: `wanted` if given, else the first IPv4 address, else 0.
/// @return kNotFound if the device has no such index.
Result<std::uint32_t> choose_gid(const Device& device, std::optional<std::uint32_t> wanted);

/// Whether the two can speak to each other. @return kInvalid with what to do.
Status check_addresses(const Gid& own, const Gid& peer);

/// Whether memory can be registered at all, before others are made to wait for it. @return kNoHugepages.
Status try_memory(Device& device);

/// Why nobody answers, as far as the port knows; empty: it does not.
[[nodiscard]] std::string link_trouble(const Device& device);

/// link_trouble(), or why the peer does not get what is sent to it; empty: nothing is known.
[[nodiscard]] std::string delivery_trouble(const Device& device, const Gid& own, const Gid& peer);

/// The failure that a completion stands for, as one line; if the peer never answered, with what may be the
/// matter with the link.
/// @param why  what the QP says; empty: what the completion says
Error completion_error(const Device& device, const Wc& wc, std::string why, const Gid& own, const Gid& peer);

/// What a connection is made with. Defaults are those of ibv_rc_pingpong.
struct Wiring {
  QpInitAttr qp{};
  std::uint32_t cq_entries = 0;       ///< 0: what the QP's two rings need
  std::optional<PathMtu> path_mtu{};  ///< none: what the port's MTU allows
  std::optional<std::uint32_t> gid_index{};
  std::uint8_t max_rd_atomic = 1;  ///< both ways
  std::uint8_t timeout = 14;       ///< ack timeout code: 4.096 us << code
};

/// The Q_Key of the stock ping-pong programs.
inline constexpr std::uint32_t kPingPongQkey = 0x1111'1111;

/// One QP of any type with a CQ of its own.
///
/// Threads: one. Lifetime: the Device and Pd outlive it.
class Link {
 public:
  static Result<Link> create(Device& device, Pd& pd, const Wiring& wiring);

  [[nodiscard]] const QpAddress& address() const noexcept { return address_; }
  /// Moves the QP to RTS, with retry_cnt 7, rnr_retry 7, min_rnr_timer 12.
  Status connect(const QpAddress& peer);
  /// Sends to the peer, also where each work request says where it goes.
  [[nodiscard]] bool post_send(SendWr wr) noexcept;

  [[nodiscard]] Qp& qp() noexcept { return qp_; }
  [[nodiscard]] const Qp& qp() const noexcept { return qp_; }
  [[nodiscard]] Cq& cq() noexcept { return cq_; }
  [[nodiscard]] PathMtu path_mtu() const noexcept { return path_mtu_; }

  /// Waits for the next completion.
  /// @return kTimeout; kPeer with the reason if it carries an error.
  Result<Wc> next(std::uint64_t until_ns, bool give_way);
  /// The failure that a completion stands for, as one line.
  [[nodiscard]] Error failure(const Wc& wc) const;

 private:
  Link(Device& device, Pd& pd, Cq cq, Qp qp, const Wiring& wiring);

  Device* device_;
  Pd* pd_;
  Cq cq_;
  Qp qp_;
  std::optional<Ah> peer_;  // UD
  Qpn peer_qpn_{};          // UD
  Wiring wiring_;
  PathMtu path_mtu_ = PathMtu::k1024;
  std::uint32_t gid_index_ = 0;
  QpAddress address_;
  Gid peer_gid_;
};

/// Ack timeout code for the two ends of a link on this machine: long, since only a process that does not run
/// delays an answer there; the usual one if faults are injected.
[[nodiscard]] std::uint8_t local_link_timeout(const Device& device) noexcept;

/// The attributes of a connection between the two, on GID `gid_index`; those not named here at QpAttr's
/// defaults.
[[nodiscard]] QpAttr connect_attributes(const QpAddress& local, const QpAddress& peer, PathMtu mtu,
                                        std::uint32_t gid_index);

/// At the end: says on stderr if the capture file lacks frames.
void tell_of_lost_frames(const Device& device);

/// Keeps the device going for this long: acknowledges what the peer may still repeat.
void linger(Device& device, std::uint64_t ns);

/// Waits until the socket is readable, and keeps the device going meanwhile: the peer's kernel may have to
/// resolve our address before it can answer.
/// @param until_ns  on now_ns(); 0: for ever
Status wait_readable(Device& device, const Socket& socket, std::uint64_t until_ns);

/// Counts polls without a result and reads the clock now and then: a bound for spinning loops.
class Patience {
 public:
  Patience(std::uint64_t until_ns, GiveWay give_way) : until_ns_(until_ns), give_way_(give_way) {}
  /// @param shared  both sides are on one core
  Patience(std::uint64_t until_ns, bool shared) : Patience(until_ns, GiveWay::at_once_if(shared)) {}
  /// To be called after each poll that found nothing. @return whether the time is over.
  [[nodiscard]] bool is_over() noexcept;

 private:
  std::uint64_t until_ns_;
  std::uint32_t polls_ = 0;
  GiveWay give_way_;
};

}  // namespace uroce::apps
