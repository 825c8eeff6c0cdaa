#include "fuzz/cm_machine.h"

#include <algorithm>
#include <cstdlib>

#include "cm/ip_header.h"

namespace uroce::fuzz {

namespace {

using namespace uroce::wire;

constexpr unsigned kMostIds = 12;
constexpr std::uint64_t kGuids = 3;
constexpr std::uint16_t kFirstPort = 7000;

/// Holds in every build, unlike assert.
void require(bool holds) {
  if (!holds) std::abort();
}

Gid address(std::uint64_t number) {
  return Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(number % 3 + 1)});
}

template <std::size_t N>
void put_ip(std::array<std::byte, N>& bytes, const Gid& from) {
  cm::IpHeader{.source_port = 1, .source = from, .destination = address(0)}.emit(
      std::span{bytes}.template first<cm::IpHeader::kSize>());
}

}  // namespace

CmMachine::CmMachine()
    : agent_({.ca_guid = 1, .seed = 1, .path_mtu = PathMtu::k2048, .max_ids = kMostIds}, *this) {}

std::uint8_t CmMachine::take() {
  if (input_.empty()) return 0;
  const std::uint8_t byte = input_.front();
  input_ = input_.subspan(1);
  return byte;
}

std::uint64_t CmMachine::take(unsigned bytes) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < bytes; ++i) value = value << 8 | take();
  return value;
}

void CmMachine::send(const AhAttr& to, const Mad& mad) {
  const auto header = MadHeader::parse(std::span{mad}.first<MadHeader::kSize>());
  require(header.base_version == 1 && header.mgmt_class == kCmClass && header.class_version == kCmVersion);
  require(header.method == kCmSend && header.status == 0);
  require(header.attribute_id >= 0x10 && header.attribute_id <= 0x1a && header.attribute_id != 0x19);
  require(to.dgid != Gid{});
  ++answers_;
  last_ = mad;
  const auto known = known_.find(CmId{load_be<0, 4>(cm_body(mad))});
  if (known != known_.end()) known->second.transaction = header.transaction_id;
}

void CmMachine::on_event(CmEvent&& event) {
  const bool is_request =
      event.type == CmEventType::kConnectRequest || event.type == CmEventType::kServiceRequest;
  require(known_.contains(event.id) != is_request);
  Known& known = known_[event.id];
  const bool is_exit = event.type == CmEventType::kTimewaitExit;
  require(is_exit ? !known.is_exited : !known.is_ended);
  known.is_exited = is_exit;
  known.is_ended = known.is_ended || event.type == CmEventType::kRejected ||
                   event.type == CmEventType::kUnreachable || event.type == CmEventType::kDisconnected ||
                   event.type == CmEventType::kServiceReply;
  established_ += event.type == CmEventType::kEstablished ? 1 : 0;
  require(event.private_data().size() <= event.private_bytes.size());
  require(!to_string(event.type).empty() && !to_string(event.reason).empty());
}

bool CmMachine::is_own(const Gid& gid) const {
  return gid == address(0);
}

bool CmMachine::has_heard(CmId id) {
  return raw(id) % 8 == 0;
}

/// Ids are few, so that messages meet.
std::uint32_t CmMachine::some_id() {
  const std::uint8_t byte = take();
  return byte < 200 ? byte % 6 : static_cast<std::uint32_t>(take(4));
}

CmId CmMachine::some_known() {
  if (known_.empty()) return CmId{some_id()};
  const auto index = take() % known_.size();
  return std::next(known_.begin(), static_cast<std::ptrdiff_t>(index))->first;
}

/// A message as it should be, from peer id `from` to our id `to`.
Mad CmMachine::sensible(std::uint64_t transaction, std::uint32_t to, std::uint32_t from) {
  const cm::Conversation* c = agent_.find(CmId{to});
  const std::uint64_t guid = 2 + take() % kGuids;
  switch (static_cast<CmAttribute>(0x10 + take() % 11)) {
    case CmAttribute::kReq: {
      CmReq req{.local_comm_id = from, .ca_guid = guid, .qpn = Qpn{take() % 5U}, .path_mtu = 3};
      req.service_id = cm::service_id(PortSpace::kTcp, static_cast<std::uint16_t>(kFirstPort + take() % 2));
      req.local_gid = address(from);
      put_ip(req.private_data, address(from));
      return make_cm_mad(transaction, req);
    }
    case CmAttribute::kMra:
      return make_cm_mad(transaction, CmMra{.local_comm_id = from,
                                            .remote_comm_id = to,
                                            .about = CmAbout{static_cast<std::uint8_t>(take() % 3)},
                                            .service_timeout = static_cast<std::uint8_t>(take() % 32)});
    case CmAttribute::kRej: {
      CmRej rej{.local_comm_id = from, .remote_comm_id = take() % 4 == 0 ? 0 : to};
      rej.about = CmAbout{static_cast<std::uint8_t>(take() % 3)};
      rej.reason = std::array<std::uint16_t, 4>{4, 8, 26, 28}[take() % 4];
      rej.info_len = 8;
      store_be<0, 8>(std::span{rej.info}, guid);
      if (rej.reason == 26) rej.info[0] = static_cast<std::byte>(take() % 6);
      return make_cm_mad(transaction, rej);
    }
    case CmAttribute::kRep:
      return make_cm_mad(
          transaction,
          CmRep{.local_comm_id = from, .remote_comm_id = to, .qpn = Qpn{take() % 5U}, .ca_guid = guid});
    case CmAttribute::kRtu:
      return make_cm_mad(transaction, CmRtu{.local_comm_id = from, .remote_comm_id = to});
    case CmAttribute::kDreq:
      return make_cm_mad(transaction, CmDreq{.local_comm_id = from,
                                             .remote_comm_id = to,
                                             .remote_qpn = c != nullptr ? c->mine.qpn : Qpn{}});
    case CmAttribute::kDrep:
      return make_cm_mad(transaction, CmDrep{.local_comm_id = from, .remote_comm_id = to});
    case CmAttribute::kSidrReq: {
      SidrReq req{.request_id = from};
      req.service_id = cm::service_id(PortSpace::kUdp, static_cast<std::uint16_t>(kFirstPort + take() % 2));
      put_ip(req.private_data, address(from));
      return make_cm_mad(transaction, req);
    }
    case CmAttribute::kSidrRep:
      return make_cm_mad(transaction,
                         SidrRep{.request_id = to, .status = static_cast<std::uint8_t>(take() % 6)});
    case CmAttribute::kLap:
      return make_cm_mad(transaction, CmLap{.local_comm_id = from, .remote_comm_id = to});
    case CmAttribute::kApr:
      break;
  }
  return make_cm_mad(transaction, CmApr{.local_comm_id = from, .remote_comm_id = to});
}

void CmMachine::mutate(Mad& mad) {
  for (unsigned n = take() % 4; n > 0; --n) {
    const std::uint8_t at = take();
    mad[at] = static_cast<std::byte>(take());
  }
}

void CmMachine::message() {
  Mad mad{};
  const std::uint8_t how = take();
  const CmId to = some_known();
  const cm::Conversation* c = agent_.find(to);
  const std::uint32_t from = c != nullptr && c->remote_id != 0 && how % 4 != 0 ? c->remote_id : 1 + some_id();
  const bool knows_transaction = known_.contains(to) && how % 8 != 1;
  const std::uint64_t transaction = knows_transaction ? known_.at(to).transaction : take(1);
  if (how >= 250) {
    std::generate(mad.begin(), mad.end(), [&] { return static_cast<std::byte>(take()); });
  } else if (how >= 240) {
    mad = last_;
    mutate(mad);
  } else {
    mad = sensible(transaction, raw(to), from);
    if (how >= 160) mutate(mad);
  }
  AhAttr path;
  path.dgid = c != nullptr && c->path.dgid != Gid{} && how % 16 != 2 ? c->path.dgid : address(from);
  answers_ = 0;
  agent_.on_mad(path, mad, now_);
  require(answers_ <= 2);
  ++mads_;
}

/// A new id, for one thing or another.
void CmMachine::open() {
  const std::uint8_t what = take();
  const auto id = agent_.create(what % 4 == 3 ? PortSpace::kUdp : PortSpace::kTcp);
  if (!id) return;
  known_[*id] = {};
  const CmAddress there{address(1 + take() % 2U), kFirstPort};
  AhAttr path;
  path.dgid = there.ip;
  if (what % 4 == 0 || what % 8 == 7) {
    CmAddress at;
    at.port = static_cast<std::uint16_t>(kFirstPort + take() % 2);
    if (agent_.bind(*id, at)) (void)agent_.listen(*id, take() % 8U);
  } else if (what % 8 == 3) {
    CmServiceQuery ask;
    ask.to = there;
    (void)agent_.resolve_service(*id, ask, path, address(0), now_);
  } else {
    CmConnect ask{.patience = std::chrono::milliseconds(take())};
    ask.to = there;
    ask.terms.qpn = Qpn{take() % 5U};
    (void)agent_.connect(*id, ask, path, address(0), now_);
  }
}

/// What the application could say next, if it is the time for it.
void CmMachine::follow(CmId id) {
  CmAccept answer;
  answer.terms.qpn = Qpn{take() % 5U};
  (void)agent_.accept(id, answer, now_);
  (void)agent_.establish(id);
  (void)agent_.reply_service(id, {.status = static_cast<std::uint8_t>(take() % 3)}, now_);
  (void)agent_.qp_attr(id);
}

void CmMachine::call() {
  const std::uint8_t what = take() % 16;
  if (what < 4) return open();
  const CmId id = some_known();
  if (what < 11) return follow(id);
  if (what == 11) (void)agent_.reject(id, {}, now_);
  if (what == 12) (void)agent_.disconnect(id, now_);
  if (what == 13) agent_.on_failure(id, "failed", now_);
  if (what == 14) (void)agent_.notify_established(id);
  if (what != 15) return;
  agent_.close(id, now_);
  known_.erase(id);
  require(agent_.find(id) == nullptr);
}

void CmMachine::pass_time() {
  now_ = now_ + (std::uint64_t{1} << (12 + take() % 22));  // up to 8 s
  agent_.on_time(now_);
  require(!agent_.deadline().is_set() || agent_.deadline() > now_);
}

void CmMachine::run(std::span<const std::uint8_t> input) {
  input_ = input;
  while (!input_.empty()) {
    const std::uint8_t what = take() % 16;
    if (what < 10) {
      message();
    } else if (what < 15) {
      call();
    } else {
      pass_time();
    }
    require(agent_.size() <= kMostIds);
  }
  finish();
}

void CmMachine::finish() {
  while (!known_.empty()) {
    agent_.close(known_.begin()->first, now_);
    known_.erase(known_.begin());
  }
  while (agent_.deadline().is_set()) {
    now_ = std::max(now_, agent_.deadline());
    agent_.on_time(now_);
  }
  require(agent_.size() == 0);
}

}  // namespace uroce::fuzz
