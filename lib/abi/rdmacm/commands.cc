// Commands that concern one end: ids, addresses, routes, attributes.
#include <endian.h>

#include <algorithm>
#include <array>

#include "abi/ibverbs/engine.h"
#include "abi/ibverbs/errors.h"
#include "abi/rdmacm/ucm.h"

namespace uroce::abi {

namespace {

constexpr __be16 kDefaultPkey = 0xffff;
constexpr std::uint8_t kExactly = 2;    // IB_SA_EQ
constexpr std::uint8_t kLifetime = 16;  // 0.27 s
constexpr std::uint8_t k100Gbps = 16;   // IBV_RATE_100_GBPS
constexpr unsigned kMostUnread = 1024;  // requests at a listener

QpType type_of(const rdma_ucm_create_id& cmd) noexcept {
  switch (static_cast<PortSpace>(cmd.ps)) {
    case PortSpace::kUdp:
    case PortSpace::kIpoib:
      return QpType::kUd;
    case PortSpace::kIb:
      return static_cast<QpType>(cmd.qp_type);
    default:
      return QpType::kRc;
  }
}

bool is_known(PortSpace space) noexcept {
  return space == PortSpace::kTcp || space == PortSpace::kUdp || space == PortSpace::kIb ||
         space == PortSpace::kIpoib;
}

/// The first of a family; a link-local one if there is no other. Zero: there is none.
Gid address_of(const std::vector<GidEntry>& own, bool is_v4) noexcept {
  Gid found;
  for (const GidEntry& one : own) {
    const bool is_of = !one.gid.is_zero() && one.gid.is_v4() == is_v4;
    if (is_of && (found.is_zero() || found.is_link_local())) found = one.gid;
  }
  return found;
}

/// Why an address cannot be had.
int bind_errno(const Status& status) noexcept {
  return status.error().code == Errc::kNotFound ? EADDRNOTAVAIL : to_errno(status.error().code);
}

ib_user_path_rec route_of(const UcmId& id, PathMtu mtu) noexcept {
  ib_user_path_rec route{};
  const Gid& to = id.path.dgid;
  std::memcpy(route.dgid, to.raw.data(), sizeof route.dgid);
  if (id.local.has_value()) std::memcpy(route.sgid, id.local->ip.raw.data(), sizeof route.sgid);
  route.pkey = kDefaultPkey;
  if (!id.has_route) return route;
  route.flow_label = htobe32(id.path.flow_label);
  route.reversible = 1;
  route.mtu_selector = route.rate_selector = route.packet_life_time_selector = kExactly;
  route.mtu = raw(mtu);
  route.rate = k100Gbps;
  const std::uint8_t ack_timeout = id.ack_timeout.value_or(0);
  route.packet_life_time = ack_timeout == 0 ? kLifetime : static_cast<__u8>(ack_timeout - 1);
  route.hop_limit = id.path.hop_limit;
  route.traffic_class = id.traffic_class;
  route.numb_path = 1;
  route.sl = id.path.sl;
  return route;
}

/// Those attributes that a move to `state` sets, as the kernel's communication manager chooses them.
unsigned mask_of(ibv_qp_state state, QpType type) noexcept {
  const bool is_reliable = type != QpType::kUc;
  unsigned mask = IBV_QP_STATE;
  if (state == IBV_QPS_INIT) return mask | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (state == IBV_QPS_RTR) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    return is_reliable && type != QpType::kXrcSend ? mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
                                                   : mask;
  }
  mask |= IBV_QP_SQ_PSN;
  if (is_reliable) mask |= IBV_QP_TIMEOUT;
  return is_reliable && type != QpType::kXrcRecv
             ? mask | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
             : mask;
}

}  // namespace

Ucm::Command Ucm::command_of(std::uint32_t number) noexcept {
  static constexpr auto kCommands = [] {
    std::array<Command, RDMA_USER_CM_CMD_JOIN_MCAST + 1> all{};
    all[RDMA_USER_CM_CMD_CREATE_ID] = {&Ucm::create_id, false};
    all[RDMA_USER_CM_CMD_DESTROY_ID] = {&Ucm::destroy_id, false};
    all[RDMA_USER_CM_CMD_BIND_IP] = {&Ucm::bind_ip, true};
    all[RDMA_USER_CM_CMD_RESOLVE_IP] = {&Ucm::resolve_ip, true};
    all[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = {&Ucm::resolve_route, false};
    all[RDMA_USER_CM_CMD_QUERY_ROUTE] = {&Ucm::query_route, true};
    all[RDMA_USER_CM_CMD_CONNECT] = {&Ucm::connect, true};
    all[RDMA_USER_CM_CMD_LISTEN] = {&Ucm::listen, true};
    all[RDMA_USER_CM_CMD_ACCEPT] = {&Ucm::accept, true};
    all[RDMA_USER_CM_CMD_REJECT] = {&Ucm::reject, true};
    all[RDMA_USER_CM_CMD_DISCONNECT] = {&Ucm::disconnect, true};
    all[RDMA_USER_CM_CMD_INIT_QP_ATTR] = {&Ucm::init_qp_attr, true};
    all[RDMA_USER_CM_CMD_SET_OPTION] = {&Ucm::set_option, false};
    all[RDMA_USER_CM_CMD_NOTIFY] = {&Ucm::notify, true};
    all[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = {&Ucm::join_ip_mcast, true};
    all[RDMA_USER_CM_CMD_LEAVE_MCAST] = {&Ucm::leave_mcast, false};
    all[RDMA_USER_CM_CMD_MIGRATE_ID] = {&Ucm::migrate_id, false};
    return all;
  }();
  return number < kCommands.size() ? kCommands[number] : Command{};
}

int Ucm::create_id(const Call& call) {
  const auto cmd = body_of<rdma_ucm_create_id>(call.in);
  if (!is_known(static_cast<PortSpace>(cmd.ps))) return EINVAL;
  if (call.room < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  UcmId& id = make_id(*call.file);
  id.uid = cmd.uid;
  id.space = static_cast<PortSpace>(cmd.ps);
  id.type = type_of(cmd);
  return respond(cmd.response, call.room, rdma_ucm_create_id_resp{.id = id.handle});
}

int Ucm::destroy_id(const Call& call) {
  const auto cmd = body_of<rdma_ucm_destroy_id>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr) return EINVAL;
  const rdma_ucm_destroy_id_resp response{.events_reported = id->events_reported};
  destroy(*id);
  return respond(cmd.response, call.room, response);
}

/// Addresses of the loopback interface stand for the port's, as they do in the kernel; so does none at all,
/// where there has to be one. Where processes of this machine are the ends of a link and its addresses are
/// derived, one that `from` connects to and that nobody in this process listens at is the other end's; of
/// more than two, the first one's.
std::optional<CmAddress> Ucm::on_port(std::optional<CmAddress> address, const UcmId* from) const {
  if (!address.has_value()) return address;
  if (!address->ip.is_loopback() && !(from != nullptr && address->ip.is_unspecified())) return address;
  const Device& device = cm_->device();
  const Gid own = address_of(device.gids(), address->ip.is_v4());
  if (own.is_zero()) return address;
  address->ip = own;
  const bool is_here = std::any_of(ids_.begin(), ids_.end(), [&](const auto& id) {
    return id != nullptr && id->backlog != 0 && from != nullptr && id->space == from->space &&
           id->local->port == address->port;
  });
  if (from != nullptr && !is_here && own.is_v4() && device.ends() != 0 && device.config().ip.empty()) {
    const bool is_first = own.raw.back() == 1;
    address->ip.raw.back() = is_first && device.ends() == 2 ? 2 : 1;
  }
  return address;
}

int Ucm::bind_id(UcmId& id, const CmAddress& address) {
  if (Status made = give_cm_id(id); !made) return to_errno(made.error().code);
  if (Status bound = channel_->bind(*id.cm, address); !bound) return bind_errno(bound);
  auto local = channel_->local(*id.cm);
  if (!local) return to_errno(local.error().code);
  id.local = *local;
  id.has_device = !local->ip.is_unspecified();
  return 0;
}

int Ucm::bind_ip(const Call& call) {
  const auto cmd = body_of<rdma_ucm_bind_ip>(call.in);
  UcmId* id = find(call, cmd.id);
  const auto address = on_port(address_of(cmd.addr), nullptr);
  if (id == nullptr || !address.has_value()) return EINVAL;
  return bind_id(*id, *address);
}

int Ucm::resolve_ip(const Call& call) {
  const auto cmd = body_of<rdma_ucm_resolve_ip>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr) return EINVAL;
  const auto to = on_port(address_of(cmd.dst_addr), id);
  if (!to.has_value() || id->is_resolved || id->is_resolving) return EINVAL;
  const auto from = on_port(address_of(cmd.src_addr), nullptr);
  if (!id->local.has_value() && from.has_value()) {
    if (const int error = bind_id(*id, *from); error != 0) return error;
  }
  const Gid source = id->local.has_value() ? id->local->ip : Gid{};
  const auto path = cm_->route(to->ip, source);
  if (!path) return ENETUNREACH;  // at once, as in the kernel
  auto asking = Ah::create(*pd_, *path);
  if (!asking) return to_errno(asking.error().code);
  id->remote = to;
  id->is_resolving = true;
  const auto now = std::chrono::steady_clock::now();
  resolutions_.push_back({.serial = next_resolution_++,
                          .id = id,
                          .to = to->ip,
                          .from = source,
                          .asking = std::make_shared<Ah>(std::move(*asking)),
                          .until = now + std::chrono::milliseconds(cmd.timeout_ms)});
  wake();
  return 0;
}

/// There is one way to an address, known since it was resolved.
int Ucm::resolve_route(const Call& call) {
  const auto cmd = body_of<rdma_ucm_resolve_route>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr || !id->is_resolved || id->has_route) return EINVAL;
  id->has_route = true;
  tell(*id, UcmEventType::kRouteResolved);
  return 0;
}

int Ucm::query_route(const Call& call) {
  const auto cmd = body_of<rdma_ucm_query>(call.in);
  const UcmId* id = find(call, cmd.id);
  if (id == nullptr) return EINVAL;
  rdma_ucm_query_route_resp response{};
  response.src_addr = sockaddr_of(id->local);
  response.dst_addr = sockaddr_of(id->remote);
  if (id->has_device) {
    const Device& device = cm_->device();
    response.node_guid = guid_of(device.config());
    response.port_num = 1;
    response.ibdev_index = 1;
    response.num_paths = id->has_route ? 1 : 0;
    response.ib_route[0] = route_of(*id, device.active_mtu());
  }
  constexpr std::size_t kLeast = offsetof(rdma_ucm_query_route_resp, ibdev_index);
  return respond(cmd.response, call.room, response, kLeast);
}

int Ucm::listen(const Call& call) {
  const auto cmd = body_of<rdma_ucm_listen>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr) return EINVAL;
  if (!id->local.has_value()) {
    if (const int error = bind_id(*id, {Gid::from_v4({0, 0, 0, 0}), 0}); error != 0) return error;
  }
  // As in the kernel, those that the program has read and not answered do not count.
  if (Status listens = channel_->listen(*id->cm, INT32_MAX); !listens) return to_errno(listens.error().code);
  const auto backlog = static_cast<std::int32_t>(cmd.backlog);
  id->backlog = backlog <= 0 ? kMostUnread : std::min(cmd.backlog, kMostUnread);
  return 0;
}

int Ucm::init_qp_attr(const Call& call) {
  const auto cmd = body_of<rdma_ucm_init_qp_attr>(call.in);
  const UcmId* id = find(call, cmd.id);
  const auto state = static_cast<ibv_qp_state>(cmd.qp_state);
  if (id == nullptr || !id->has_device) return EINVAL;
  if (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS) return EINVAL;
  ib_uverbs_qp_attr response{};
  if (id->is_datagram()) {
    response = attributes_of<ib_uverbs_qp_attr>({.qkey = kCmQkey});
    response.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  } else {
    auto attr = id->cm.has_value() ? channel_->qp_attr(*id->cm)
                                   : Result<QpAttr>(Error{Errc::kBadState, "not connected"});
    if (!attr && state != IBV_QPS_INIT) return EINVAL;
    if (attr) attr->timeout = id->ack_timeout.value_or(attr->timeout);
    response = attributes_of<ib_uverbs_qp_attr>(attr ? *attr : QpAttr{});
    response.qp_attr_mask = mask_of(state, id->type);
  }
  response.qp_state = response.cur_qp_state = static_cast<__u8>(state);
  return respond(cmd.response, call.room, response);
}

int Ucm::set_option(const Call& call) {
  const auto cmd = body_of<rdma_ucm_set_option>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr || cmd.optlen == 0) return EINVAL;
  if (cmd.level == RDMA_OPTION_IB && cmd.optname == RDMA_OPTION_IB_PATH) {
    if (!id->is_resolved || id->has_route) return EINVAL;
    id->has_route = true;
    tell(*id, UcmEventType::kRouteResolved);
    return 0;
  }
  if (cmd.level != RDMA_OPTION_ID) return ENOSYS;
  std::uint8_t value = 0;
  int wide = 0;
  const bool is_int = cmd.optname == RDMA_OPTION_ID_REUSEADDR || cmd.optname == RDMA_OPTION_ID_AFONLY;
  const bool is_known =
      is_int || cmd.optname == RDMA_OPTION_ID_TOS || cmd.optname == RDMA_OPTION_ID_ACK_TIMEOUT;
  if (is_known && cmd.optlen != (is_int ? sizeof(int) : sizeof value)) return EINVAL;
  std::memcpy(&value, reinterpret_cast<const void*>(cmd.optval), sizeof value);
  if (is_int) std::memcpy(&wide, reinterpret_cast<const void*>(cmd.optval), sizeof wide);
  switch (cmd.optname) {
    case RDMA_OPTION_ID_TOS:
      id->traffic_class = value;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (value > 31 || (id->type != QpType::kRc && id->type != QpType::kXrcSend)) return EINVAL;
      id->ack_timeout = value;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      return set_flag(*id, &UcmId::shares_port, &CmChannel::share_port, wide != 0);
    case RDMA_OPTION_ID_AFONLY:
      if (id->is_resolved) return EINVAL;
      return set_flag(*id, &UcmId::is_v6_only, &CmChannel::set_v6_only, wide != 0);
    default:
      return ENOSYS;
  }
}

int Ucm::set_flag(UcmId& id, bool UcmId::*kept, Status (CmChannel::*command)(CmId, bool), bool value) {
  if (id.cm.has_value()) {
    if (Status done = ((*channel_).*command)(*id.cm, value); !done) return to_errno(done.error().code);
  }
  id.*kept = value;
  return 0;
}

/// The id moves to the file that is written to.
int Ucm::migrate_id(const Call& call) {
  const auto cmd = body_of<rdma_ucm_migrate_id>(call.in);
  const auto from = files_.find(static_cast<int>(cmd.fd));
  UcmId* id = cmd.id < ids_.size() ? ids_[cmd.id].get() : nullptr;
  if (from == files_.end() || id == nullptr || id->file != from->second.get()) return EINVAL;
  id->file = call.file.get();
  if (from->second != call.file) {
    from->second->purge([&](const UcmEvent& event) {
      if (event.id != id) return false;
      if (event.request != nullptr) event.request->file = call.file.get();
      call.file->push(event);
      return true;
    });
  }
  return respond(cmd.response, call.room, rdma_ucm_migrate_resp{.events_reported = id->events_reported});
}

}  // namespace uroce::abi
