/// Memory windows.
#pragma once

#include <cstdint>

#include "uroce/pd.h"
#include "uroce/wr.h"

namespace uroce {

/// Memory window: lets peers into a part of a memory region, under a key that can be taken back without a
/// call of the control path. IBA 10.6.7.
///
/// A window of type 1 is bound by Qp::bind_mw(), as often as wanted: each bind gives it a new key and ends
/// the one before. It serves every RC and UC QP of its protection domain. A window of type 2A or 2B is bound
/// by a work request WrOpcode::kBindMw that names one of its 256 keys, and only while it is free; it serves
/// the QP that was told to bind it, until that QP invalidates the key (kLocalInv), its peer does
/// (kSendWithInv), the QP is destroyed, or the window. Work requests bind and invalidate in the order of the
/// send queue of an RC QP: those posted later find it done. A local invalidate waits until all earlier work
/// requests of its send queue have completed, as if it were fenced.
///
/// Accesses that have begun end before the key does, for QPs whose CQs are of the loop (Device::loops()) of
/// the QP that binds or invalidates. QPs of other loops, which windows of type 1 serve as well, may be in the
/// midst of one through the old key when the bind completes: bind such a window, where its old memory is to
/// be used for something else at once, on the loop of all QPs whose peers have the key.
///
/// A bind that is not allowed completes with kMwBindErr, like an invalidate, and the QP goes to Error, a UC
/// QP to SQE: an unknown region, another protection domain, a region without access::kMwBind, a range that is
/// not inside, remote write or atomic access where the region has no local write, FLUSH placements that the
/// region does not have, a window of type 2 that is not free, or of length 0.
///
/// Threads: control; rkey() and Qp::bind_mw() by whoever posts to the QP. Lifetime: the PD outlives it. After
/// destruction nobody uses memory through it. A region whose window is bound cannot be deregistered or
/// registered anew (Mr::dereg(), Mr::rereg()); if it is destroyed all the same, the window gives access to
/// nothing.
class Mw {
 public:
  /// @return kNoMemory.
  static Result<Mw> create(Pd& pd, MwType type);
  Mw(Mw&& other) noexcept;
  Mw& operator=(Mw&& other) noexcept;
  ~Mw();

  [[nodiscard]] MwType type() const noexcept { return type_; }
  /// Type 1: the key of the newest bind that was posted. Type 2: the first of its keys.
  [[nodiscard]] Rkey rkey() const noexcept { return rkey_; }
  /// The one of its keys that ends in `low`: what a bind of type 2 may give it.
  [[nodiscard]] Rkey rkey(std::uint8_t low) const noexcept { return Rkey{(raw(rkey_) & ~0xffU) | low}; }

 private:
  friend class Qp;
  Mw(Device::Impl& device, MwType type, Rkey rkey) noexcept : device_(&device), type_(type), rkey_(rkey) {}

  Device::Impl* device_;  // nullptr: moved from
  MwType type_;
  Rkey rkey_;
};

}  // namespace uroce
