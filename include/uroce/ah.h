/// Address handles: where datagrams go.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "uroce/ah_attr.h"
#include "uroce/pd.h"
#include "uroce/wc.h"

namespace uroce {

/// Address handle. Its peer's Ethernet address is asked for at once, and kept up to date.
///
/// Threads: control. Lifetime: the Device outlives it. What was posted before it goes is still sent; work
/// requests that name a handle which has gone complete with LOC_QP_OP_ERR.
class Ah {
 public:
  /// @return kInvalid: dgid is zero, sgid_index is beyond the GID table, both are of different families, or
  ///   sl is above 7; kNoMemory.
  static Result<Ah> create(Pd& pd, const AhAttr& attr);
  /// The way back to the sender of a UD receive: from the address it was sent to, in the same VLAN, or in
  /// another one if it is no longer in that.
  /// @param grh  the first bytes of the receive's memory
  static Result<Ah> from_wc(Pd& pd, const Wc& wc, std::span<const std::byte, kGrhBytes> grh);
  Ah(Ah&&) noexcept;
  Ah& operator=(Ah&&) noexcept;
  ~Ah();

  [[nodiscard]] AhId id() const noexcept;
  [[nodiscard]] const AhAttr& attr() const noexcept;

  struct Impl;

 private:
  explicit Ah(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
