#include <sys/eventfd.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <new>
#include <random>
#include <utility>

#include "base/bounded_time.h"
#include "base/eventfd.h"
#include "drivers/registry.h"
#include "verbs/counters_file.h"
#include "verbs/cq_impl.h"
#include "verbs/device_impl.h"
#include "verbs/gsi.h"
#include "verbs/loop_counters.h"

namespace uroce {

namespace {

using engine::Address;

std::uint64_t system_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// "10.0.0.1/24", "fd00::1/64@5"
Result<Address> parse_address(const std::string& text) {
  const auto at = text.find('@');
  const auto slash = text.find('/');
  const auto gid = Gid::parse(text.substr(0, std::min(slash, at)));
  if (!gid.has_value())
    return Error{Errc::kConfig, "ip: '" + text + "' is not ADDR/PREFIX[@VLAN], e.g. 10.0.0.1/24"};
  Address address{.gid = *gid, .prefix_len = gid->is_v4() ? 32U : 128U};
  if (slash < at) {
    const auto prefix = static_cast<unsigned>(std::strtoul(text.c_str() + slash + 1, nullptr, 10));
    if (prefix > address.prefix_len) {
      return Error{Errc::kConfig,
                   "ip: '" + text + "': the prefix is at most " + std::to_string(address.prefix_len)};
    }
    address.prefix_len = prefix;
  }
  if (at == std::string::npos) return address;
  const unsigned long vlan = std::strtoul(text.c_str() + at + 1, nullptr, 10);
  if (vlan < 1 || vlan > 4094) return Error{Errc::kConfig, "ip: '" + text + "': a VLAN is 1 to 4094"};
  address.vlan = static_cast<std::uint16_t>(vlan);
  return address;
}

/// Link-local first, then the configured ones. A link between processes without any gets 10.77.0.1, .2, by
/// side.
Result<engine::Addresses> own_addresses(const Config& config, const port::PortInfo& info) {
  std::vector<Address> own{{engine::link_local_gid(info.mac), 64}};
  for (const std::string& text : config.ip) {
    auto address = parse_address(text);
    if (!address) return address.error();
    own.push_back(*address);
  }
  if (config.ip.empty() && info.ends != 0) {
    own.push_back({Gid::from_v4({10, 77, 0, static_cast<std::uint8_t>(1 + info.side)}), 24});
  }
  if (config.roce_v1) {
    for (std::size_t i = 0, count = own.size(); i < count; ++i) {
      own.push_back(own[i]);
      own.back().type = GidType::kRoceV1;
    }
  }
  std::optional<Gid> gateway;
  if (!config.gateway.empty()) {
    gateway = Gid::parse(config.gateway);
    if (!gateway.has_value())
      return Error{Errc::kConfig, "gateway: '" + config.gateway + "' is not an address"};
  }
  return engine::Addresses(std::move(own), gateway);
}

std::string describe(const engine::LoopEvent& event) {
  switch (event.type) {
    case AsyncEventType::kCqErr:
      return "a " + describe_overflow(event.full_cq);
    case AsyncEventType::kSrqLimitReached:
      return "a shared receive queue has fewer receives left than its limit: post more";
    case AsyncEventType::kQpLastWqeReached:
      return "the QP takes nothing more from its shared receive queue";
    case AsyncEventType::kDeviceFatal:
      return "the port's device is gone";
    case AsyncEventType::kGidChange:
      return "the GID table of the port has changed";
    case AsyncEventType::kPortActive:
      return "the link of the port is up";
    case AsyncEventType::kPortErr:
      return "the link of the port is down: no cable, or nobody at the other end";
    default:
      return std::string(transport::row(event.fault).text);
  }
}

/// Of a device with its addresses, as they are when it opens.
std::unique_ptr<StatPage> make_stat_page(const Device::Impl& device, unsigned loops) {
  std::string addresses;
  for (const Address& address : device.addresses.own()) {
    if (address.type == GidType::kRoceV1) continue;  // has been told as v2
    addresses +=
        (addresses.empty() ? "" : " ") + to_string(address.gid) + "/" + std::to_string(address.prefix_len);
    if (address.vlan != 0) addresses += "@" + std::to_string(address.vlan);
  }
  constexpr std::uint32_t kGsi = 1;  // besides those that Config::max_qp counts
  return StatPage::make(loops, device.config.max_qp + kGsi,
                        {.port = device.config.port,
                         .addresses = addresses,
                         .names = counter_names(),
                         .qp_names = qp_counter_names()});
}

Status make_loops(Device::Impl& device, const std::vector<unsigned>& cores) {
  constexpr std::uint64_t kMs = 1'000'000;
  const auto count = static_cast<unsigned>(device.ports.size());
  device.stat_page = make_stat_page(device, count);
  device.qpns_of_loops.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    device.loops.push_back(
        std::make_unique<engine::PollLoop>(engine::LoopPlace{i, count}, *device.ports[i], device.addresses,
                                           device.config.arp_timeout_ms * kMs, device.seed + i));
    device.loops.back()->set_event_fd(device.async_fd);
    if (device.stat_page) device.loops.back()->show_on(*device.stat_page);
  }
  engine::PollLoop::connect(device.loops);
  for (unsigned i = 0; i < count; ++i) {
    const std::optional<unsigned> core = i < cores.size() ? std::optional{cores[i]} : std::nullopt;
    device.runners.push_back(
        std::make_unique<engine::LoopRunner>(*device.loops[i], device.clock, device.config.mode, core));
  }
  for (auto& runner : device.runners) {
    if (Status started = runner->start(); !started) return started;
  }
  return {};
}

}  // namespace

Device::Impl::~Impl() {
  for (auto& runner : runners) runner->stop();
  runners.clear();
  if (!loops.empty()) append_counters(config.counters, config.port, [this] { return counters(); });
  for (auto& loop : loops) loop->leave_groups(clock.now());
  loops.clear();
  if (async_fd >= 0) close(async_fd);
}

Result<Qpn> Device::Impl::take_qpn(unsigned loop) {
  const std::lock_guard lock(control);
  if (qpns.size() - qpns.count(raw(kGsiQpn)) >= config.max_qp) {
    return Error{Errc::kLimit, "all " + std::to_string(config.max_qp) + " QPs are in use: raise max_qp"};
  }
  const auto loop_mask = static_cast<std::uint32_t>(loops.size() - 1);
  constexpr std::uint32_t kReserved = 3;  // at most, of one loop
  const std::uint32_t numbers = (Psn::kMask + 1) / (loop_mask + 1) - kReserved;
  if (qpns_of_loops[loop] >= numbers) {
    return Error{Errc::kLimit, "all " + std::to_string(numbers) + " QP numbers of loop " +
                                   std::to_string(loop) + " of " + std::to_string(loops.size()) +
                                   " are in use: put QPs on CQs of other loops"};
  }
  for (;;) {
    const std::uint32_t qpn = (random.next32() & Psn::kMask & ~loop_mask) | loop;
    if (qpn <= 1 + loop_mask || qpn == 0xff'ffff || !qpns.insert(qpn).second) continue;  // 0, 1: SMI, GSI
    ++qpns_of_loops[loop];
    return Qpn{qpn};
  }
}

Result<Qpn> Device::Impl::take_qpn(Qpn qpn) {
  const std::lock_guard lock(control);
  if (!qpns.insert(raw(qpn)).second) {
    return Error{Errc::kBusy, "QP " + std::to_string(raw(qpn)) + " of this device is in use"};
  }
  ++qpns_of_loops[raw(qpn) & (loops.size() - 1)];
  return qpn;
}

void Device::Impl::release_qpn(Qpn qpn) {
  const std::lock_guard lock(control);
  qpns_of_loops[raw(qpn) & (loops.size() - 1)] -= static_cast<std::uint32_t>(qpns.erase(raw(qpn)));
}

Device::Device(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Device::Device(Device&&) noexcept = default;
Device& Device::operator=(Device&&) noexcept = default;
Device::~Device() = default;

namespace {

/// Loops are told apart by the low bits of their QPNs.
Result<std::vector<unsigned>> cores_of_loops(const Config& config) {
  if (config.lcores.empty()) return std::vector<unsigned>{};
  auto cores = parse_core_list(config.lcores);
  if (cores && !std::has_single_bit(cores->size())) {
    return Error{Errc::kConfig, "lcores: '" + config.lcores + "' names " + std::to_string(cores->size()) +
                                    " cores; a device has 1, 2, 4 or another power of two loops: name " +
                                    std::to_string(std::bit_floor(cores->size()))};
  }
  return cores;
}

/// @param cores  that the configuration names; 0: one loop on none of them
drivers::PortOptions port_options(const Config& config, std::size_t cores, std::uint64_t seed) {
  return {.spec = config.port,
          .link_mtu = config.mtu,
          .queues = std::max(1U, static_cast<unsigned>(cores)),
          .no_huge = config.no_huge,
          .fault = config.fault,
          .seed = seed,
          .pcap = config.pcap};
}

Error too_few_queues(const Config& config, std::size_t queues) {
  return {Errc::kConfig, "lcores: '" + config.lcores + "': " + config.port + " has queues for " +
                             std::to_string(queues) + " loops: name as many cores"};
}

}  // namespace

Status Device::check(const Config& config) {
  if (Status good = check_config(config); !good) return good;
  const auto cores = cores_of_loops(config);
  if (!cores) return cores.error();
  return drivers::check_ports(port_options(config, cores->size(), 0));
}

Result<Device> Device::open(const Config& config) {
  try {
    if (Status good = check_config(config); !good) return good.error();
    if (Status good = check_counters_file(config.counters); !good) return good.error();
    const auto cores = cores_of_loops(config);
    if (!cores) return cores.error();
    auto impl = std::make_unique<Impl>(config, config.seed != 0 ? config.seed : system_seed());
    impl->async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (impl->async_fd < 0) return Error{Errc::kSystem, std::string("eventfd: ") + std::strerror(errno)};

    const auto options = port_options(config, cores->size(), impl->seed);
    const unsigned queues = options.queues;
    auto ports = drivers::open_ports(options);
    if (!ports) return ports.error();
    impl->ports = std::move(*ports);
    if (impl->ports.size() < queues) return too_few_queues(config, impl->ports.size());
    if (!path_mtu_for_link(impl->link_mtu()).has_value()) {
      return Error{Errc::kConfig, "link MTU " + std::to_string(impl->link_mtu()) +
                                      " is too small for RoCE: at least 352 bytes are needed (--mtu)"};
    }
    auto addresses = own_addresses(config, impl->ports.front()->info());
    if (!addresses) return addresses.error();
    impl->addresses = std::move(*addresses);
    impl->limits.max_qp = config.max_qp;
    if (Status made = make_loops(*impl, *cores); !made) return made.error();
    for (auto& port : impl->ports) port->enter_thread();
    return Device(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for a device"};
  }
}

const Limits& Device::limits() const noexcept {
  return impl_->limits;
}
const Config& Device::config() const noexcept {
  return impl_->config;
}
MacAddress Device::mac() const noexcept {
  return impl_->ports.front()->info().mac;
}
PortState Device::port_state() const {
  port::LinkState state{};
  impl_->runners.front()->execute(
      [&state](engine::PollLoop& loop, Ticks now) { state = loop.look_at_link(now); });
  return state == port::LinkState::kUp ? PortState::kActive : PortState::kDown;
}
unsigned Device::loops() const noexcept {
  return static_cast<unsigned>(impl_->loops.size());
}
unsigned Device::ends() const noexcept {
  return impl_->ports.front()->info().ends;
}
std::uint32_t Device::link_mtu() const noexcept {
  return impl_->link_mtu();
}
PathMtu Device::active_mtu() const noexcept {
  return impl_->active_mtu();
}
int Device::async_fd() const noexcept {
  return impl_->async_fd;
}

std::vector<GidEntry> Device::gids() const {
  std::vector<GidEntry> gids;
  for (const Address& address : impl_->own_addresses()) {
    if (address.removed) {
      gids.emplace_back();
      continue;
    }
    gids.push_back(
        {.gid = address.gid, .prefix_len = address.prefix_len, .vlan = address.vlan, .type = address.type});
  }
  return gids;
}

/// The loops get the table one after the other: each is consistent, and no index means two GIDs. All of them
/// get it, or none: only the first may need memory.
void Device::Impl::publish(engine::Addresses changed) {
  std::vector<engine::Addresses> copies(runners.size(), changed);
  for (std::size_t i = 0; i < runners.size(); ++i) {
    runners[i]->execute(
        [&](engine::PollLoop& loop, Ticks now) { loop.set_addresses(std::move(copies[i]), now); });
  }
  addresses = std::move(changed);
}

namespace {

Error no_memory_for_address() {
  return Error{Errc::kNoMemory, "no memory for a changed GID table"};
}

}  // namespace

Status Device::add_ip(const std::string& address) {
  try {
    Config alone;
    alone.ip = {address};
    if (Status good = check_config(alone); !good) return good.error();
    if (address.find(',') != std::string::npos)
      return Error{Errc::kConfig, "ip: '" + address + "' is more than one address"};
    auto parsed = parse_address(address);
    if (!parsed) return parsed.error();
    const std::lock_guard lock(impl_->control);
    engine::Addresses changed = impl_->addresses;
    if (!changed.add(*parsed)) return Error{Errc::kInvalid, "ip: '" + address + "' is there already"};
    if (impl_->config.roce_v1) {
      parsed->type = GidType::kRoceV1;
      changed.add(*parsed);
    }
    impl_->publish(std::move(changed));
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory_for_address();
  }
}

Status Device::remove_ip(const std::string& address) {
  try {
    const auto parsed = parse_address(address);
    if (!parsed) return parsed.error();
    const std::lock_guard lock(impl_->control);
    engine::Addresses changed = impl_->addresses;
    if (!changed.remove(parsed->gid, parsed->vlan)) {
      return Error{Errc::kNotFound, "ip: '" + address + "' is no address of this port"};
    }
    impl_->publish(std::move(changed));
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory_for_address();
  }
}

std::vector<Counter> Device::Impl::counters() const {
  LoopCounters sums{};
  for (const auto& loop : loops) {
    const LoopCounters of_loop = read_counters(*loop, loop->port().counters());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_loop[i];
  }
  std::vector<Counter> out;
  out.reserve(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) out.push_back({std::string(loop_counter_name(i)), sums[i]});
  return out;
}

std::vector<Counter> Device::counters() const {
  return impl_->counters();
}

void Device::write_counters() const {
  append_counters(config().counters, config().port, [this] { return counters(); });
}

bool Device::next_async_event(AsyncEvent& event) {
  const std::lock_guard lock(impl_->control);
  const auto look = [&] {
    engine::LoopEvent found;
    for (auto& loop : impl_->loops) {
      if (!loop->next_event(found)) continue;
      event = {.type = found.type,
               .qpn = found.qpn,
               .cq = found.full_cq.number,
               .srq = found.srq,
               .text = describe(found)};
      return true;
    }
    return false;
  };
  if (look()) return true;
  std::uint64_t count = 0;
  if (read(impl_->async_fd, &count, sizeof count) < 0) return false;  // was not readable either
  for (auto& runner : impl_->runners) {
    if (!runner->loop().has_untold_events()) continue;
    runner->execute([](engine::PollLoop& loop, Ticks) { loop.report_untold(); });
  }
  const bool found = look();
  if (found) signal_eventfd(impl_->async_fd);  // the count was also that of what has come since
  return found;
}

std::uint64_t Device::now_ns() const noexcept {
  return impl_->clock.now().ns();
}

bool Device::is_touching(const void* address) const noexcept {
  const bool is_inside = std::any_of(impl_->runners.begin(), impl_->runners.end(),
                                     [](const auto& runner) { return runner->is_run_here(); });
  return is_inside && impl_->keys.covers(address);
}

void Device::progress() noexcept {
  for (auto& runner : impl_->runners) static_cast<void>(runner->run_from_application());
}

int Device::sleep(unsigned loop, std::span<const int> fds, std::chrono::nanoseconds longest) {
  return impl_->runners[loop]->sleep(fds, bounded(longest));
}

void Device::disturb(unsigned loop) noexcept {
  impl_->runners[loop]->disturb();
}

}  // namespace uroce
