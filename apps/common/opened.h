/// What a program opens late: when it is asked to, not when it starts.
#pragma once

#include <optional>
#include <utility>

#include "uroce/device.h"
#include "uroce/pd.h"

namespace uroce::apps {

/// Keeps what was made. @return why nothing was
template <typename T>
Status keep(std::optional<T>& place, Result<T> made) {
  if (!made) return made.error();
  place.emplace(std::move(*made));
  return {};
}

/// Opens a device with one protection domain.
inline Status open_device(const Config& config, std::optional<Device>& device, std::optional<Pd>& pd) {
  if (auto opened = keep(device, Device::open(config)); !opened) return opened;
  return keep(pd, Pd::create(*device));
}

}  // namespace uroce::apps
