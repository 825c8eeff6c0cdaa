// Commands that speak to the other end: connections, services, groups.

#include <algorithm>

#include "abi/ibverbs/errors.h"
#include "abi/rdmacm/ucm.h"

namespace uroce::abi {

namespace {

/// How long a peer that answers "nobody listens there" is asked again: programs that are run one after the
/// other listen anew.
constexpr std::chrono::milliseconds kPatience{500};
/// How long an answer may take: the peer's program may stand still meanwhile, as in a debugger. The kernel's
/// manager repeats what it asks 15 times, every 4.3 s, and waits for programs of its own kind for longer.
constexpr std::chrono::milliseconds kTimeout{65'000};
constexpr std::uint32_t kMulticastQpn = 0xff'ffff;

/// Programs ask for more than there are codes, and get most: 7.
constexpr std::uint8_t retries(std::uint8_t wanted) noexcept {
  return std::min<std::uint8_t>(wanted, 7);
}

CmTerms terms_of(const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece, QpType type) noexcept {
  return {.type = type,
          .qpn = Qpn{param.qp_num},
          .psn = {},
          .responder_resources = param.responder_resources,
          .initiator_depth = param.initiator_depth,
          .retry_cnt = retries(param.retry_count),
          .rnr_retry = retries(param.rnr_retry_count),
          .srq = param.srq != 0,
          .flow_control = param.flow_control != 0,
          .qkey = param.qkey,
          .vendor_id = ece.vendor_id,
          .options = ece.attr_mod};
}

int errno_of(const Status& status) noexcept {
  return status ? 0 : to_errno(status.error().code);
}

}  // namespace

int Ucm::connect(const Call& call) {
  const auto cmd = body_of<rdma_ucm_connect>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr || cmd.conn_param.valid == 0 || !id->has_route) return EINVAL;
  const auto bytes = private_data(cmd.conn_param.private_data, cmd.conn_param.private_data_len);
  id->tells_ece = cmd.ece.vendor_id != 0;
  const Status asked = id->is_datagram()
                           ? channel_->resolve_service(*id->cm, {.from = *id->local,
                                                                 .to = *id->remote,
                                                                 .traffic_class = id->traffic_class,
                                                                 .private_data = bytes,
                                                                 .timeout = kTimeout,
                                                                 .patience = kPatience})
                           : channel_->connect(*id->cm, {.space = id->space,
                                                         .from = *id->local,
                                                         .to = *id->remote,
                                                         .terms = terms_of(cmd.conn_param, cmd.ece, id->type),
                                                         .traffic_class = id->traffic_class,
                                                         .ack_timeout = id->ack_timeout.value_or(0),
                                                         .private_data = bytes,
                                                         .timeout = kTimeout,
                                                         .patience = kPatience});
  if (asked) id->has_peer = true;
  return errno_of(asked);
}

/// A request, or the reply on the side that asked.
Status Ucm::refuse(const UcmId& id, std::span<const std::byte> private_data) {
  constexpr std::uint8_t kRefused = 2;  // IBA 12.11.2
  if (!id.is_datagram()) return channel_->reject(*id.cm, private_data);
  return channel_->reply_service(*id.cm, {.status = kRefused, .private_data = private_data});
}

/// Takes a request; on the side that asked, and without parameters, the reply. A request that cannot be taken
/// is refused, as the kernel does.
int Ucm::accept(const Call& call) {
  const auto cmd = body_of<rdma_ucm_accept>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr || !id->cm.has_value()) return EINVAL;
  if (cmd.conn_param.valid == 0) return errno_of(channel_->establish(*id->cm));
  const std::uint64_t before = std::exchange(id->uid, cmd.uid);
  const auto bytes = private_data(cmd.conn_param.private_data, cmd.conn_param.private_data_len);
  const Status accepted =
      id->is_datagram() ? channel_->reply_service(
                              *id->cm, {.qpn = Qpn{cmd.conn_param.qp_num},
                                        .qkey = cmd.conn_param.qkey != 0 ? cmd.conn_param.qkey : kCmQkey,
                                        .private_data = bytes})
                        : channel_->accept(*id->cm, {.terms = terms_of(cmd.conn_param, cmd.ece, id->type),
                                                     .private_data = bytes});
  if (accepted) return 0;
  id->uid = before;
  static_cast<void>(refuse(*id, {}));  // who asked would wait
  return errno_of(accepted);
}

int Ucm::reject(const Call& call) {
  const auto cmd = body_of<rdma_ucm_reject>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr || !id->cm.has_value()) return EINVAL;
  constexpr std::uint8_t kNoSuchOption = 35;
  constexpr std::uint8_t kConsumer = 28;
  if (cmd.reason != 0 && cmd.reason != kConsumer && cmd.reason != kNoSuchOption) return EINVAL;
  return errno_of(refuse(*id, private_data(cmd.private_data, cmd.private_data_len)));
}

/// As in the kernel, which does not mind that there is no connection yet, if there is somebody to have it
/// with.
int Ucm::disconnect(const Call& call) {
  const auto cmd = body_of<rdma_ucm_disconnect>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr || !id->has_peer) return EINVAL;
  const Status ended = channel_->disconnect(*id->cm);
  return !ended && ended.error().code == Errc::kBadState ? 0 : errno_of(ended);
}

int Ucm::notify(const Call& call) {
  const auto cmd = body_of<rdma_ucm_notify>(call.in);
  UcmId* id = find(call, cmd.id);
  if (id == nullptr || !id->cm.has_value()) return EINVAL;
  return cmd.event == IBV_EVENT_COMM_EST ? errno_of(channel_->notify_established(*id->cm)) : 0;
}

/// The program attaches its QP when it hears how the group is spoken to: that joins it.
int Ucm::join_ip_mcast(const Call& call) {
  const auto cmd = body_of<rdma_ucm_join_ip_mcast>(call.in);
  UcmId* id = find(call, cmd.id);
  const auto to = address_of(cmd.addr);
  if (id == nullptr || !to.has_value() || !to->ip.is_multicast() || !id->has_device) return EINVAL;
  const auto path = cm_->route(to->ip, id->local->ip);
  if (!path) return to_errno(path.error().code);
  const std::uint32_t handle = next_group_++;
  auto& group = groups_[handle] = std::make_unique<UcmGroup>();
  group->uid = cmd.uid;
  group->id = id;
  UcmEvent event{.id = id, .group = group.get()};
  event.response.uid = cmd.uid;
  event.response.id = handle;
  event.response.event = raw(UcmEventType::kMulticastJoin);
  event.response.param.ud.qp_num = kMulticastQpn;
  event.response.param.ud.qkey = kCmQkey;
  event.response.param.ud.ah_attr = address_of<ib_uverbs_ah_attr>(*path);
  call.file->push(event);
  return respond(cmd.response, call.room, rdma_ucm_create_id_resp{.id = handle});
}

int Ucm::leave_mcast(const Call& call) {
  const auto cmd = body_of<rdma_ucm_destroy_id>(call.in);
  const auto found = groups_.find(cmd.id);
  if (found == groups_.end() || found->second->id->file != call.file.get()) return EINVAL;
  const UcmGroup& group = *found->second;
  call.file->purge([&](const UcmEvent& event) { return event.group == &group; });
  const rdma_ucm_destroy_id_resp response{.events_reported = group.events_reported};
  groups_.erase(found);
  return respond(cmd.response, call.room, response);
}

}  // namespace uroce::abi
