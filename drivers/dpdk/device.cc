#include "drivers/dpdk/device.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "drivers/dpdk/eal.h"
#include "drivers/dpdk/packet_sockets.h"
#include "drivers/dpdk/umem.h"

namespace uroce::drivers::dpdk {
namespace {

/// Mbufs that a thread keeps to itself.
constexpr unsigned kMbufCache = 128;
/// Bytes an mbuf takes beside the frame: mempool header, rte_mbuf, headroom, padding.
constexpr std::uint64_t kMbufOverhead = 512;

std::uint16_t next_device_number() {
  static std::atomic<std::uint16_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

rte_eth_conf ethdev_configuration(const rte_eth_dev_info& facts, const DeviceSpec& spec,
                                  std::uint16_t queues) {
  rte_eth_conf conf{};
  if (spec.bus == "pci") conf.rxmode.mtu = spec.link_mtu;
  const std::uint64_t hashes = facts.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
  if (queues > 1 && hashes != 0) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = hashes;
  }
  return conf;
}

MacAddress local_mac() {
  MacAddress mac;
  rte_eth_random_addr(mac.raw.data());
  return mac;
}

/// While DPDK works on a port, memif's callbacks go to that port's channel.
ControlChannel* channel_of(MemifLink* memif) noexcept {
  return memif == nullptr ? nullptr : &memif->channel();
}

}  // namespace

Device::Device(DeviceSpec spec, OpenName name) : spec_(std::move(spec)), name_(std::move(name)) {
  if (spec_.is_memif) memif_ = std::make_unique<MemifLink>(spec_.is_client);
}

Result<std::shared_ptr<Device>> Device::open(DeviceSpec spec) {
  const bool is_pci = spec.bus == "pci";
  // DPDK would find the device of a port that is there, and this one would close it.
  auto name = OpenName::take(is_pci ? spec.device : spec.device + std::to_string(next_device_number()));
  if (!name) return Error{name.error().code, "port \"" + spec.text + "\": " + name.error().text};
  const std::uint64_t mbuf_bytes = spec.mbuf_room + kMbufOverhead;
  const EalNeeds needs{.no_huge = spec.no_huge,
                       .bytes = spec.queues * std::uint64_t{spec.mbufs} * mbuf_bytes,
                       .pci_address = is_pci ? spec.device : std::string()};
  if (Status status = start_eal(needs); !status) return status.error();
  std::shared_ptr<Device> device(new Device(std::move(spec), std::move(*name)));
  const ControlChannel::Scope scope(channel_of(device->memif_.get()));
  for (const auto step :
       {&Device::create, &Device::configure, &Device::set_up_queues, &Device::start, &Device::open_senders}) {
    take_logged_error();  // of what went well all the same
    if (Status status = (device.get()->*step)(); !status) return status.error();
  }
  device->read_info();
  // memif has no such counters, and its own are torn down with the peer.
  if (device->memif_ == nullptr) device->losses_.emplace(device->id_, device->rx_fds_, is_pci);
  device->spec_.lock = {};
  return device;
}

Error Device::failure(const std::string& what) const {
  std::string said = take_logged_error();
  if (said.empty()) said = rte_strerror(rte_errno);
  const std::string hint = spec_.hint.empty() ? "" : "; " + spec_.hint;
  return Error{Errc::kSystem, "port \"" + spec_.text + "\": " + what + ": " + said + hint};
}

Status Device::create() {
  const PacketSockets sockets(spec_.queues);
  // A PCI device that was named at the EAL's start is there already.
  if (rte_eth_dev_get_port_by_name(name_.text().c_str(), &id_) != 0) {
    rte_errno = -rte_eal_hotplug_add(spec_.bus.c_str(), name_.text().c_str(), spec_.arguments.c_str());
    if (rte_errno != 0 || rte_eth_dev_get_port_by_name(name_.text().c_str(), &id_) != 0) {
      Error error = failure("DPDK cannot open it");
      rte_eal_hotplug_remove(spec_.bus.c_str(), name_.text().c_str());
      return error;
    }
  }
  exists_ = true;
  rx_fds_ = sockets.receiving();
  return {};
}

Status Device::configure() {
  rte_eth_dev_info facts{};
  rte_errno = -rte_eth_dev_info_get(id_, &facts);
  if (rte_errno != 0) return failure("DPDK tells nothing about it");
  const auto limit = static_cast<unsigned>(std::min(facts.max_rx_queues, facts.max_tx_queues));
  const auto queues = static_cast<std::uint16_t>(std::clamp(spec_.queues, 1U, std::max(limit, 1U)));
  const rte_eth_conf conf = ethdev_configuration(facts, spec_, queues);
  rte_errno = -rte_eth_dev_configure(id_, queues, queues, &conf);
  if (rte_errno != 0) return failure("it takes no configuration");
  pools_.resize(queues, nullptr);
  if (spec_.sets_mtu && spec_.bus != "pci") {
    rte_errno = -rte_eth_dev_set_mtu(id_, static_cast<std::uint16_t>(spec_.link_mtu));
    if (rte_errno != 0) return failure("it does not take MTU " + std::to_string(spec_.link_mtu));
  }
  return {};
}

Status Device::set_up_queues() {
  const int node = rte_eth_dev_socket_id(id_);
  rte_errno = -rte_eth_dev_adjust_nb_rx_tx_desc(id_, &spec_.rx_descriptors, &spec_.tx_descriptors);
  if (rte_errno != 0) return failure("its rings take no size");
  for (std::uint16_t queue = 0; queue < queues(); ++queue) {
    const std::string name = "uroce_" + std::to_string(id_) + "_" + std::to_string(queue) + "_" +
                             std::to_string(next_device_number());
    pools_[queue] =
        rte_pktmbuf_pool_create(name.c_str(), spec_.mbufs, kMbufCache, 0,
                                static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM + spec_.mbuf_room), node);
    if (pools_[queue] == nullptr) {
      return Error{Errc::kNoMemory, "port \"" + spec_.text + "\": no memory for " +
                                        std::to_string(spec_.mbufs) + " buffers of " +
                                        std::to_string(spec_.mbuf_room) + " bytes"};
    }
    const auto on_node = static_cast<unsigned>(node);
    if (Status status = set_up_rx(queue, on_node); !status) return status;
    rte_errno = -rte_eth_tx_queue_setup(id_, queue, spec_.tx_descriptors, on_node, nullptr);
    if (rte_errno != 0) return failure("tx queue " + std::to_string(queue));
  }
  return {};
}

Status Device::set_up_rx(std::uint16_t queue, unsigned node) {
  std::optional<WholeUmem> umem;
  if (spec_.lends_mbufs) umem.emplace(*pools_[queue]);
  if (umem.has_value() && !umem->is_whole()) {
    return Error{Errc::kNoMemory, "port \"" + spec_.text +
                                      "\": its buffers are not in one piece of memory; " +
                                      "more hugepages, or --no-huge (UROCE_NO_HUGE=1), may help"};
  }
  rte_errno = -rte_eth_rx_queue_setup(id_, queue, spec_.rx_descriptors, node, nullptr, pools_[queue]);
  return rte_errno == 0 ? Status() : failure("rx queue " + std::to_string(queue));
}

Status Device::start() {
  if (spec_.waits_for_trigger && !tap_.emplace(id_, queues()).is_whole())
    return failure("nothing would read its queues");
  rte_errno = -rte_eth_dev_start(id_);
  if (rte_errno != 0 && !spec_.is_client)
    return failure("it does not start");  // a client waits for its server
  if (memif_ != nullptr) memif_->attach(id_);
  return {};
}

/// What a sender sends then is not for the sockets that receive, though it is of the same interface.
Status Device::open_senders() {
  if (spec_.sends == Sends::kEthdev) return {};
  for (std::uint16_t queue = 0; queue < queues(); ++queue) {
    auto sender = PacketSender::open(spec_.netdev, spec_.sends == Sends::kPastQdisc);
    if (!sender) return sender.error();
    senders_.push_back(std::move(*sender));
  }
  constexpr int kYes = 1;
  for (const int fd : rx_fds_) {
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &kYes, sizeof kYes) != 0) {
      rte_errno = errno;
      return failure("it hears what it sends");
    }
  }
  return {};
}

void Device::read_info() {
  info_.name = spec_.text;
  info_.link_mtu = spec_.link_mtu;
  info_.side = spec_.side;
  info_.ends = spec_.is_two_ended ? 2 : 0;
  info_.kernel_sends = !spec_.netdev.empty();
  if (info_.kernel_sends) watch_.emplace(spec_.netdev);
  rte_ether_addr address{};
  if (!spec_.has_own_mac && rte_eth_macaddr_get(id_, &address) == 0) {
    std::copy_n(address.addr_bytes, info_.mac.raw.size(), info_.mac.raw.begin());
  }
  if (info_.mac == MacAddress{}) info_.mac = local_mac();
}

port::LinkState Device::link_state() noexcept {
  if (watch_.has_value()) return watch_->state();
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(id_, &link) == -EIO) return port::LinkState::kGone;  // taken out of its slot
  return link.link_status == RTE_ETH_LINK_UP ? port::LinkState::kUp : port::LinkState::kDown;
}

/// Links between two ends filter nothing and know none of this.
void Device::listen(std::span<const MacAddress> groups) noexcept {
  if (info_.ends != 0) return;
  rte_eth_dev_info facts{};
  if (rte_eth_dev_info_get(id_, &facts) == 0 && facts.if_index != 0) {
    listeners_.listen(facts.if_index, groups);
    return;
  }
  constexpr std::size_t kMost = 64;
  std::array<rte_ether_addr, kMost> list;
  if (groups.size() <= list.size()) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      std::copy_n(groups[i].raw.begin(), groups[i].raw.size(), list[i].addr_bytes);
    }
    if (rte_eth_dev_set_mc_addr_list(id_, list.data(), static_cast<std::uint32_t>(groups.size())) == 0)
      return;
  }
  if (rte_eth_allmulticast_enable(id_) != 0) rte_eth_promiscuous_enable(id_);
}

void Device::keep_from_kernel(std::span<const Gid> addresses) noexcept {
  if (!spec_.is_exclusive) return;
  KernelFilter next(if_nametoindex(spec_.netdev.c_str()), addresses);
  // Without a descriptor for another one, what there is goes on.
  if (next.works() || addresses.empty()) filter_ = std::move(next);
}

Device::~Device() {
  const ControlChannel::Scope scope(channel_of(memif_.get()));
  if (exists_) {
    rte_eth_dev_stop(id_);
    tap_.reset();
    rte_eth_dev_close(id_);
    rte_eal_hotplug_remove(spec_.bus.c_str(), name_.text().c_str());
  }
  for (rte_mempool* pool : pools_) rte_mempool_free(pool);
}

}  // namespace uroce::drivers::dpdk
