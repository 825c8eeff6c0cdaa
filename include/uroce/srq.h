/// Shared receive queues.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "uroce/cq.h"
#include "uroce/pd.h"
#include "uroce/wr.h"
#include "uroce/xrcd.h"

namespace uroce {

/// Capacities asked for at creation; attr() tells those granted.
struct SrqInitAttr {
  std::uint32_t max_wr = 64;
  std::uint32_t max_sge = 1;
};

/// Shared receive queue: receives for whichever of its QPs has a message next. IBA 10.2.9.
///
/// Threads: post_recv() from one application thread at a time, and by none during resize(); everything else
/// from any control thread.
/// Lifetime: outlives the QPs that use it; its Pd and Device outlive it. The memory of its receives belongs
/// to its own protection domain.
class Srq {
 public:
  /// Its QPs belong to one loop, which the first of them chooses.
  /// @return kInvalid if `attr` exceeds Device::limits(), kLimit if all SRQ numbers are in use, kNoMemory.
  static Result<Srq> create(Pd& pd, const SrqInitAttr& attr);
  /// Receives for whatever the QPs of an XRC domain deliver to number(); they complete in `cq`, which must be
  /// of the domain's loop. RDMA requests that name it use the rights of `pd`.
  /// @return likewise; kInvalid also if one of these is of another device, kOtherLoop.
  static Result<Srq> create(Pd& pd, Xrcd& domain, Cq& cq, const SrqInitAttr& attr);
  Srq(Srq&&) noexcept;
  Srq& operator=(Srq&&) noexcept;
  ~Srq();

  /// Posts `wrs` in order. @return how many were taken; fewer: the ring is full, or one has too many SGEs.
  [[nodiscard]] std::size_t post_recv(std::span<const RecvWr> wrs) noexcept;
  [[nodiscard]] bool post_recv(const RecvWr& wr) noexcept { return post_recv(std::span{&wr, 1}) == 1; }

  /// Takes on another capacity, attr().max_wr; what is posted stays posted, also if this fails. IBA 11.2.3.3
  /// ?
  /// @return kInvalid if it is out of range, or below what is posted or the limit that is armed; kNoMemory.
  Status resize(std::uint32_t max_wr);

  /// Asks for one AsyncEventType::kSrqLimitReached once fewer than `limit` receives are left: at once if that
  /// is so already; 0: none.
  /// @return kInvalid if `limit` is above the capacity.
  Status arm_limit(std::uint32_t limit);
  /// The limit that is armed; 0 after its event.
  [[nodiscard]] std::uint32_t limit() const;
  [[nodiscard]] const SrqInitAttr& attr() const noexcept;
  [[nodiscard]] std::uint32_t number() const noexcept;  ///< 24 bits, unique per Device

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  static Result<Srq> make(Pd& pd, const SrqInitAttr& attr);
  explicit Srq(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
