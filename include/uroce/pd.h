/// Protection domain.
#pragma once

#include <cstdint>
#include <memory>

#include "uroce/device.h"

namespace uroce {

/// Protection domain: a QP can use a memory region only if both belong to the same one. IBA 10.2.3.
///
/// Threads: control. Lifetime: outlives its MRs and QPs; the Device outlives it.
class Pd {
 public:
  static Result<Pd> create(Device& device);
  Pd(Pd&&) noexcept = default;
  Pd& operator=(Pd&&) noexcept = default;

  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] Device::Impl& device() const noexcept { return *device_; }

 private:
  Pd(Device::Impl& device, std::uint32_t number) noexcept : device_(&device), number_(number) {}
  Device::Impl* device_;
  std::uint32_t number_;
};

}  // namespace uroce
