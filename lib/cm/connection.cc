#include "uroce/connection.h"

#include <algorithm>
#include <utility>

#include "base/bounded_time.h"
#include "cm/connect_error.h"
#include "cm/service.h"

namespace uroce {

namespace {

constexpr auto kEndPatience = std::chrono::milliseconds(2500);  // until the peer is no longer told

std::chrono::steady_clock::time_point after(std::chrono::nanoseconds timeout) noexcept {
  return std::chrono::steady_clock::now() + bounded(timeout);
}

Result<std::unique_ptr<CmChannel>> new_channel(Cm& cm) {
  auto channel = CmChannel::create(cm);
  if (!channel) return channel.error();
  return std::make_unique<CmChannel>(std::move(*channel));
}

/// Of one that is given up, though it may have come about just now: its QP stops.
Error give_up(CmChannel& channel, CmId id, std::string text) {
  channel.impl().cm.call([id, &cm = channel.impl().cm](cm::Agent&, Ticks) {
    cm.abandon(id);
    return true;
  });
  return Error{Errc::kTimeout, std::move(text)};
}

}  // namespace

Result<Connection> Connection::connect(Cm& cm, Qp& qp, const CmConnect& ask) {
  return connect(cm, qp, ask, [] { return false; });
}

Result<Connection> Connection::connect(Cm& cm, Qp& qp, const CmConnect& ask,
                                       const std::function<bool()>& gives_up) {
  auto channel = new_channel(cm);
  if (!channel) return channel.error();
  auto id = (*channel)->create_id(ask.space);
  if (!id) return id.error();
  if (Status asked = (*channel)->connect(*id, ask, &qp); !asked) return asked.error();
  CmEvent event;
  // The manager ends it, unless a busy peer asks for more time than `ask.timeout`: it has the margin.
  constexpr auto kMargin = std::chrono::seconds(1);
  constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(100);
  const auto end = after(bounded(ask.timeout) + kMargin);
  while (true) {
    const std::chrono::nanoseconds left = end - std::chrono::steady_clock::now();
    if ((*channel)->wait(event, std::min(left, kLook))) break;
    if (left <= kLook) return give_up(**channel, *id, to_string(ask.to) + " did not answer in time");
    if (gives_up()) return give_up(**channel, *id, "gave up before " + to_string(ask.to) + " answered");
  }
  if (event.type != CmEventType::kEstablished) return connect_error(event);
  return Connection(std::move(*channel), *id, std::move(event));
}

Connection& Connection::operator=(Connection&& other) noexcept {
  if (this == &other) return *this;
  end();
  channel_ = std::move(other.channel_);
  id_ = other.id_;
  peer_ = std::move(other.peer_);
  ended_ = other.ended_;
  end_text_ = std::move(other.end_text_);
  return *this;
}

Connection::~Connection() {
  end();
}

/// Where there is no memory to wait, the channel tells the peer as it goes.
void Connection::end() noexcept {
  try {
    if (channel_ != nullptr) disconnect();
  } catch (const std::bad_alloc&) {
    return;
  }
}

bool Connection::wait_end(std::chrono::nanoseconds timeout) {
  const auto end = after(timeout);
  CmEvent event;
  while (!ended_ && channel_->wait(event, end - std::chrono::steady_clock::now())) {
    ended_ = event.type != CmEventType::kEstablished;
    end_text_ = event.text;
  }
  return ended_;
}

bool Connection::is_connected() {
  return !wait_end(std::chrono::nanoseconds(0));
}

void Connection::disconnect() {
  if (!ended_ && channel_->disconnect(id_)) (void)wait_end(kEndPatience);
  ended_ = true;
}

ConnectionRequest::~ConnectionRequest() {
  try {
    if (event_.id != CmId{}) channel_.close(event_.id);
  } catch (const std::bad_alloc&) {
    return;  // it has gone, and what there was no memory for is passed on later
  }
}

Result<Connection> ConnectionRequest::accept(Qp& qp, const CmAccept& answer,
                                             std::chrono::milliseconds timeout) {
  auto own = new_channel(cm_);
  if (!own) return own.error();
  const CmId id = std::exchange(event_.id, CmId{});
  if (Status moved = channel_.migrate(id, **own); !moved) return moved.error();
  if (Status accepted = (*own)->accept(id, answer, &qp); !accepted) return accepted.error();
  CmEvent event;
  if (!(*own)->wait(event, bounded(timeout)))
    return give_up(**own, id, to_string(event_.remote) + " is not ready in time");
  if (event.type != CmEventType::kEstablished) return connect_error(event);
  event_.id = CmId{};
  CmEvent peer = event_;
  peer.id = id;
  return Connection(std::move(*own), id, std::move(peer));
}

void ConnectionRequest::reject(std::span<const std::byte> private_data) {
  const CmId id = std::exchange(event_.id, CmId{});
  (void)channel_.reject(id, private_data);
  channel_.close(id);
}

Result<Listener> Listener::create(Cm& cm, const CmAddress& at, unsigned backlog, PortSpace space) {
  auto channel = new_channel(cm);
  if (!channel) return channel.error();
  auto id = (*channel)->create_id(space);
  if (!id) return id.error();
  if (Status bound = (*channel)->bind(*id, at); !bound) return bound.error();
  if (Status listens = (*channel)->listen(*id, backlog); !listens) return listens.error();
  auto local = (*channel)->local(*id);
  if (!local) return local.error();
  return Listener(cm, std::move(*channel), local->port);
}

std::optional<ConnectionRequest> Listener::wait(std::chrono::nanoseconds timeout) {
  const auto end = after(timeout);
  CmEvent event;
  while (channel_->wait(event, end - std::chrono::steady_clock::now())) {
    if (event.type == CmEventType::kConnectRequest)
      return ConnectionRequest(*cm_, *channel_, std::move(event));
    if (event.type == CmEventType::kServiceRequest) channel_->close(event.id);
  }
  return std::nullopt;
}

}  // namespace uroce
