/// What the communication manager needs of the inside of a device.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/time.h"
#include "uroce/ah.h"
#include "uroce/cq.h"
#include "uroce/qp.h"

namespace uroce {

/// QP of the general services, and the Q_Key that it has everywhere. IBA 3.9.1.2 ?, 10.2.5 ?
inline constexpr Qpn kGsiQpn{1};
inline constexpr std::uint32_t kGsiQkey = 0x8001'0000;

/// The loop that gets what is sent to QPN 1: the low bits of a QPN name its loop.
[[nodiscard]] unsigned gsi_loop(Device& device) noexcept;
/// One iteration of it, whoever else runs it.
void run_gsi_loop(Device& device);
/// QP 1 of the device: a UD QP with the Q_Key of the general services, in RTS. `cq` is of gsi_loop().
/// @return kBusy if there is one.
Result<Qp> make_gsi_qp(Pd& pd, Cq& cq, const QpInitAttr& attr);

/// The way to an address: from `source`, or from the first of the device's addresses that is on the same
/// link, or in the gateway's prefix, or may be routed.
/// @return kNotFound if no address of the device can reach it.
Result<AhAttr> route_to(Device& device, const Gid& to, const Gid& source);
[[nodiscard]] bool is_own_address(Device& device, const Gid& gid);
/// Whether the Ethernet address behind a handle is known.
[[nodiscard]] bool is_resolved(Device& device, const Ah& ah);
/// What may be wrong if it is not, after "; "; empty if it is.
[[nodiscard]] std::string unresolved_text(Device& device, const Ah& ah);

/// Attributes of Ah::from_wc().
Result<AhAttr> way_back(Device::Impl& device, const Wc& wc, std::span<const std::byte, kGrhBytes> grh);

/// Where a QP is, whose owner may move or destroy it.
///
/// Threads: any, except that a QP is not destroyed or moved inside use().
class QpWhereabouts {
 public:
  explicit QpWhereabouts(Qp& qp) noexcept : qp_(&qp) {}
  /// Calls `user` with the QP, which stays meanwhile, unless it is gone.
  template <typename User>
  void use(User&& user) {
    const std::lock_guard lock(mutex_);
    if (qp_ != nullptr) user(*qp_);
  }
  /// @param move  what moves it there
  template <typename Move>
  void move_to(Qp* there, Move&& move) noexcept {
    const std::lock_guard lock(mutex_);
    move();
    qp_ = there;
  }
  void move_to(std::nullptr_t) noexcept {
    move_to(nullptr, [] {});
  }

 private:
  std::mutex mutex_;
  Qp* qp_;
};
/// That of a QP, from now on. By its owner.
std::shared_ptr<QpWhereabouts> whereabouts_of(Qp& qp);

/// Whether a connected QP has heard from its peer, whatever PSN the application made it expect first.
[[nodiscard]] bool has_heard(Device& device, Qpn qpn);
/// PollLoop::keep_alive() of a QP of the device.
void keep_alive(Device& device, Qpn qpn, std::chrono::nanoseconds silence);
/// Whether all loops were run by who polls, or by Device::progress(), after that time.
[[nodiscard]] bool is_polled_since(Device& device, Ticks time) noexcept;
/// PollLoop::watch_failures() of all loops; -1: no more.
void watch_failures(Device& device, int fd);
/// Calls `failed` with the QPs that have failed since the last call, and perhaps with others.
/// @param has_missed  whether some may have been lost
/// @param all         those to ask about then, or if too many failed at once to be remembered
void take_failures(Device& device, bool has_missed, const std::function<std::vector<Qpn>()>& all,
                   const std::function<void(Qpn)>& failed);
/// Why a QP is in Error; empty if it is not, or gone.
[[nodiscard]] std::string failure_of(Device& device, Qpn qpn);

}  // namespace uroce
