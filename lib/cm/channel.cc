#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "base/bounded_time.h"
#include "base/eventfd.h"
#include "cm/service.h"
#include "verbs/gsi.h"

namespace uroce {

CmChannel::Impl::~Impl() {
  const std::lock_guard lock(cm.mutex);
  cm.close_all(*this);
  if (fd >= 0) ::close(fd);
}

void CmChannel::Impl::push(CmEvent&& event) {
  events.push_back(std::move(event));
  count = events.size();
  news.notify_all();
  signal_eventfd(fd);
}

bool CmChannel::Impl::pop(CmEvent& event) {
  if (events.empty()) return false;
  event = std::move(events.front());
  events.pop_front();
  if (const auto holder = cm.holders.find(raw(event.id)); holder != cm.holders.end())
    holder->second.is_unread = false;
  after_taking();
  return true;
}

void CmChannel::Impl::after_taking() noexcept {
  count = events.size();
  if (events.empty()) drain_eventfd(fd);
}

Result<CmAddress> CmChannel::Impl::address(CmId id, CmAddress cm::Conversation::*which) const {
  const std::lock_guard lock(cm.mutex);
  const cm::Conversation* c = cm.agent.find(id);
  if (c == nullptr) return Error{Errc::kInvalid, "no such connection id, or it is closed"};
  return c->*which;
}

CmChannel::CmChannel(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
CmChannel::CmChannel(CmChannel&&) noexcept = default;
CmChannel& CmChannel::operator=(CmChannel&&) noexcept = default;
CmChannel::~CmChannel() = default;

Result<CmChannel> CmChannel::create(Cm& cm) {
  return CmChannel(std::make_unique<Impl>(cm.impl()));
}

bool CmChannel::next(CmEvent& event) {
  if (impl_->count == 0) return false;
  const std::lock_guard lock(impl_->cm.mutex);
  return impl_->pop(event);
}

bool CmChannel::wait(CmEvent& event, std::chrono::nanoseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + bounded(timeout);
  if (impl_->cm.device.config().mode == Mode::kApp) {
    while (!next(event)) {  // a request may be taken back before it is read
      if (std::chrono::steady_clock::now() >= end) return false;
      impl_->cm.device.progress();
      std::this_thread::yield();
    }
    return true;
  }
  std::unique_lock lock(impl_->cm.mutex);
  impl_->news.wait_until(lock, end, [this] { return !impl_->events.empty(); });
  return impl_->pop(event);
}

int CmChannel::fd() {
  const std::lock_guard lock(impl_->cm.mutex);
  if (impl_->fd < 0) {
    impl_->fd = eventfd(impl_->events.empty() ? 0 : 1, EFD_NONBLOCK | EFD_CLOEXEC);
  }
  return impl_->fd;
}

Result<CmId> CmChannel::create_id(PortSpace space) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks now) {
    auto id = agent.create(space);
    if (!id) return id;
    try {
      impl_->cm.holders[raw(*id)] = {.channel = impl_.get()};
    } catch (const std::bad_alloc&) {
      agent.close(*id, now);
      throw;
    }
    return id;
  });
}

Status CmChannel::bind(CmId id, const CmAddress& address) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks) { return agent.bind(id, address); });
}
Status CmChannel::share_port(CmId id, bool shares) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks) { return agent.share_port(id, shares); });
}
Status CmChannel::set_v6_only(CmId id, bool is_only) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks) { return agent.set_v6_only(id, is_only); });
}
Status CmChannel::listen(CmId id, unsigned backlog) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks) { return agent.listen(id, backlog); });
}
Status CmChannel::connect(CmId id, const CmConnect& ask, Qp* qp) {
  return impl_->cm.call([&](cm::Agent&, Ticks) { return impl_->cm.connect(id, ask, qp); });
}
Status CmChannel::accept(CmId id, const CmAccept& answer, Qp* qp) {
  return impl_->cm.call([&](cm::Agent&, Ticks) { return impl_->cm.accept(id, answer, qp); });
}
Status CmChannel::reject(CmId id, std::span<const std::byte> private_data) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks now) { return agent.reject(id, private_data, now); });
}

Status CmChannel::establish(CmId id) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks) {
    Status established = agent.establish(id);
    if (established) impl_->cm.on_established(id);
    return established;
  });
}

Status CmChannel::notify_established(CmId id) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks) { return agent.notify_established(id); });
}

/// The QP stops first, so that nothing of it follows the word that it has.
Status CmChannel::disconnect(CmId id) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks now) -> Status {
    if (Status may = agent.may_disconnect(id); !may) return may;
    const auto holder = impl_->cm.holders.find(raw(id));
    if (holder != impl_->cm.holders.end()) impl_->cm.release(holder->second);
    return agent.disconnect(id, now);
  });
}

Status CmChannel::resolve_service(CmId id, const CmServiceQuery& ask) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks now) -> Status {
    auto path = route_to(impl_->cm.device, ask.to.ip, ask.from.ip);
    if (!path) return path.error();
    path->traffic_class = ask.traffic_class;
    const Gid source = impl_->cm.device.gids()[path->sgid_index].gid;
    return agent.resolve_service(id, ask, *path, source, now);
  });
}

Status CmChannel::reply_service(CmId id, const CmServiceReply& answer) {
  return impl_->cm.call([&](cm::Agent& agent, Ticks now) { return agent.reply_service(id, answer, now); });
}

Result<QpAttr> CmChannel::qp_attr(CmId id) const {
  const std::lock_guard lock(impl_->cm.mutex);
  return impl_->cm.agent.qp_attr(id);
}

Result<CmAddress> CmChannel::local(CmId id) const {
  return impl_->address(id, &cm::Conversation::local);
}

Result<CmAddress> CmChannel::remote(CmId id) const {
  return impl_->address(id, &cm::Conversation::remote);
}

Status CmChannel::migrate(CmId id, CmChannel& to) {
  const std::lock_guard lock(impl_->cm.mutex);
  const auto found = impl_->cm.holders.find(raw(id));
  if (found == impl_->cm.holders.end())
    return Error{Errc::kInvalid, "no such connection id, or it is closed"};
  Impl& from = *found->second.channel;
  if (&from == to.impl_.get()) return {};
  for (auto event = from.events.begin(); event != from.events.end();) {
    const bool is_request = event->listener == id && Cm::Impl::is_of_request(event->type);
    if (!is_request && event->id != id) {
      ++event;
      continue;
    }
    to.impl_->push(CmEvent(*event));  // which may throw: what has not moved stays
    if (is_request) impl_->cm.holders[raw(event->id)].channel = to.impl_.get();
    event = from.events.erase(event);
    from.after_taking();
  }
  found->second.channel = to.impl_.get();
  return {};
}

void CmChannel::drop(CmId id) {
  impl_->cm.call([&](cm::Agent& agent, Ticks now) {
    agent.drop(id, now);
    impl_->cm.close(id);
    return true;
  });
}

void CmChannel::close(CmId id) {
  impl_->cm.call([&](cm::Agent&, Ticks) {
    impl_->cm.close(id);
    return true;
  });
}

}  // namespace uroce
