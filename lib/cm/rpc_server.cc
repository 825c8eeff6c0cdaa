#include <algorithm>
#include <array>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bounded_time.h"
#include "cm/rpc_frame.h"
#include "uroce/rpc.h"

namespace uroce {
namespace {

using std::chrono::nanoseconds;

constexpr unsigned kEvents = 16;  // of clients that one poll() takes: requests do not wait for a storm
constexpr nanoseconds kLook = std::chrono::milliseconds(1);  // for clients, while it waits for requests

constexpr std::string_view kNoMemory = "it has no memory for another client";

/// A client. One that is gone stays until all that it sent before is told and done with.
struct Peer {
  [[nodiscard]] bool is_done_with() const noexcept { return borrowed == 0 && is_told; }

  CmId id{};
  CmAddress address;
  MessageChannel channel;
  std::uint32_t borrowed = 0;  // requests that the application has
  bool is_connected = false;
  bool is_gone = false;
  bool is_told = false;          // nothing that arrived is left to be polled
  std::span<std::byte> place{};  // of the answer that was claimed
};

}  // namespace

struct RpcServer::Impl {
  Impl(Cm& its_cm, Pd& its_pd, const RpcServerAttr& attr, Cq its_arrivals, CmChannel its_events)
      : cm(its_cm), pd(its_pd), cfg(attr), arrivals(std::move(its_arrivals)), events(std::move(its_events)) {}

  [[nodiscard]] Peer* find(RpcClientId client) const noexcept {
    const auto known = peers.find(raw(client));
    return known != peers.end() ? known->second.get() : nullptr;
  }

  /// @return nullptr if the request is done with.
  [[nodiscard]] Peer* owner_of(const RpcRequest& request) const noexcept {
    Peer* peer = find(request.client);
    return peer != nullptr && peer->channel.has(request.message) ? peer : nullptr;
  }

  Status bind();
  void attend() noexcept;
  [[nodiscard]] bool on_event();
  std::string_view welcome() noexcept;
  std::string_view admit();
  void refuse(CmId id, std::string_view why) noexcept;
  void close(CmId id) noexcept;
  void forget(CmId id) noexcept;
  void lose(Peer& peer) noexcept;
  void let_go() noexcept;
  bool take(const Wc& wc, RpcRequest& request) noexcept;
  Sent claim(const RpcRequest& request, std::size_t bytes, std::span<std::byte>& to) noexcept;
  Sent send(const RpcRequest& request, std::size_t bytes, RpcKind kind) noexcept;
  Sent answer(const RpcRequest& request, std::span<const std::byte> text, RpcKind kind) noexcept;
  void release(Peer& peer, const RpcRequest& request) noexcept;

  Cm& cm;
  Pd& pd;
  RpcServerAttr cfg;
  std::uint16_t port = 0;
  std::uint32_t connected = 0;
  Cq arrivals;
  std::unordered_map<std::uint32_t, std::unique_ptr<Peer>> peers;  // by their CmId
  std::unordered_map<std::uint32_t, Peer*> by_qpn;
  std::vector<Peer*> lost;  // with room for all
  CmChannel events;         // its ids end before the QPs
  RpcServerCounts counts;
  // Of poll(), made once:
  CmEvent event;
  std::array<Wc, 16> wcs;
  bool lacks_room = false;  // the last answer found no slot, and no event tells of one
};

// Clients

Status RpcServer::Impl::bind() {
  auto id = events.create_id(PortSpace::kTcp);
  if (!id) return id.error();
  if (Status bound = events.bind(*id, cfg.at); !bound) return bound.error();
  if (Status listens = events.listen(*id, cfg.clients); !listens) return listens.error();
  auto local = events.local(*id);
  if (!local) return local.error();
  port = local->port;
  return {};
}

void RpcServer::Impl::attend() noexcept {
  for (unsigned i = 0; i < kEvents && events.next(event); ++i) {
    if (on_event()) return;
  }
}

/// @return whether it brought a client, which takes so long that the next event waits.
bool RpcServer::Impl::on_event() {
  if (event.type == CmEventType::kConnectRequest) {
    const std::string_view trouble = welcome();
    if (!trouble.empty()) refuse(event.id, trouble);
    return trouble.empty();
  }
  Peer* peer = find(RpcClientId{raw(event.id)});
  if (peer == nullptr) {
    if (event.type == CmEventType::kServiceRequest) close(event.id);
    return false;
  }
  if (event.type == CmEventType::kEstablished && !peer->is_connected && !peer->is_gone) {
    peer->is_connected = true;
    ++connected;
    ++counts.clients;
    peer->channel.tell_credits();
  } else if (event.type != CmEventType::kTimewaitExit) {
    lose(*peer);
  }
  return false;
}

/// A request for a connection. @return nothing if it is accepted; otherwise why not, and nothing is left of
/// it.
std::string_view RpcServer::Impl::welcome() noexcept {
  std::string_view trouble;
  try {
    trouble = admit();
  } catch (const std::bad_alloc&) {
    trouble = kNoMemory;
  }
  if (!trouble.empty()) forget(event.id);
  return trouble;
}

std::string_view RpcServer::Impl::admit() {
  constexpr std::string_view kFull = "it has as many clients as it may have";
  if (!is_rpc_greeting(event.private_data())) return "it serves calls only, in its own version";
  // Those of whom the application has nothing are about to leave; at most as many more clients at a time.
  const auto leaving = static_cast<std::size_t>(std::ranges::count(lost, 0U, &Peer::borrowed));
  if (peers.size() - std::min<std::size_t>(leaving, cfg.clients) >= cfg.clients) return kFull;
  const MessageChannelAttr attr = rpc_channel(cfg.message_bytes, cfg.requests, cfg.loop);
  const std::uint64_t completions = (peers.size() + 1) * std::uint64_t{attr.completions()};
  if (completions > cm.device().limits().max_cqe) return kFull;
  if (completions > arrivals.entries() && !arrivals.resize(static_cast<std::uint32_t>(completions)))
    return kNoMemory;
  auto channel = MessageChannel::create(pd, cm.device(), attr, arrivals);
  if (!channel) return kNoMemory;
  lost.reserve(peers.size() + 1);
  auto made =
      std::make_unique<Peer>(Peer{.id = event.id, .address = event.remote, .channel = std::move(*channel)});
  Peer& peer = *made;
  peers.emplace(raw(event.id), std::move(made));
  by_qpn.emplace(raw(peer.channel.qp().qpn()), &peer);
  const CmAccept answer{.private_data = std::as_bytes(std::span(kRpcGreeting))};
  return events.accept(event.id, answer, &peer.channel.qp()) ? "" : "it could not accept the connection";
}

/// Where there is no memory for it, the other end is not told.
void RpcServer::Impl::refuse(CmId id, std::string_view why) noexcept {
  ++counts.refused;
  try {
    (void)events.reject(id, rpc_refusal(why));
  } catch (const std::bad_alloc&) {
  }
  close(id);
}

void RpcServer::Impl::lose(Peer& peer) noexcept {
  if (std::exchange(peer.is_gone, true)) return;
  if (std::exchange(peer.is_connected, false)) --connected;
  lost.push_back(&peer);
}

void RpcServer::Impl::let_go() noexcept {
  std::erase_if(lost, [this](Peer* peer) {
    if (!peer->is_done_with()) return false;
    close(peer->id);
    forget(peer->id);
    return true;
  });
}

/// Where there is no memory for it, the other end is not told.
void RpcServer::Impl::close(CmId id) noexcept {
  try {
    events.close(id);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void RpcServer::Impl::forget(CmId id) noexcept {
  const auto known = peers.find(raw(id));
  if (known == peers.end()) return;
  by_qpn.erase(raw(known->second->channel.qp().qpn()));
  peers.erase(known);
}

// Requests

/// @return whether it brought one.
bool RpcServer::Impl::take(const Wc& wc, RpcRequest& request) noexcept {
  const auto known = by_qpn.find(raw(wc.qpn));
  if (known == by_qpn.end()) return false;
  Peer& peer = *known->second;
  Message message;
  const bool had_ended = peer.channel.has_ended();
  const bool is_message = peer.channel.take(wc, message);
  if (peer.channel.has_ended()) {
    lose(peer);
    peer.is_told = peer.is_told || !wc.ok() || !had_ended;  // flushed behind what arrived, or a breach
  }
  if (!is_message) return false;
  const auto frame = RpcFrame::load(message.data);
  if (!frame.has_value() || (frame->kind != RpcKind::kRequest && frame->kind != RpcKind::kNotice)) {
    ++counts.malformed;
    peer.channel.release(message);
    return false;
  }
  message.data = message.data.subspan(RpcFrame::kBytes);
  request = {.method = frame->method,
             .wants_reply = frame->kind == RpcKind::kRequest,
             .time_left = rpc_time_left(frame->left_us),
             .client = RpcClientId{raw(peer.id)},
             .call = RpcCall{frame->call},
             .message = message};
  ++peer.borrowed;
  ++counts.requests;
  return true;
}

void RpcServer::Impl::release(Peer& peer, const RpcRequest& request) noexcept {
  peer.channel.release(request.message);
  --peer.borrowed;
}

Sent RpcServer::Impl::claim(const RpcRequest& request, std::size_t bytes, std::span<std::byte>& to) noexcept {
  Peer* peer = owner_of(request);
  if (peer == nullptr) return Sent::kAnswered;
  const Sent claimed = peer->is_gone ? Sent::kEnded : peer->channel.claim(framed(bytes), peer->place);
  lacks_room = claimed == Sent::kNoSlot;
  if (claimed == Sent::kOk) {
    to = peer->place.subspan(RpcFrame::kBytes);
    return Sent::kOk;
  }
  peer->place = {};
  if (claimed == Sent::kEnded) {
    ++counts.lost;
    lose(*peer);
    release(*peer, request);
  }
  return claimed;
}

Sent RpcServer::Impl::send(const RpcRequest& request, std::size_t bytes, RpcKind kind) noexcept {
  Peer* peer = owner_of(request);
  if (peer == nullptr) return Sent::kAnswered;
  if (peer->place.size() < framed(bytes)) return Sent::kTooLong;
  if (!request.wants_reply) {  // it goes to nobody
    peer->place = {};
    release(*peer, request);
    return Sent::kOk;
  }
  RpcFrame{.kind = kind, .method = request.method, .call = raw(request.call)}.store(
      peer->place.first<RpcFrame::kBytes>());
  const Sent sent = peer->is_gone ? Sent::kEnded : peer->channel.commit(framed(bytes));
  lacks_room = sent == Sent::kNoSlot;
  if (sent == Sent::kNoSlot || sent == Sent::kTooLong) return sent;
  peer->place = {};
  ++(sent == Sent::kOk ? counts.replies : counts.lost);
  if (sent == Sent::kEnded) lose(*peer);
  release(*peer, request);
  return sent;
}

Sent RpcServer::Impl::answer(const RpcRequest& request, std::span<const std::byte> text,
                             RpcKind kind) noexcept {
  if (!request.wants_reply) {
    Peer* peer = owner_of(request);
    if (peer == nullptr) return Sent::kAnswered;
    release(*peer, request);
    return Sent::kOk;
  }
  std::span<std::byte> to;
  if (const Sent claimed = claim(request, text.size(), to); claimed != Sent::kOk) return claimed;
  std::ranges::copy(text, to.begin());
  return send(request, text.size(), kind);
}

// What the application calls

Result<RpcServer> RpcServer::listen(Cm& cm, Pd& pd, const RpcServerAttr& attr) {
  if (attr.clients == 0) return Error{Errc::kInvalid, "a server of calls has at least 1 client"};
  if (Status fits = check_rpc_channel(attr.message_bytes, attr.requests, cm.device().limits()); !fits)
    return fits.error();
  try {
    auto arrivals = Cq::create(cm.device(), 1, attr.loop);
    if (!arrivals) return arrivals.error();
    auto events = CmChannel::create(cm);
    if (!events) return events.error();
    auto impl = std::make_unique<Impl>(cm, pd, attr, std::move(*arrivals), std::move(*events));
    // That there is no memory for a client, say, is told now.
    const auto channel = rpc_channel(attr.message_bytes, attr.requests, attr.loop);
    if (auto probe = MessageChannel::create(pd, cm.device(), channel); !probe) return probe.error();
    if (Status bound = impl->bind(); !bound) return bound.error();
    return RpcServer(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for a server of calls"};
  }
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
RpcServer::RpcServer(RpcServer&&) noexcept = default;
RpcServer& RpcServer::operator=(RpcServer&&) noexcept = default;
RpcServer::~RpcServer() = default;

std::size_t RpcServer::poll(std::span<RpcRequest> out) noexcept {
  Impl& own = *impl_;
  own.attend();
  std::size_t filled = 0;
  std::size_t looked_at = 0;
  while (looked_at < out.size()) {
    const std::size_t most = std::min(own.wcs.size(), out.size() - looked_at);
    const std::size_t taken = own.arrivals.poll(std::span(own.wcs).first(most));
    for (const Wc& wc : std::span(own.wcs).first(taken)) filled += own.take(wc, out[filled]) ? 1U : 0U;
    looked_at += taken;
    if (taken < most) break;
  }
  if (!own.lost.empty()) own.let_go();
  return filled;
}

Sent RpcServer::reply(const RpcRequest& request, std::span<const std::byte> answer) noexcept {
  return impl_->answer(request, answer, RpcKind::kReply);
}

Sent RpcServer::refuse(const RpcRequest& request, std::span<const std::byte> why) noexcept {
  return impl_->answer(request, why, RpcKind::kRefusal);
}

Sent RpcServer::claim(const RpcRequest& request, std::size_t bytes, std::span<std::byte>& to) noexcept {
  return impl_->claim(request, bytes, to);
}

Sent RpcServer::commit(const RpcRequest& request, std::size_t bytes) noexcept {
  return impl_->send(request, bytes, RpcKind::kReply);
}

bool RpcServer::release(const RpcRequest& request) noexcept {
  Peer* peer = impl_->owner_of(request);
  if (peer == nullptr) return false;
  impl_->release(*peer, request);
  return true;
}

bool RpcServer::wait(nanoseconds timeout) {
  Impl& own = *impl_;
  const bool runs_loop = own.cm.device().config().mode == Mode::kApp;
  const bool looks_again = std::exchange(own.lacks_room, false) && timeout > kLook;
  const auto end = std::chrono::steady_clock::now() + (looks_again ? kLook : bounded(timeout));
  for (;;) {
    const nanoseconds left = std::max<nanoseconds>(end - std::chrono::steady_clock::now(), {});
    if (own.arrivals.wait(runs_loop ? std::min(left, kLook) : nanoseconds(0))) return true;
    // It is armed, so that what arrives from now on is told.
    if (left.count() > 0 && own.arrivals.linger(own.arrivals.fd())) {
      own.arrivals.clear_event();
      return true;
    }
    const std::array<int, 2> fds{own.events.fd(), own.arrivals.fd()};
    const bool is_blind = fds[0] < 0 || fds[1] < 0;  // no descriptor is left: it looks by itself
    const nanoseconds longest = runs_loop ? nanoseconds(0) : std::min(left, is_blind ? kLook : left);
    const bool has_news = own.cm.device().sleep(own.cfg.loop, fds, longest) > 0;
    own.arrivals.clear_event();
    if (has_news) return true;
    if (left.count() == 0) return looks_again;
    if (is_blind) return true;
  }
}

std::uint16_t RpcServer::port() const noexcept {
  return impl_->port;
}

std::uint32_t RpcServer::clients() const noexcept {
  return impl_->connected;
}

CmAddress RpcServer::address_of(RpcClientId client) const noexcept {
  const Peer* peer = impl_->find(client);
  return peer != nullptr ? peer->address : CmAddress{};
}

std::uint32_t RpcServer::max_message(RpcClientId client) const noexcept {
  const Peer* peer = impl_->find(client);
  return peer != nullptr ? without_frame(peer->channel.max_message()) : 0;
}

const RpcServerCounts& RpcServer::counts() const noexcept {
  return impl_->counts;
}

}  // namespace uroce
