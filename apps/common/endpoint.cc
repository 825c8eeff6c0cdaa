#include "apps/common/endpoint.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "apps/common/stop.h"
#include "apps/common/tell.h"

namespace uroce::apps {

Result<std::uint32_t> choose_gid(const Device& device, std::optional<std::uint32_t> wanted) {
  const auto gids = device.gids();
  if (wanted) {
    if (*wanted < gids.size()) return *wanted;
    return Error{
        .code = Errc::kNotFound,
        .text = fmt::format("GID index {} does not exist; `uroce info` lists {}", *wanted, gids.size())};
  }
  for (std::uint32_t i = 0; i < gids.size(); ++i) {
    if (gids[i].gid.is_v4()) return i;
  }
  return 0U;
}

Status check_addresses(const Gid& own, const Gid& peer) {
  if (own.is_v4() == peer.is_v4()) return {};
  return Error{
      .code = Errc::kInvalid,
      .text = fmt::format("this end has the address {}, the other {}: give both one by --ip, such as "
                          "10.0.0.1/24 and 10.0.0.2/24",
                          to_string(own), to_string(peer))};
}

Status try_memory(Device& device) {
  auto pd = Pd::create(device);
  if (!pd) return pd.error();
  constexpr std::size_t kLittle = 4096;
  const auto memory = Mr::alloc(*pd, kLittle, access::kLocalWrite);
  return memory ? Status{} : Status{memory.error()};
}

std::string link_trouble(const Device& device) {
  if (device.port_state() == PortState::kActive) return "";
  const std::string& port = device.config().port;
  if (device.ends() != 0) {
    return fmt::format("nobody has the other end of {} open: has the peer ended, or another --port?{}", port,
                       port.starts_with("shm:") ? " A shm link joins programs of one user" : "");
  }
  const std::size_t name = port.find(':') + 1;
  return fmt::format("interface {} is down", port.substr(name, port.find(',') - name));
}

namespace {

/// Messages of UC and UD that were given up, because nobody said where the peer is. Of RC, the QP tells.
std::uint64_t unresolved_messages(const Device& device) {
  const auto counters = device.counters();
  const auto found = std::ranges::find(counters, "requester_unresolved_messages", &Counter::name);
  return found == counters.end() ? 0 : found->value;
}

}  // namespace

std::string delivery_trouble(const Device& device, const Gid& own, const Gid& peer) {
  if (std::string trouble = link_trouble(device); !trouble.empty()) return trouble;
  if (const std::uint64_t messages = unresolved_messages(device); own != peer && messages != 0) {
    return fmt::format(
        "{} were not sent, as nobody answers for the Ethernet address of {}{}: is it up, on this link and in "
        "this VLAN?",
        messages, host_text(peer), device.config().gateway.empty() ? "" : " or of the gateway");
  }
  if (own != peer) return "";
  return fmt::format("both ends have the address {}: give each its own by --ip, and its own interface",
                     to_string(own));
}

Error completion_error(const Device& device, const Wc& wc, std::string why, const Gid& own, const Gid& peer) {
  const std::string status(to_string(wc.status));
  if (why.empty()) why = describe_vendor_err(wc.vendor_err);
  if (why.find(status) == std::string::npos) why = status + (why.empty() ? "" : ": ") + why;
  if (wc.status == WcStatus::kRetryExcErr) {
    if (const std::string trouble = delivery_trouble(device, own, peer); !trouble.empty())
      why += "; " + trouble;
  }
  return {.code = Errc::kPeer, .text = fmt::format("QP 0x{:06x}: {}", raw(wc.qpn), why)};
}

std::uint8_t local_link_timeout(const Device& device) noexcept {
  return device.config().fault.empty() ? 16 : 14;
}

QpAttr connect_attributes(const QpAddress& local, const QpAddress& peer, PathMtu mtu,
                          std::uint32_t gid_index) {
  QpAttr attr;
  attr.path_mtu = mtu;
  attr.dest_qpn = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.sq_psn = local.psn;
  attr.access_flags = access::kRemoteWrite | access::kRemoteRead | access::kRemoteAtomic;
  attr.dgid = peer.gid;
  attr.sgid_index = gid_index;
  return attr;
}

Link::Link(Device& device, Pd& pd, Cq cq, Qp qp, const Wiring& wiring)
    : device_(&device), pd_(&pd), cq_(std::move(cq)), qp_(std::move(qp)), wiring_(wiring) {
  path_mtu_ = wiring.path_mtu.value_or(device.active_mtu());
}

Result<Link> Link::create(Device& device, Pd& pd, const Wiring& wiring) {
  const std::uint32_t entries =
      wiring.cq_entries != 0 ? wiring.cq_entries : wiring.qp.max_send_wr + wiring.qp.max_recv_wr;
  auto cq = Cq::create(device, entries);
  if (!cq) return cq.error();
  auto qp = Qp::create(pd, *cq, *cq, wiring.qp);
  if (!qp) return qp.error();
  const auto gid_index = choose_gid(device, wiring.gid_index);
  if (!gid_index) return gid_index.error();
  Link link(device, pd, std::move(*cq), std::move(*qp), wiring);
  link.gid_index_ = *gid_index;
  link.address_ = {
      .lid = 0, .qpn = link.qp_.qpn(), .psn = random_psn(), .gid = device.gids().at(*gid_index).gid};
  return link;
}

Status Link::connect(const QpAddress& peer) {
  if (auto checked = check_addresses(address_.gid, peer.gid); !checked) return checked;
  peer_gid_ = peer.gid;
  QpAttr attr = connect_attributes(address_, peer, path_mtu_, gid_index_);
  attr.max_rd_atomic = attr.max_dest_rd_atomic = wiring_.max_rd_atomic;
  attr.timeout = wiring_.timeout;
  attr.qkey = kPingPongQkey;
  if (wiring_.qp.type == QpType::kUd) {
    auto ah = Ah::create(*pd_, {.dgid = peer.gid, .sgid_index = gid_index_});
    if (!ah) return ah.error();
    peer_ = std::move(*ah);
    peer_qpn_ = peer.qpn;
  }
  return qp_.connect(attr);
}

bool Link::post_send(SendWr wr) noexcept {
  if (peer_) {
    wr.ah = peer_->id();
    wr.remote_qpn = peer_qpn_;
    wr.remote_qkey = kPingPongQkey;
  }
  return qp_.post_send(wr);
}

Error Link::failure(const Wc& wc) const {
  return completion_error(*device_, wc, qp_.error_text(), address_.gid, peer_gid_);
}

Result<Wc> Link::next(std::uint64_t until_ns, bool give_way) {
  Patience patience(until_ns, give_way);
  Wc wc;
  while (cq_.poll({&wc, 1}) == 0) {
    if (patience.is_over()) return Error{.code = Errc::kTimeout, .text = "the peer did not answer in time"};
  }
  if (!wc.ok()) return failure(wc);
  return wc;
}

void tell_of_lost_frames(const Device& device) {
  if (device.config().pcap.empty()) return;
  for (const Counter& counter : device.counters()) {
    if (counter.name != "port_capture_lost" || counter.value == 0) continue;
    tell("uroce: note: {} frames are missing in {}: it could not be written, is the disk full?\n",
         counter.value, device.config().pcap);
  }
}

void linger(Device& device, std::uint64_t ns) {
  const std::uint64_t until = now_ns() + ns;
  while (now_ns() < until && !is_stopped()) {
    device.progress();
    if (device.config().mode != Mode::kApp) ::usleep(100);
  }
}

Status wait_readable(Device& device, const Socket& socket, std::uint64_t until_ns) {
  constexpr std::uint64_t kSpinNs = 5 * kMillisecond;  // then sleep in between
  constexpr int kProgress = 64;
  const std::uint64_t begin = now_ns();
  while (true) {
    for (int i = 0; i < kProgress; ++i) device.progress();
    const std::uint64_t now = now_ns();
    if (is_stopped()) return stopped();
    if (tcp_is_readable(socket, now - begin < kSpinNs ? 0 : 1)) return {};
    if (until_ns != 0 && now >= until_ns) {
      return Error{.code = Errc::kTimeout, .text = "the peer did not answer over TCP in time"};
    }
  }
}

bool Patience::is_over() noexcept {
  if (give_way_.is_due(polls_)) ::sched_yield();
  return (++polls_ & 0x3ffU) == 0 && (now_ns() >= until_ns_ || is_stopped());
}

}  // namespace uroce::apps
