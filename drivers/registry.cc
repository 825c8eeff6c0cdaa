#include "drivers/registry.h"

#include <chrono>

#include "drivers/dpdk/dpdk_ports.h"
#include "drivers/fault/fault_port.h"
#include "drivers/pcap/pcap_port.h"
#include "drivers/shm/open.h"
#include "drivers/spec.h"

namespace uroce::drivers {
namespace {

using Ports = std::vector<std::unique_ptr<port::Port>>;

std::uint64_t steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Status check_bare(const PortOptions& options) {
  const auto spec = parse_spec(options.spec);
  if (!spec) return spec.error();
  if (spec->driver == "shm") return check_shm(options);
  if (is_dpdk_driver(spec->driver)) return check_dpdk(*spec);
  const bool is_name_only = options.spec.find(':') == std::string::npos;
  return Error{
      Errc::kConfig,
      "port \"" + options.spec + "\": there is no driver \"" + spec->driver +
          "\"; known: shm, memif, af_packet, af_xdp, tap, ring, vhost, virtio_user, pci; e.g. " +
          (is_name_only ? "af_packet:" + options.spec + " for an interface of that name" : "shm:demo")};
}

Result<Ports> open_bare(const PortOptions& options) {
  if (Status good = check_bare(options); !good) return good.error();
  return parse_spec(options.spec)->driver == "shm" ? open_shm(options) : open_dpdk(options);
}

}  // namespace

Status check_ports(const PortOptions& options) {
  if (const auto rules = fault::parse_rules(options.fault); !rules) return rules.error();
  return check_bare(options);
}

/// The capture sits next to the engine: it shows what the engine sends and gets, with the faults beyond it.
Result<Ports> open_ports(const PortOptions& options) {
  auto rules = fault::parse_rules(options.fault);
  if (!rules) return rules.error();
  auto opened = open_bare(options);
  if (!opened) return opened;
  Ports ports = std::move(*opened);
  if (!options.fault.empty()) {
    for (std::size_t queue = 0; queue < ports.size(); ++queue) {
      ports[queue] =
          std::make_unique<FaultPort>(std::move(ports[queue]), *rules, options.seed + queue, steady_ns);
    }
  }
  if (!options.pcap.empty()) {
    auto file = pcap::CaptureFile::create(options.pcap);
    if (!file) return file.error();
    for (auto& queue : ports) queue = std::make_unique<PcapPort>(std::move(queue), *file);
  }
  return ports;
}

}  // namespace uroce::drivers
