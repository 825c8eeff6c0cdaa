/// The kinds of links but memif: af_packet, af_xdp, tap, ring, virtio_user, vhost, pci.
#include <rte_pci.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>

#include "drivers/dpdk/device_spec.h"
#include "drivers/dpdk/dpdk_ports.h"
#include "drivers/dpdk/interface.h"
#include "drivers/dpdk/socket_path.h"

namespace uroce::drivers::dpdk {
namespace {

constexpr std::uint32_t kMinLinkMtu = 256;
constexpr std::uint32_t kMaxLinkMtu = 9600;
constexpr unsigned kMaxQueues = 16;

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

/// The MTU to use on a kernel interface: the interface's, or a smaller one.
Result<std::uint32_t> take_interface_mtu(PortSpec& spec, const PortOptions& options,
                                         const Interface& interface) {
  auto link_mtu = take_link_mtu(spec, options, std::min(interface.mtu, kMaxLinkMtu));
  if (link_mtu && *link_mtu > interface.mtu) {
    return Error{Errc::kConfig, "link MTU " + number(*link_mtu) + " is above the MTU " +
                                    number(interface.mtu) + " of " + spec.argument +
                                    "; run: sudo ip link set " + spec.argument + " mtu " + number(*link_mtu)};
  }
  return link_mtu;
}

/// "af_packet:IFACE[,mtu=][,framesz=][,framecnt=][,qdisc_bypass=][,ring=][,exclusive=]"
Result<DeviceSpec> describe_af_packet(PortSpec spec, const PortOptions& options) {
  auto interface = find_interface(spec.argument);
  if (!interface) return interface.error();
  if (Status status = require_right(Right::kRawSockets, "af_packet"); !status) return status.error();
  if (Status status = require_up(spec.argument, *interface); !status) return status.error();
  auto link_mtu = take_interface_mtu(spec, options, *interface);
  if (!link_mtu) return link_mtu.error();

  // The driver addresses frames as one array: they must fill their blocks without a gap, hence powers of two.
  // A ring slot starts with the kernel's header (TPACKET2_HDRLEN, 52 bytes, and alignment). The kernel cuts
  // larger frames to their slot: their ICRC is wrong then, and counted so.
  constexpr std::uint32_t kSlotHeader = 96;
  const std::uint32_t longest = std::min(interface->mtu, kMaxLinkMtu);
  const std::uint32_t smallest = std::bit_ceil(frame_bytes(longest) + kSlotHeader);
  auto frame = spec.take_number("framesz", std::max(smallest, 2048U), 2048, 32'768);
  if (!frame) return frame.error();
  if (*frame < smallest || !std::has_single_bit(*frame)) {
    return Error{Errc::kConfig, "port \"" + spec.text + "\": framesz=" + number(*frame) +
                                    " does not do; it must be a power of two from " + number(smallest) +
                                    " for MTU " + number(longest)};
  }
  auto frames = spec.take_number("framecnt", *frame > 4096 ? 512 : 1024, 64, 16'384);
  if (!frames) return frames.error();
  auto bypass = spec.take_bool("qdisc_bypass", true);
  if (!bypass) return bypass.error();
  auto uses_ring = spec.take_bool("ring", false);
  if (!uses_ring) return uses_ring.error();
  auto is_exclusive = spec.take_bool("exclusive", true);
  if (!is_exclusive) return is_exclusive.error();

  const std::uint64_t block = std::max<std::uint64_t>(*frame, 65'536);
  const std::uint64_t count = std::max(*frames / (block / *frame), std::uint64_t{1}) * (block / *frame);
  DeviceSpec device{.text = spec.text};
  device.queues = std::min(options.queues, kMaxQueues);
  device.device = "net_af_packet";
  device.netdev = spec.argument;
  device.arguments = "iface=" + spec.argument + ",qpairs=" + number(device.queues) +
                     ",blocksz=" + number(block) + ",framesz=" + number(*frame) +
                     ",framecnt=" + number(count) + ",qdisc_bypass=" + (*bypass ? "1" : "0");
  device.is_exclusive = *is_exclusive;
  if (!*uses_ring) device.sends = *bypass ? Sends::kPastQdisc : Sends::kThroughQdisc;
  device.link_mtu = *link_mtu;
  device.mbuf_room = static_cast<std::uint32_t>(*frame);  // the driver copies a whole slot unchecked
  return device;
}

/// "af_xdp:IFACE[,mtu=][,force_copy=][,busy_budget=][,start_queue=]"
Result<DeviceSpec> describe_af_xdp(PortSpec spec, const PortOptions& options) {
  // The kernel wants frame, mbuf and headrooms in one page; the mempool makes that 63 cache lines at most.
  constexpr std::uint32_t kKernelHeadroom = 256;
  constexpr std::uint32_t kMaxRoom = 63 * 64 - 64 - 128 - 128;  // - mempool header - mbuf - headroom
  constexpr std::uint32_t kMaxMtu = kMaxRoom - kKernelHeadroom - frame_bytes(0);
  auto interface = find_interface(spec.argument);
  if (!interface) return interface.error();
  if (Status status = require_right(Right::kXdp, "af_xdp"); !status) return status.error();
  if (Status status = require_up(spec.argument, *interface); !status) return status.error();
  auto link_mtu = take_interface_mtu(spec, options, *interface);
  if (!link_mtu) return link_mtu.error();
  if (interface->mtu > kMaxMtu) {
    return Error{Errc::kUnsupported, "af_xdp carries an MTU of at most " + number(kMaxMtu) +
                                         " (path MTU 2048), " + spec.argument + " has " +
                                         number(interface->mtu) + "; run: sudo ip link set " + spec.argument +
                                         " mtu " + number(kMaxMtu) + "   or use af_packet:" + spec.argument};
  }
  auto force_copy = spec.take_bool("force_copy", interface->is_veth);
  if (!force_copy) return force_copy.error();
  auto budget = spec.take_number("busy_budget", 0, 0, 1024);  // 0 measures 10 % better on veth
  if (!budget) return budget.error();
  const unsigned queues = std::min(options.queues, interface->xdp_queues);
  if (!spec.has("start_queue")) {  // who names one has flows steered to the port's queues
    if (Status status = require_all_queues(spec.argument, *interface, queues); !status) return status.error();
  }
  auto start = spec.take_number("start_queue", 0, 0, 255);
  if (!start) return start.error();

  DeviceSpec device{.text = spec.text};
  device.queues = queues;
  device.device = "net_af_xdp";
  device.lends_mbufs = true;
  device.netdev = spec.argument;
  device.arguments = "iface=" + spec.argument + ",start_queue=" + number(*start) +
                     ",queue_count=" + number(device.queues) + ",busy_budget=" + number(*budget) +
                     ",force_copy=" + (*force_copy ? "1" : "0");
  if (interface->has_xdp_program) {
    device.hint = spec.argument +
                  " has an XDP program: of a process that uses it, or of one that was killed; if so, run: "
                  "sudo ip link set " +
                  spec.argument + " xdp off";
  } else if (interface->is_veth) {
    device.hint =
        "a veth whose other end has more tx queues than it has receive queues takes no XDP; if so, run "
        "there: sudo ethtool -L PEER tx " +
        number(interface->rx_queues);
  }
  device.link_mtu = *link_mtu;
  const std::uint32_t whole_frame = (frame_bytes(*link_mtu) + 63) / 64 * 64;
  device.mbuf_room = std::min(std::max(whole_frame, 2048U) + kKernelHeadroom, kMaxRoom);
  device.mbufs = 8191;  // fill ring 2 x 2048, completion ring 2048, and what is in hand
  device.rx_descriptors = 2048;
  device.tx_descriptors = 2048;
  return device;
}

/// "tap:NAME[,mtu=][,persist]"
Result<DeviceSpec> describe_tap(PortSpec spec, const PortOptions& options) {
  constexpr std::uint32_t kTapMtu = 1500;
  if (spec.argument.empty() || spec.argument.size() > 15) {
    return Error{Errc::kConfig, "name the tap interface to make, at most 15 characters, e.g. tap:tap0"};
  }
  if (Status status = require_right(Right::kTunDevice, "tap"); !status) return status.error();
  if (Status status = require_right(Right::kNetAdmin, "tap"); !status) return status.error();
  auto link_mtu = take_link_mtu(spec, options, kTapMtu);
  if (!link_mtu) return link_mtu.error();
  if (*link_mtu > kTapMtu) {
    return Error{Errc::kUnsupported, "tap carries an MTU of at most " + number(kTapMtu) +
                                         "; for larger ones use af_packet on a veth pair"};
  }
  auto is_persistent = spec.take_bool("persist", false);
  if (!is_persistent) return is_persistent.error();
  if (!*is_persistent && interface_exists(spec.argument)) {
    return Error{Errc::kNameInUse, "network interface '" + spec.argument +
                                       "' exists already; take another name, or " + "run: sudo ip link del " +
                                       spec.argument};
  }

  DeviceSpec device{.text = spec.text};
  device.queues = std::min(options.queues, kMaxQueues);
  device.device = "net_tap";
  device.waits_for_trigger = true;
  device.netdev = spec.argument;
  device.arguments = "iface=" + spec.argument + (*is_persistent ? ",persist" : "");
  device.link_mtu = *link_mtu;
  device.mbuf_room = std::max((frame_bytes(*link_mtu) + 63) / 64 * 64, 2048U);
  device.rx_descriptors = 4;  // mbufs of one read, not a ring
  device.sets_mtu = true;
  device.has_own_mac = true;  // the interface is the kernel's end of the wire, the port is ours
  return device;
}

/// "ring[,mtu=]": what is sent comes back.
Result<DeviceSpec> describe_ring(PortSpec spec, const PortOptions& options) {
  auto link_mtu = take_link_mtu(spec, options, 4200);
  if (!link_mtu) return link_mtu.error();
  DeviceSpec device{.text = spec.text};
  device.queues = std::min(options.queues, kMaxQueues);
  device.device = "net_ring";
  device.link_mtu = *link_mtu;
  device.mbuf_room = std::max((frame_bytes(*link_mtu) + 63) / 64 * 64, 2048U);
  device.mbufs = 2047;  // 1023 in the ring
  device.has_own_mac = true;
  return device;
}

/// "virtio_user:/socket[,mtu=][,queue_size=][,packed][,server]" and "vhost:/socket[,mtu=][,client]"
Result<DeviceSpec> describe_vhost_user(PortSpec spec, const PortOptions& options) {
  const bool is_backend = spec.driver == "vhost";
  if (Status status = check_socket_path(spec); !status) return status.error();
  auto link_mtu = take_link_mtu(spec, options, 4200);
  if (!link_mtu) return link_mtu.error();
  auto size = spec.take_number("queue_size", 1024, 64, 4096);
  if (!size) return size.error();
  auto is_packed = spec.take_bool("packed", true);
  if (!is_packed) return is_packed.error();
  auto is_swapped = spec.take_bool(is_backend ? "client" : "server", false);  // who listens on the socket
  if (!is_swapped) return is_swapped.error();

  DeviceSpec device{.text = spec.text};
  if (is_backend != *is_swapped) {  // this end listens
    auto lock = lock_directory_of(spec.argument);
    if (!lock) return lock.error();
    device.lock = std::move(*lock);
    const auto holder = find_holder(spec.argument, SOCK_STREAM);
    if (!holder) return holder.error();
    if (Status status = take_over(spec.argument, *holder, spec.text); !status) return status.error();
  }
  device.queues = std::min(options.queues, 8U);
  device.is_two_ended = true;
  device.side = is_backend ? 0 : 1;
  device.link_mtu = *link_mtu;
  device.mbuf_room = std::max((frame_bytes(*link_mtu) + 63) / 64 * 64, 2048U);
  if (is_backend) {
    device.device = "net_vhost";
    device.arguments = "iface=" + spec.argument + ",queues=" + number(device.queues) +
                       ",client=" + (*is_swapped ? "1" : "0");
    device.mbufs = 1023;
  } else {
    device.device = "net_virtio_user";
    device.arguments = "path=" + spec.argument + ",queues=" + number(device.queues) +
                       ",queue_size=" + number(*size) + ",packed_vq=" + (*is_packed ? "1" : "0") +
                       ",server=" + (*is_swapped ? "1" : "0");
    device.rx_descriptors = device.tx_descriptors = static_cast<std::uint16_t>(*size);
    device.mbufs = static_cast<std::uint32_t>(2 * *size) + 511;
    device.hint = "is the vhost-user backend running on " + spec.argument + "?";
  }
  return device;
}

/// "pci:0000:01:00.0[,mtu=]"
Result<DeviceSpec> describe_pci(PortSpec spec, const PortOptions& options) {
  rte_pci_addr address{};
  if (rte_pci_addr_parse(spec.argument.c_str(), &address) != 0) {
    return Error{Errc::kConfig,
                 "port \"" + spec.text +
                     "\" must name a PCI address, e.g. pci:0000:01:00.0; see: " + "dpdk-devbind.py --status"};
  }
  auto link_mtu = take_link_mtu(spec, options, 1500);
  if (!link_mtu) return link_mtu.error();
  DeviceSpec device{.text = spec.text};
  device.queues = std::min(options.queues, 64U);
  device.bus = "pci";
  char name[PCI_PRI_STR_SIZE];
  rte_pci_device_name(&address, name, sizeof name);
  device.device = name;  // as DPDK spells it, whatever the user does
  device.hint = "bind it first: sudo dpdk-devbind.py -b vfio-pci " + device.device;
  device.link_mtu = *link_mtu;
  device.mbuf_room = std::max((frame_bytes(*link_mtu) + 1023) / 1024 * 1024, 2048U);
  device.rx_descriptors = 1024;
  device.tx_descriptors = 1024;
  device.mbufs = 4095;
  device.sets_mtu = true;
  return device;
}

struct Kind {
  std::string_view name;
  Result<DeviceSpec> (*describe)(PortSpec, const PortOptions&);
  std::span<const std::string_view> options;
};

constexpr std::string_view kMemifOptions[] = {"role", "mtu", "bsize", "rsize"};
constexpr std::string_view kAfPacketOptions[] = {"mtu",          "framesz",   "framecnt",
                                                 "qdisc_bypass", "exclusive", "ring"};
constexpr std::string_view kAfXdpOptions[] = {"mtu", "force_copy", "busy_budget", "start_queue"};
constexpr std::string_view kTapOptions[] = {"mtu", "persist"};
constexpr std::string_view kMtuAlone[] = {"mtu"};
constexpr std::string_view kVirtioUserOptions[] = {"mtu", "queue_size", "packed", "server"};
constexpr std::string_view kVhostOptions[] = {"mtu", "queue_size", "packed", "client"};

constexpr Kind kKinds[] = {
    {"memif", describe_memif, kMemifOptions},
    {"af_packet", describe_af_packet, kAfPacketOptions},
    {"af_xdp", describe_af_xdp, kAfXdpOptions},
    {"tap", describe_tap, kTapOptions},
    {"ring", describe_ring, kMtuAlone},
    {"virtio_user", describe_vhost_user, kVirtioUserOptions},
    {"vhost", describe_vhost_user, kVhostOptions},
    {"pci", describe_pci, kMtuAlone},
};

const Kind* find_kind(std::string_view name) noexcept {
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [name](const Kind& each) { return each.name == name; });
  return kind == std::end(kKinds) ? nullptr : kind;
}

}  // namespace

Result<std::uint32_t> take_link_mtu(PortSpec& spec, const PortOptions& options, std::uint32_t fallback) {
  const std::uint32_t wanted = options.link_mtu != 0 ? options.link_mtu : fallback;
  auto link_mtu = spec.take_number("mtu", wanted, kMinLinkMtu, kMaxLinkMtu);
  if (!link_mtu) return link_mtu.error();
  if (*link_mtu < kMinLinkMtu || *link_mtu > kMaxLinkMtu) {
    return Error{Errc::kConfig, "port \"" + spec.text + "\": link MTU " + number(*link_mtu) + " is not in " +
                                    number(kMinLinkMtu) + ".." + number(kMaxLinkMtu)};
  }
  return static_cast<std::uint32_t>(*link_mtu);
}

Result<DeviceSpec> describe_device(PortSpec spec, const PortOptions& options) {
  const Kind* kind = find_kind(spec.driver);
  if (kind == nullptr) return Error{Errc::kUnsupported, "no DPDK port is called \"" + spec.driver + '"'};
  if (Status known = spec.check_options(kind->options); !known) return known.error();
  auto device = kind->describe(std::move(spec), options);
  if (device) device->no_huge = options.no_huge;
  return device;
}

}  // namespace uroce::drivers::dpdk

namespace uroce::drivers {

bool is_dpdk_driver(std::string_view driver) noexcept {
  return dpdk::find_kind(driver) != nullptr;
}

Status check_dpdk(const PortSpec& spec) {
  return spec.check_options(dpdk::find_kind(spec.driver)->options);
}

}  // namespace uroce::drivers
