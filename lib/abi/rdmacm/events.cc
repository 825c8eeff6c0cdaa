// What the communication manager tells, as a program hears it.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>

#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/signals.h"
#include "abi/rdmacm/ucm.h"

namespace uroce::abi {

namespace {

void copy_private(__u8 (&to)[RDMA_MAX_PRIVATE_DATA], __u8& len, const CmEvent& event) noexcept {
  static_assert(sizeof event.private_bytes <= RDMA_MAX_PRIVATE_DATA);
  std::memcpy(to, event.private_bytes.data(), event.private_len);
  len = event.private_len;
}

/// What the peer said of its QP, seen from this side: only a request and its reply do.
rdma_ucm_conn_param terms_from(const CmEvent& event) noexcept {
  rdma_ucm_conn_param param{};
  copy_private(param.private_data, param.private_data_len, event);
  if (event.type != CmEventType::kConnectRequest && event.type != CmEventType::kConnectReply) return param;
  param.qp_num = raw(event.peer.qpn);
  param.qkey = event.peer.qkey;
  param.srq = event.peer.srq ? 1 : 0;
  param.flow_control = event.peer.flow_control ? 1 : 0;
  param.responder_resources = event.peer.initiator_depth;
  param.initiator_depth = event.peer.responder_resources;
  param.retry_count = event.peer.retry_cnt;
  param.rnr_retry_count = event.peer.rnr_retry;
  return param;
}

rdma_ucm_ud_param service_from(const CmEvent& event) noexcept {
  rdma_ucm_ud_param param{};
  param.qp_num = raw(event.peer.qpn);
  param.qkey = event.peer.qkey;
  param.ah_attr = address_of<ib_uverbs_ah_attr>(event.path);
  copy_private(param.private_data, param.private_data_len, event);
  return param;
}

/// Event and status. A positive status is a reason of the peer's.
struct Meaning {
  UcmEventType event;
  int status = 0;
};

Meaning meaning_of(const CmEvent& event) noexcept {
  switch (event.type) {
    case CmEventType::kConnectRequest:
    case CmEventType::kServiceRequest:
      return {UcmEventType::kConnectRequest};
    case CmEventType::kConnectReply:
      return {UcmEventType::kConnectResponse};
    case CmEventType::kEstablished:
      return {UcmEventType::kEstablished};
    case CmEventType::kRejected:
      return {UcmEventType::kRejected, static_cast<int>(event.reason)};
    case CmEventType::kUnreachable:
      return {UcmEventType::kUnreachable, -ETIMEDOUT};
    case CmEventType::kDisconnected:
      return {UcmEventType::kDisconnected};
    case CmEventType::kTimewaitExit:
      return {UcmEventType::kTimewaitExit};
    case CmEventType::kServiceReply:
      if (event.service_status != 0) return {UcmEventType::kUnreachable, event.service_status};
      return {UcmEventType::kEstablished};
  }
  return {UcmEventType::kConnectError, -EINVAL};
}

rdma_ucm_event_resp response_of(const UcmId& id, const CmEvent& event) noexcept {
  const Meaning meaning = meaning_of(event);
  rdma_ucm_event_resp response{};
  response.uid = id.uid;
  response.id = id.handle;
  response.event = raw(meaning.event);
  response.status = static_cast<__u32>(meaning.status);
  if (id.is_datagram()) {
    response.param.ud = service_from(event);
  } else {
    response.param.conn = terms_from(event);
  }
  const bool is_request = event.type == CmEventType::kConnectRequest;
  if (is_request || (event.type == CmEventType::kConnectReply && id.tells_ece)) {
    response.ece = {.vendor_id = event.peer.vendor_id, .attr_mod = event.peer.options};
  }
  return response;
}

}  // namespace

/// An event without more to it.
void Ucm::tell(UcmId& id, UcmEventType event, int status) {
  UcmEvent told{.id = &id};
  told.response.uid = id.uid;
  told.response.id = id.handle;
  told.response.event = raw(event);
  told.response.status = static_cast<__u32>(status);
  id.file->push(told);
}

namespace {

/// A listener serves those who want QPs of its own type.
bool is_served(const UcmId& listener, const CmEvent& request) noexcept {
  if (request.type == CmEventType::kServiceRequest) return listener.is_datagram();
  const bool is_xrc = listener.type == QpType::kXrcRecv || listener.type == QpType::kXrcSend;
  return request.peer.type == (is_xrc ? QpType::kXrcSend : listener.type);
}

}  // namespace

void Ucm::deliver(const CmEvent& event) {
  if (event.type == CmEventType::kConnectRequest || event.type == CmEventType::kServiceRequest) {
    return deliver_request(event);
  }
  const auto found = by_cm_id_.find(raw(event.id));
  if (found == by_cm_id_.end()) return;
  UcmId& id = *found->second;
  if (event.type == CmEventType::kDisconnected && !event.text.empty()) {
    std::fprintf(stderr, "uroce: the connection to %s ends: %s\n", to_string(event.remote).c_str(),
                 event.text.c_str());
  }
  if (id.uid == 0) return;  // the program does not know it yet: its accept() will fail
  UcmEvent told{.id = &id};
  told.response = response_of(id, event);
  id.file->push(told);
}

void Ucm::deliver_request(const CmEvent& event) {
  const auto found = by_cm_id_.find(raw(event.listener));
  if (found == by_cm_id_.end() || !is_served(*found->second, event)) return channel_->close(event.id);
  UcmId& listener = *found->second;
  const auto unread = std::count_if(listener.file->events.begin(), listener.file->events.end(),
                                    [&](const UcmEvent& e) { return e.id == &listener; });
  // As the kernel does: a burst of requests takes longer, and fails nobody.
  if (static_cast<std::size_t>(unread) >= listener.backlog) return channel_->drop(event.id);
  UcmId& id = make_id(*listener.file);
  id.space = listener.space;
  id.type = listener.type;
  id.cm = event.id;
  by_cm_id_[raw(event.id)] = &id;
  id.local = event.local;
  id.remote = event.remote;
  id.path = event.path;
  id.traffic_class = event.path.traffic_class;
  id.ack_timeout = listener.ack_timeout;
  id.has_device = id.is_resolved = id.has_route = id.has_peer = true;
  UcmEvent told{.id = &listener, .request = &id};
  told.response = response_of(id, event);
  told.response.uid = listener.uid;
  listener.file->push(told);
}

void Ucm::note_reader(UcmFile& file) {
  if (file.reader != 0) read_by_.erase(file.reader);
  file.reader = gettid();
  file.read = std::chrono::steady_clock::now();
  read_by_[file.reader] = &file;
}

/// Its only point of cancellation is where it waits, with nothing held.
int Ucm::get_event(const Call& call) {
  constexpr std::size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
  const auto cmd = body_of<rdma_ucm_get_event>(call.in);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!call.file->events.empty()) {
        const UcmEvent event = call.file->events.front();
        const int error = respond(cmd.response, call.room, event.response, kLeast);
        if (error != 0) return error;
        note_reader(*call.file);
        call.file->pop();
        ++event.id->events_reported;
        if (event.group != nullptr) ++event.group->events_reported;
        return 0;
      }
    }
    // A thread that waits when another one closes the file goes on waiting, as in the kernel: rping leaves
    // one.
    const int flags = fcntl(call.file->fd, F_GETFL);
    const bool is_open = flags >= 0 && !call.file->closed;
    if (is_open && (flags & O_NONBLOCK) != 0) return EAGAIN;
    pollfd wanted{.fd = is_open ? call.file->fd : -1, .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, -1) < 0 && !(errno == EINTR && goes_on_after_signals())) return errno;
  }
}

}  // namespace uroce::abi
