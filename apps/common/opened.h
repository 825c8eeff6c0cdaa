/// What a program opens late: when it is asked to, not when it starts.
#pragma once

#include <optional>
#include <utility>

#include "apps/common/endpoint.h"
#include "apps/common/worker.h"
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

/// Worker service on a device with one protection domain. When it ends, it tells what its capture lacks.
class DeviceService : public Service {
 public:
  DeviceService(const DeviceService&) = delete;
  DeviceService& operator=(const DeviceService&) = delete;
  ~DeviceService() override {
    if (device_) tell_of_lost_frames(*device_);
  }

 protected:
  explicit DeviceService(Config config) : config_(std::move(config)) {}

  Status open_device() {
    if (auto opened = keep(device_, Device::open(config_)); !opened) return opened;
    return keep(pd_, Pd::create(*device_));
  }

  Config config_;
  std::optional<Device> device_;
  std::optional<Pd> pd_;
};

}  // namespace uroce::apps
