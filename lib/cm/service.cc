#include "cm/service.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/bounded_time.h"
#include "base/eventfd.h"
#include "base/no_signals.h"
#include "verbs/counters_file.h"
#include "verbs/gsi.h"

namespace uroce {

namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t kBusyTickNs = 1'000'000;    // Mode::kApp: how long the loops stand still at most
constexpr std::uint64_t kPolledTickNs = 8'000'000;  // likewise, after an application has polled all the time
constexpr std::uint64_t kIdleTickNs = 20'000'000;   // likewise without connections
constexpr std::uint64_t kResolveTickNs = 100'000;   // somebody's Ethernet address is waited for
constexpr std::uint64_t kSleepNs = 1'000'000'000;
constexpr int kTurnsInApp = 8;

std::uint64_t system_random() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

cm::AgentConfig agent_config(Device& device, const CmOptions& options, std::uint64_t guid,
                             std::uint64_t seed) {
  return {.ca_guid = guid,
          .seed = seed,
          .path_mtu = device.active_mtu(),
          .max_ids = options.max_ids,
          .times = {}};
}

/// Before they are agreed on: what the device offers, unless the application speaks for another vendor.
void offer(const Device& device, Qp& qp) {
  const Ece wanted = qp.query_ece();
  const bool may = wanted.vendor_id == 0 || wanted.vendor_id == ece::kVendor;
  const Ece offered = device.config().offer();
  if (offered.options == 0 || !may) return;
  const Status set =
      qp.set_ece({.vendor_id = offered.vendor_id, .options = wanted.options | offered.options});
  (void)set;  // one that is not in Reset or Init fails to connect
}

/// The options that the application wants of its QP and the peer has too.
/// @return kBadState: it is connected already.
Status agree(Qp& qp, const CmTerms& theirs) {
  const Ece wanted = qp.query_ece();
  const bool is_common = wanted.vendor_id == theirs.vendor_id;
  return qp.set_ece(
      {.vendor_id = wanted.vendor_id, .options = is_common ? wanted.options & theirs.options : 0});
}

}  // namespace

/// The GUID is on the wire: ids and PSNs come from other chance than it.
Cm::Impl::Impl(Device& its_device, const CmOptions& its_options)
    : device(its_device),
      options(its_options),
      guid(system_random()),
      agent(agent_config(its_device, its_options, guid, system_random()), *this) {}

Cm::Impl::~Impl() {
  if (thread_.joinable()) {
    linger();
    stopping_ = true;
    wake();
    thread_.join();
  }
  if (gsi != nullptr)
    append_counters(device.config().counters, "communication manager", [this] { return counters(); });
  if (failure_fd_ >= 0) {
    if (gsi != nullptr) watch_failures(device, -1);  // or another manager has this device, and watches
    ::close(failure_fd_);
  }
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

/// What was said last gets a moment to leave, which may take an Ethernet address, and peers that are being
/// told of an end one to answer: nobody repeats it to them later.
void Cm::Impl::linger() {
  constexpr auto kMost = std::chrono::milliseconds(300);
  const auto end = std::chrono::steady_clock::now() + kMost;
  while (std::chrono::steady_clock::now() < end) {
    {
      const std::lock_guard lock(mutex);
      if (!agent.is_releasing() && !gsi->is_waiting() && !gsi->is_sending()) return;
    }
    device.progress();
    std::this_thread::yield();
  }
}

Status Cm::Impl::start() {
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  failure_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0 || failure_fd_ < 0) {
    return Error{Errc::kSystem, std::string("eventfd: ") + std::strerror(errno)};
  }
  auto opened = cm::Gsi::open(device);
  if (!opened) return opened.error();
  gsi = std::move(*opened);
  if (gsi->cq().fd() < 0) return Error{Errc::kSystem, std::string("eventfd: ") + std::strerror(errno)};
  watch_failures(device, failure_fd_);
  const NoSignals signals;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return Error{Errc::kSystem, std::string("a thread for the communication manager: ") + error.what()};
  }
  return {};
}

void Cm::Impl::wake() noexcept {
  signal_eventfd(wake_fd_);
}

void Cm::Impl::run() {
  pthread_setname_np(pthread_self(), "uroce-cm");
  while (!stopping_) {
    try {
      if (!turn()) sleep();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // there may be some later
    }
  }
}

bool Cm::Impl::turn() {
  const std::lock_guard lock(mutex);
  const bool has_seen = may_look() && look();
  agent.on_time(now());
  take_failed();
  dispatch();
  return has_seen;
}

/// An application that polls runs the loops itself, and an event tells of what has come for the manager. To
/// take a loop from it, if only for a moment, makes it pay for each turn from then on (LoopToken). Measured:
/// `perf send_lat -R`, 64 B, mean 1.59 -> 1.46 us, 99.9 % below 52 -> 42 us.
bool Cm::Impl::may_look() noexcept {
  const Ticks lately{std::max(looked_.ns(), now().ns() - kBusyTickNs / 2)};  // its own look is no poll
  const bool is_polled = device.config().mode == Mode::kApp && !has_news_ && !gsi->is_waiting() &&
                         is_polled_since(device, lately);
  if (!is_polled) {
    tick_ns_ = kBusyTickNs;
  } else if (has_slept_out_) {
    tick_ns_ = std::min(2 * tick_ns_, kPolledTickNs);
  }
  return !is_polled;
}

/// @return whether there was something to take.
bool Cm::Impl::look() {
  has_news_ = true;  // if this throws
  gsi->cq().arm();
  const bool is_app = device.config().mode == Mode::kApp;
  std::size_t seen = 0;
  for (int i = 0; i < (is_app ? kTurnsInApp : 1); ++i) {
    if (is_app) device.progress();
    seen += gsi->poll([this](const AhAttr& from, auto mad) { agent.on_mad(from, mad, now()); });
  }
  has_news_ = seen > 0;
  looked_ = now();
  return has_news_;
}

void Cm::Impl::sleep() {
  std::uint64_t wait = kSleepNs;
  {
    const std::lock_guard lock(mutex);
    const std::uint64_t time = now().ns();
    const Ticks due = agent.deadline();
    if (due.is_set()) wait = std::min(wait, due.ns() > time ? due.ns() - time : 0);
    if (device.config().mode == Mode::kApp) wait = std::min(wait, holders.empty() ? kIdleTickNs : tick_ns_);
    if (gsi->is_waiting()) wait = std::min(wait, kResolveTickNs);
  }
  std::array<pollfd, 3> fds{{{.fd = gsi->cq().fd(), .events = POLLIN, .revents = 0},
                             {.fd = wake_fd_, .events = POLLIN, .revents = 0},
                             {.fd = failure_fd_, .events = POLLIN, .revents = 0}}};
  const timespec limit{.tv_sec = static_cast<time_t>(wait / 1'000'000'000),
                       .tv_nsec = static_cast<long>(wait % 1'000'000'000)};
  const int count = ppoll(fds.data(), fds.size(), &limit, nullptr);
  has_slept_out_ = count == 0;
  if (count <= 0) return;
  has_news_ = has_news_ || fds[0].revents != 0;
  if (fds[0].revents != 0) gsi->cq().clear_event();
  if (fds[1].revents != 0) drain_eventfd(wake_fd_);
  if (fds[2].revents != 0) drain_eventfd(failure_fd_);
}

void Cm::Impl::take_failed() {
  const auto all = [this] {
    std::vector<Qpn> qpns;
    qpns.reserve(by_qpn.size());
    for (const auto& [qpn, id] : by_qpn) qpns.push_back(Qpn{qpn});
    return qpns;
  };
  const bool has_missed = std::exchange(may_miss_failures_, true);  // it stays so if this throws
  take_failures(device, has_missed, all, [this](Qpn qpn) {
    const auto found = by_qpn.find(raw(qpn));
    if (found != by_qpn.end()) agent.on_failure(found->second, failure_of(device, qpn), now());
  });
  may_miss_failures_ = false;
}

bool Cm::Impl::is_own(const Gid& gid) const {
  return is_own_address(device, gid);
}

bool Cm::Impl::has_heard(CmId id) {
  const cm::Conversation* c = agent.find(id);
  return c != nullptr && uroce::has_heard(device, c->mine.qpn);
}

// What the agent tells.

void Cm::Impl::dispatch() {
  while (!fresh.empty()) {
    deliver(fresh.front());
    fresh.pop_front();
  }
}

/// One that there was no memory for is delivered again.
void Cm::Impl::deliver(CmEvent& event) {
  using enum CmEventType;
  if (is_of_request(event.type)) {
    const auto listener = holders.find(raw(event.listener));
    if (listener == holders.end()) {
      changes += holders.erase(raw(event.id));
      return agent.close(event.id, now());
    }
    holders[raw(event.id)] = {.channel = listener->second.channel, .is_unread = true};
    ++changes;
  }
  const auto found = holders.find(raw(event.id));
  if (found == holders.end()) return;
  Holder& holder = found->second;
  if (event.type == kConnectReply && holder.qp != nullptr && !connect_qp(event, holder)) return;
  if (event.type == kEstablished) on_established(event.id);
  const bool is_over = event.type == kDisconnected || event.type == kRejected || event.type == kUnreachable;
  if (is_over && holder.is_unread) return close(event.id);  // of what was not told there is no end either
  if (is_over) release(holder);
  holder.channel->push(std::move(event));
}

/// The reply has come: our QP is moved, and the peer told.
bool Cm::Impl::connect_qp(CmEvent& event, Holder& holder) {
  Status connected = Error{Errc::kBadState, "the QP was destroyed meanwhile"};
  holder.qp->use([&](Qp& qp) { connected = answer_reply(event, qp); });
  if (connected) {
    event.type = CmEventType::kEstablished;
    return true;
  }
  if (!agent.reject(event.id, {}, now())) return false;  // it has ended, in the same turn
  event.type = CmEventType::kRejected;
  event.reason = CmReject::kNone;
  event.text = connected.error().text;
  return true;
}

Status Cm::Impl::answer_reply(const CmEvent& reply, Qp& qp) {
  if (Status agreed = agree(qp, reply.peer); !agreed) return agreed;
  auto attr = agent.qp_attr(reply.id);
  if (!attr) return attr.error();
  if (Status connected = qp.connect(*attr); !connected) return connected;
  if (!agent.establish(reply.id)) return Error{Errc::kBadState, "the connection ended meanwhile"};
  return {};
}

void Cm::Impl::on_established(CmId id) {
  const cm::Conversation* c = agent.find(id);
  if (c == nullptr) return;
  holders[raw(id)].qpn = c->mine.qpn;
  by_qpn[raw(c->mine.qpn)] = id;
  if (options.keepalive.count() > 0 && (c->is_uroce || options.keepalive_all)) {
    keep_alive(device, c->mine.qpn, bounded(options.keepalive));
  }
  // It may have failed before anybody asked to hear of it.
  if (std::string why = failure_of(device, c->mine.qpn); !why.empty())
    agent.on_failure(id, std::move(why), now());
}

void Cm::Impl::release(Holder& holder) {
  if (holder.qpn != Qpn{}) {
    by_qpn.erase(raw(holder.qpn));
    keep_alive(device, holder.qpn, nanoseconds(0));
  }
  if (holder.qp != nullptr) {
    holder.qp->use([](Qp& qp) {
      if (qp.query().state == QpState::kReset) return;
      (void)qp.modify({.state = QpState::kError}, qp_attr::kState);
    });
  }
  holder.qp = nullptr;
  holder.qpn = Qpn{};
}

// What the application asks for, with the mutex held.

Status Cm::Impl::connect(CmId id, const CmConnect& ask, Qp* qp) {
  auto path = route_to(device, ask.to.ip, ask.from.ip);
  if (!path) return path.error();
  path->traffic_class = ask.traffic_class;
  CmConnect with_qp = ask;
  const auto whereabouts = qp == nullptr ? nullptr : whereabouts_of(*qp);
  if (qp != nullptr) {
    with_qp.terms.qpn = qp->qpn();
    with_qp.terms.type = qp->attr().type;
    offer(device, *qp);
    const Ece wanted = qp->query_ece();
    with_qp.terms.vendor_id = wanted.vendor_id;
    with_qp.terms.options = wanted.options;
  }
  const Gid source = device.gids()[path->sgid_index].gid;
  if (Status asked = agent.connect(id, with_qp, *path, source, now()); !asked) return asked;
  holders[raw(id)].qp = whereabouts;
  return {};
}

Status Cm::Impl::accept(CmId id, const CmAccept& answer, Qp* qp) {
  if (Status may = agent.may_accept(id, answer); !may) return may;
  CmAccept with_qp = answer;
  const auto whereabouts = qp == nullptr ? nullptr : whereabouts_of(*qp);
  if (qp != nullptr) {
    with_qp.terms.qpn = qp->qpn();
    auto attr = agent.qp_attr(id);
    if (!attr) return attr.error();
    offer(device, *qp);
    if (Status agreed = agree(*qp, agent.find(id)->theirs); !agreed) return agreed;
    with_qp.terms.options = qp->query_ece().options;
    attr->max_rd_atomic = std::min(attr->max_rd_atomic, answer.terms.initiator_depth);
    attr->max_dest_rd_atomic = answer.terms.responder_resources;
    if (Status connected = qp->connect(*attr); !connected) return connected;
  }
  if (Status accepted = agent.accept(id, with_qp, now()); !accepted) return accepted;
  holders[raw(id)].qp = whereabouts;
  return {};
}

void Cm::Impl::close(CmId id) {
  const auto found = holders.find(raw(id));
  if (found == holders.end()) return;
  Holder holder = std::move(found->second);
  holders.erase(found);
  ++changes;
  CmChannel::Impl& channel = *holder.channel;
  holder.qp = nullptr;
  release(holder);
  for (auto event = channel.events.begin(); event != channel.events.end();) {
    const bool is_request = event->listener == id && is_of_request(event->type);  // that nobody has read
    if (is_request) {
      changes += holders.erase(raw(event->id));
      agent.close(event->id, now());
    }
    event = is_request || event->id == id ? channel.events.erase(event) : std::next(event);
  }
  channel.after_taking();
  agent.close(id, now());
}

void Cm::Impl::abandon(CmId id) {
  const auto found = holders.find(raw(id));
  if (found != holders.end() && agent.may_disconnect(id)) release(found->second);
  close(id);
}

void Cm::Impl::close_all(CmChannel::Impl& channel) noexcept {
  for (auto next = holders.begin(); next != holders.end();) {
    const auto found = next++;
    if (found->second.channel != &channel) continue;
    const std::uint64_t then = changes + 1;
    close_quietly(CmId{found->first});
    if (changes != then) next = holders.begin();  // requests that waited at it are gone, too
  }
}

void Cm::Impl::close_quietly(CmId id) noexcept {
  try {
    close(id);
    dispatch();
  } catch (const std::bad_alloc&) {
    return;
  }
}

// Cm

CmOptions cm_options(const Config& config) {
  return {.keepalive = std::chrono::milliseconds(config.keepalive_ms), .keepalive_all = config.keepalive_all};
}

Cm::Cm(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Cm::Cm(Cm&&) noexcept = default;
Cm& Cm::operator=(Cm&&) noexcept = default;
Cm::~Cm() = default;

Result<Cm> Cm::open(Device& device, const CmOptions& options) {
  auto impl = std::make_unique<Impl>(device, options);
  if (Status started = impl->start(); !started) {
    if (started.error().code == Errc::kBusy) {
      return Error{Errc::kBusy, "this device has a communication manager already"};
    }
    return started.error();
  }
  return Cm(std::move(impl));
}

Device& Cm::device() const noexcept {
  return impl_->device;
}
std::uint64_t Cm::ca_guid() const noexcept {
  return impl_->guid;
}

std::vector<Counter> Cm::counters() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->counters();
}

std::vector<Counter> Cm::Impl::counters() const {
  const cm::AgentCounters& c = agent.counters();
  return {{"cm_received", c.received},     {"cm_malformed", c.malformed}, {"cm_unexpected", c.unexpected},
          {"cm_duplicates", c.duplicates}, {"cm_rejected", c.rejected},   {"cm_sent", c.sent},
          {"cm_repeated", c.repeated},     {"cm_dropped", gsi->dropped()}};
}

std::size_t Cm::ids() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->agent.size();
}

Result<AhAttr> Cm::route(const Gid& to, const Gid& from) const {
  return route_to(impl_->device, to, from);
}

Result<AhAttr> Cm::resolve(const Gid& to, const Gid& from, std::chrono::milliseconds timeout) {
  auto path = route(to, from);
  if (!path) return path.error();
  auto pd = Pd::create(impl_->device);
  if (!pd) return pd.error();
  auto ah = Ah::create(*pd, *path);
  if (!ah) return ah.error();
  const auto end = std::chrono::steady_clock::now() + bounded(timeout);
  while (!is_resolved(impl_->device, *ah)) {
    if (std::chrono::steady_clock::now() >= end) {
      return Error{Errc::kTimeout,
                   "nobody answers for " + to_string(to) + ": is it on this link, or the gateway?"};
    }
    impl_->device.progress();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return path;
}

}  // namespace uroce
