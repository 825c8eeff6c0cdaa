// Stands in for drivers/dpdk in a build without DPDK.
#include <algorithm>
#include <array>

#include "drivers/dpdk/dpdk_ports.h"
#include "drivers/spec.h"

namespace uroce::drivers {
namespace {
constexpr std::array<std::string_view, 8> kNames = {"memif", "af_packet", "af_xdp",      "tap",
                                                    "ring",  "vhost",     "virtio_user", "pci"};
}  // namespace

bool is_dpdk_driver(std::string_view driver) noexcept {
  return std::find(kNames.begin(), kNames.end(), driver) != kNames.end();
}

Status check_dpdk(const PortSpec&) {
  return {};  // it may be right in another build
}

Result<std::vector<std::unique_ptr<port::Port>>> open_dpdk(const PortOptions& options) {
  return Error{
      Errc::kUnsupported,
      "port \"" + options.spec +
          "\" needs DPDK 22.11, which this build lacks; install libdpdk-dev of that version and build "
          "again, or use shm:NAME"};
}

}  // namespace uroce::drivers
