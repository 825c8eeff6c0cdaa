/// XRC domains.
#pragma once

#include <memory>

#include "uroce/device.h"

namespace uroce {

/// XRC domain: joins shared receive queues with the QPs that deliver into them. A process that has one
/// receiving QP (QpType::kXrcRecv) per peer can so be reached by all threads of all peers, each of which
/// names the Srq that it means. IBA A14 ?
///
/// Threads: control. Lifetime: outlives its SRQs and QPs; the Device outlives it. Not shared with other
/// processes.
class Xrcd {
 public:
  /// All that is made with it belongs to one loop: that of the first Cq, or any if a QP is first.
  /// @return kNoMemory.
  static Result<Xrcd> create(Device& device);
  Xrcd(Xrcd&&) noexcept;
  Xrcd& operator=(Xrcd&&) noexcept;
  ~Xrcd();

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  explicit Xrcd(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
