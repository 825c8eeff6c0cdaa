#include "drivers/dpdk/device.h"
#include "drivers/dpdk/dpdk_ports.h"
#include "drivers/dpdk/queue_port.h"
#include "drivers/spec.h"

namespace uroce::drivers {

Result<std::vector<std::unique_ptr<port::Port>>> open_dpdk(const PortOptions& options) {
  auto spec = parse_spec(options.spec);
  if (!spec) return spec.error();
  auto described = dpdk::describe_device(std::move(*spec), options);
  if (!described) return described.error();
  auto device = dpdk::Device::open(std::move(*described));
  if (!device) return device.error();
  std::vector<std::unique_ptr<port::Port>> ports;
  for (std::uint16_t queue = 0; queue < (*device)->queues(); ++queue) {
    ports.push_back(std::make_unique<dpdk::QueuePort>(*device, queue));
  }
  return ports;
}

}  // namespace uroce::drivers
