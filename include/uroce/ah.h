/// Address handles: where datagrams go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "uroce/pd.h"
#include "uroce/types.h"
#include "uroce/wc.h"

namespace uroce {

/// Same meaning as struct ibv_ah_attr with its GRH.
struct AhAttr {
  Gid dgid{};
  std::uint32_t sgid_index = 1;
  std::uint8_t traffic_class = 0;  ///< DSCP << 2 | ECN
  std::uint8_t hop_limit = 64;     ///< 0 and 1 mean 64
  std::uint32_t flow_label = 0;    ///< 20 bits; 0: from the QP numbers
};

/// The first bytes of every UD receive: the sender's network header. IBA A17.4.5.1.
inline constexpr std::size_t kGrhBytes = 40;

/// Address handle. Its peer's Ethernet address is asked for at once, and kept up to date.
///
/// Threads: control. Lifetime: the Device outlives it. Work requests that name a handle which is gone
/// complete with LOC_QP_OP_ERR.
class Ah {
 public:
  /// @return kInvalid: dgid is zero, sgid_index is beyond the GID table, or both are of different families.
  static Result<Ah> create(Pd& pd, const AhAttr& attr);
  /// The way back to the sender of a UD receive.
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
