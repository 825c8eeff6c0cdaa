#include "abi/ibverbs/engine.h"

#include <endian.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "abi/ibverbs/completions.h"
#include "abi/ibverbs/context.h"
#include "abi/ibverbs/objects.h"
#include "abi/ibverbs/posting.h"
#include "base/eventfd.h"
#include "base/no_signals.h"

namespace uroce::abi {

namespace {

/// The process whose device a fork took away from this one; 0: none.
pid_t forked_from = 0;

/// shm:NAME,ring=1M becomes shm:NAME-of-7,ring=1M, unless there are more than two ends.
void rename_link(std::string& port) {
  const bool may_be_full =
      port.find(",ends=") == std::string::npos || (port + ',').find(",ends=2,") != std::string::npos;
  if (!port.starts_with("shm:") || !may_be_full) return;
  port.insert(std::min(port.find(','), port.size()), "-of-" + std::to_string(forked_from));
}

constexpr ibv_event_type to_verbs(AsyncEventType type) noexcept {
  return static_cast<ibv_event_type>(type);
}

/// @param element  the address of the object of that context
void tell(ibv_context* context, ibv_event_type type, void* element) {
  ibv_async_event event{};
  event.element.qp = static_cast<ibv_qp*>(element);  // whatever it is: they are one union
  event.event_type = type;
  Context::of(context).events.push(event);
}

const ibv_context* context_of(const QueuePair& qp) noexcept {
  return qp.qp_base.context;
}
const ibv_context* context_of(const SharedQueue& srq) noexcept {
  return srq.context;
}
const ibv_context* context_of(const CompletionQueue& cq) noexcept {
  return cq.context;
}

/// Those of a context, which are among the objects no more.
template <typename Object>
std::vector<Object*> take_out(std::unordered_map<std::uint32_t, Object*>& objects,
                              const ibv_context& context) {
  std::vector<Object*> taken;
  std::erase_if(objects, [&](const auto& one) {
    if (context_of(*one.second) != &context) return false;
    taken.push_back(one.second);
    return true;
  });
  return taken;
}

}  // namespace

Result<Config> read_config() {
  Config config;
  config.mode = Mode::kAuto;
  config.no_huge = true;
  config.keepalive_ms = 10'000;  // a busy program may be heard of late
  auto all = load_config(std::move(config));
  if (all && forked_from != 0) rename_link(all->port);
  return all;
}

__be64 guid_of(const Config& config) noexcept {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325;  // FNV-1a
  const auto add = [&hash](const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
    hash *= 0x100'0000'01b3;
  };
  add(config.port);
  for (const std::string& ip : config.ip) add(ip);
  constexpr std::uint64_t kLocallyAdministered = 0x0275'7200ULL << 32;  // and "ur"
  return htobe64(kLocallyAdministered | (hash & 0xff'ffff'ffff));
}

Engine& Engine::instance() {
  [[maybe_unused]] static const int once =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) + std::atexit(at_exit);
  return *current().load(std::memory_order_acquire);
}

std::atomic<Engine*>& Engine::current() {
  static std::atomic<Engine*> engine = new Engine;  // its threads may outlive static objects
  return engine;
}

void Engine::before_fork() {
  instance().mutex_.lock();
}
void Engine::after_fork_in_parent() {
  instance().mutex_.unlock();
}
/// The parent's device, with its threads, is not here: what is left of it is never touched again, nor is
/// one that another thread was opening or closing.
void Engine::after_fork_in_child() {
  Engine& parents = instance();
  const std::unique_lock nobody_opens(parents.opening_, std::try_to_lock);
  if (parents.has_users() || !nobody_opens.owns_lock()) {
    forked_from = getppid();
    for (Context* context : parents.contexts_) context->die();
    for (const auto& [number, qp] : parents.qps_) die(*qp);
    for (const auto& [number, cq] : parents.cqs_) die(*cq);
    current().store(new Engine, std::memory_order_release);
  }
  parents.mutex_.unlock();
}

/// The process ends with the device open: what it was sent is acknowledged, as an adapter would. A thread may
/// have been interrupted anywhere by a signal whose handler ends the process, so it is not waited for without
/// end.
void Engine::at_exit() {
  constexpr std::chrono::milliseconds kPatience{100};
  Engine& engine = instance();
  const std::unique_lock opening(engine.opening_, std::try_to_lock);
  if (!opening.owns_lock() || !engine.device_) return;
  engine.stop_events();
  (void)engine.settled_.try_acquire_for(kPatience);
  engine.device_->write_counters();
}

Result<Device*> Engine::enter(Context& context) {
  const std::lock_guard opening(opening_);
  if (Status opened = open(); !opened) return opened.error();
  const std::lock_guard lock(mutex_);
  contexts_.push_back(&context);
  return &*device_;
}

void Engine::leave(Context& context) {
  const std::lock_guard opening(opening_);
  bool is_last = false;
  // What the program has not destroyed: as in the kernel, nothing of it is left but its structs.
  std::vector<QueuePair*> qps;
  std::vector<SharedQueue*> srqs;
  std::vector<CompletionQueue*> cqs;
  {
    const std::lock_guard lock(mutex_);
    std::erase(contexts_, &context);
    qps = take_out(qps_, context.context);
    srqs = take_out(srqs_, context.context);
    cqs = take_out(cqs_, context.context);
    is_last = !has_users();
  }
  for (QueuePair* qp : qps) qp->qp.reset();
  for (SharedQueue* srq : srqs) srq->srq.reset();
  for (CompletionQueue* cq : cqs) {
    leave_channel(*cq);
    cq->cq.reset();
  }
  if (is_last) close();
}

Result<Cm*> Engine::enter_cm() {
  const std::lock_guard opening(opening_);
  if (Status opened = open(); !opened) return opened.error();
  auto cm = Cm::open(*device_);
  if (!cm) {
    if (!has_users()) close();
    return cm.error();
  }
  const std::lock_guard lock(mutex_);
  return &cm_.emplace(std::move(*cm));
}

void Engine::leave_cm() {
  const std::lock_guard opening(opening_);
  std::optional<Cm> ending;
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(cm_);
    is_last = !has_users();
  }
  ending.reset();  // takes as long as peers are told of it
  if (is_last) close();
}

Status Engine::open() {
  if (device_) return {};
  auto config = read_config();
  if (!config) return config.error();
  if (forked_from != 0 && !config->port.starts_with("shm:")) {
    return Error{Errc::kUnsupported,
                 "port " + config->port + " is open in the process that this was forked from"};
  }
  const NoSignals signals;
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (stop_fd_ < 0) return Error{Errc::kSystem, "no descriptor is left for another eventfd"};
  auto device = Device::open(*config);
  if (!device) {
    ::close(stop_fd_);
    return device.error();
  }
  device_.emplace(std::move(*device));
  unmapped_.emplace(*device_);
  try {
    events_ = std::thread([this] { run_events(); });
  } catch (const std::system_error& error) {
    unmapped_.reset();
    device_.reset();
    ::close(stop_fd_);
    return Error{Errc::kSystem, std::string("a thread for events of the device: ") + error.what()};
  }
  return {};
}

void Engine::stop_events() const {
  signal_eventfd(stop_fd_);
}

void Engine::close() {
  stop_events();
  events_.join();
  (void)settled_.try_acquire();
  named_domains_.by_file.clear();
  unmapped_.reset();
  device_.reset();
  ::close(stop_fd_);
}

void Engine::run_events() {
  pollfd fds[2] = {{.fd = device_->async_fd(), .events = POLLIN, .revents = 0},
                   {.fd = stop_fd_, .events = POLLIN, .revents = 0}};
  while (true) {
    const int ready = poll(fds, 2, -1);
    if (ready < 0 && errno != EINTR) break;  // setuid() and its like interrupt all threads
    if (ready > 0 && fds[1].revents != 0) break;
    AsyncEvent event;
    while (device_->next_async_event(event)) dispatch(event);
  }
  // Acknowledgements leave in the iteration after the one that told of messages.
  for (int i = 0; i < 2; ++i) {
    (void)device_->port_state();
    device_->progress();
  }
  settled_.release();
}

void Engine::tell_all(ibv_event_type type) {
  ibv_async_event event{};
  event.element.port_num = 1;
  event.event_type = type;
  for (Context* context : contexts_) context->events.push(event);
}

void Engine::dispatch(const AsyncEvent& event) {
  const std::lock_guard lock(mutex_);
  switch (event.type) {
    case AsyncEventType::kPortActive:
    case AsyncEventType::kPortErr:
      if (device_->ends() == 0) tell_all(to_verbs(event.type));  // as query_port() sees it
      return;
    case AsyncEventType::kDeviceFatal:
    case AsyncEventType::kGidChange:
      tell_all(to_verbs(event.type));
      return;
    case AsyncEventType::kSrqLimitReached:
      if (const auto it = srqs_.find(event.srq); it != srqs_.end())
        tell(it->second->context, to_verbs(event.type), static_cast<ibv_srq*>(it->second));
      return;
    case AsyncEventType::kCqErr:
      if (const auto it = cqs_.find(event.cq); it != cqs_.end())
        tell(it->second->context, to_verbs(event.type), it->second->base());
      return;
    default:
      if (const auto it = qps_.find(raw(event.qpn)); it != qps_.end())
        tell(it->second->qp_base.context, to_verbs(event.type), &it->second->qp_base);
  }
}

void Engine::add(QueuePair& qp) {
  const std::lock_guard lock(mutex_);
  qps_[qp.qp_base.qp_num] = &qp;
}
void Engine::remove(QueuePair& qp) {
  const std::lock_guard lock(mutex_);
  qps_.erase(qp.qp_base.qp_num);
}
void Engine::add(SharedQueue& srq) {
  const std::lock_guard lock(mutex_);
  srqs_[srq.srq->number()] = &srq;
}
void Engine::remove(SharedQueue& srq) {
  const std::lock_guard lock(mutex_);
  srqs_.erase(srq.srq->number());
}
void Engine::add(CompletionQueue& cq) {
  const std::lock_guard lock(mutex_);
  cqs_[cq.cq->number()] = &cq;
}
void Engine::remove(CompletionQueue& cq) {
  const std::lock_guard lock(mutex_);
  cqs_.erase(cq.cq->number());
}

}  // namespace uroce::abi
