// Completion queues and channels: creation and events.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "abi/ibverbs/completions.h"
#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/objects.h"
#include "abi/ibverbs/signals.h"

namespace uroce::abi {

namespace {

Channel& channel_of(ibv_comp_channel* channel) noexcept {
  return cast<Channel>(channel);
}

/// How many CQs a channel has: who sees that there are none left may free it.
std::atomic_ref<int> cqs_of(Channel& channel) noexcept {
  return std::atomic_ref<int>(channel.refcnt);
}

/// @return false with errno set
bool enter(Channel& channel, CompletionQueue& cq) noexcept {
  const std::lock_guard lock(channel.events);
  try {
    channel.cqs.insert(&cq);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM), false;
  }
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  wanted.data.ptr = &cq;
  const int fd = cq.cq->fd();  // only CQs with a channel cost one
  if (fd < 0 || epoll_ctl(channel.fd, EPOLL_CTL_ADD, fd, &wanted) != 0) {
    channel.cqs.erase(&cq);
    return false;
  }
  cqs_of(channel).fetch_add(1, std::memory_order_relaxed);
  return true;
}

/// Those who sleep on the channel may do so for the device, which may be closed once the last CQ is gone.
void wait_for_watchers(const Channel& channel) {
  constexpr int kMostLooks = 10'000;  // a signal handler may have left the sleep for good
  for (int i = 0; channel.watchers.load(std::memory_order_acquire) != 0 && i < kMostLooks; ++i) {
    Context::of(channel.context).device().disturb(0);
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // one that is about to sleep has missed it
  }
}

void leave(Channel& channel, CompletionQueue& cq) {
  bool is_last = false;
  {
    const std::lock_guard lock(channel.events);
    epoll_ctl(channel.fd, EPOLL_CTL_DEL, cq.cq->fd(), nullptr);
    channel.cqs.erase(&cq);
    is_last = channel.cqs.empty();
  }
  if (is_last) wait_for_watchers(channel);
  cqs_of(channel).fetch_sub(1, std::memory_order_release);  // pairs with ibv_destroy_comp_channel()
}

/// What a CQ is to be made with, whichever call asks.
struct Wanted {
  std::uint32_t entries = 0;
  void* cq_context = nullptr;
  ibv_comp_channel* channel = nullptr;
  unsigned comp_vector = 0;
  bool timestamps = false;
  bool is_shared = true;
};

CompletionQueue* make(ibv_context* context, const Wanted& wanted) {
  if (!is_here(*context)) return fail_null(EIO);
  if (wanted.channel != nullptr && !is_of(*context, wanted.channel)) return fail_null(EINVAL);
  if (wanted.comp_vector >= static_cast<unsigned>(context->num_comp_vectors)) return fail_null(EINVAL);
  return guarded([&]() -> CompletionQueue* {
    Device& device = Context::of(context).device();
    auto made = Cq::create(
        device,
        CqAttr{.entries = wanted.entries, .loop = wanted.comp_vector, .timestamps = wanted.timestamps});
    if (!made) return fail_null(to_errno(made.error().code));
    auto cq = std::make_unique<CompletionQueue>(wanted.is_shared);
    static_cast<ibv_cq_ex&>(*cq) = {};
    cq->context = context;
    cq->channel = wanted.channel;
    cq->cq_context = wanted.cq_context;
    cq->cqe = static_cast<int>(made->entries());
    cq->cq.emplace(std::move(*made));
    Engine::instance().add(*cq);
    init_events(*cq);
    if (wanted.channel != nullptr && !enter(channel_of(wanted.channel), *cq)) {
      const int error = errno;
      end_events(*cq);
      Engine::instance().remove(*cq);
      return fail_null(error);
    }
    return cq.release();
  });
}

std::uint64_t wallclock_offset(Device& device) noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count()) - device.now_ns();
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr std::uint64_t kTimestamps =
      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  constexpr std::uint64_t kKnown = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_CVLAN | kTimestamps;
  constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;  // what a CQ has no room for ends QPs
  if ((attr->wc_flags & ~kKnown) != 0) return fail_null(EOPNOTSUPP);
  if ((attr->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD}) != 0) {
    return fail_null(EOPNOTSUPP);
  }
  const std::uint32_t flags = has(*attr, IBV_CQ_INIT_ATTR_MASK_FLAGS) ? attr->flags : 0;
  const bool has_pd = has(*attr, IBV_CQ_INIT_ATTR_MASK_PD);
  if ((flags & ~kFlags) != 0) return fail_null(EOPNOTSUPP);
  if (has_pd && !is_of(*context, attr->parent_domain)) return fail_null(EINVAL);
  CompletionQueue* cq = make(context, {.entries = attr->cqe,
                                       .cq_context = attr->cq_context,
                                       .channel = attr->channel,
                                       .comp_vector = attr->comp_vector,
                                       .timestamps = (attr->wc_flags & kTimestamps) != 0,
                                       .is_shared = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) == 0 &&
                                                    (!has_pd || is_shared(attr->parent_domain))});
  if (cq == nullptr) return nullptr;
  cq->wallclock_offset = wallclock_offset(Context::of(context).device());
  set_extended_polling(*cq, attr->wc_flags);
  return cq;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  if (!is_here(*cq)) return EIO;
  if (attr->attr_mask != IBV_CQ_ATTR_MODERATE) return EINVAL;
  return answer(
      cq_of(cq).cq->moderate(attr->moderate.cq_count, std::chrono::microseconds(attr->moderate.cq_period)));
}

void leave_channel(CompletionQueue& cq) {
  if (cq.channel != nullptr) leave(channel_of(cq.channel), cq);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  cq_of(cq).cq->arm(solicited_only != 0,
                    cq->channel != nullptr && channel_of(cq->channel).will_be_slept_on());
  return 0;
}

namespace {

/// Counts the calling thread while it is there.
class Counted {
 public:
  explicit Counted(std::atomic<unsigned>& threads) noexcept : threads_(threads) { ++threads_; }
  ~Counted() { threads_.fetch_sub(1, std::memory_order_release); }  // pairs with leave()
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<unsigned>& threads_;
};

/// Whether who waits for an event of `channel` can look after the loop meanwhile. Under `channel.events`.
bool can_watch(const Channel& channel) noexcept {
  if (channel.cqs.empty()) return false;
  const Device& device = Context::of(channel.context).device();
  return device.loops() == 1 && device.config().mode == Mode::kAuto;
}

/// Waits for an event of `channel`, or a while. A point of cancellation. @return 0 or errno
int wait(Channel& channel) {
  std::unique_lock lock(channel.events);
  if (!can_watch(channel)) {
    lock.unlock();
    const Counted here(channel.sleepers);
    pollfd wanted{.fd = channel.fd, .events = POLLIN, .revents = 0};
    return poll(&wanted, 1, -1) < 0 ? errno : 0;
  }
  channel.found_at_once.store(0, std::memory_order_relaxed);
  if ((*channel.cqs.begin())->cq->linger(channel.fd)) return 0;
  Device& device = Context::of(channel.context).device();
  const Counted watching(channel.watchers);  // the device stays
  const Counted here(channel.sleepers);
  lock.unlock();
  return device.sleep(0, {&channel.fd, 1}, std::chrono::hours(1)) < 0 ? errno : 0;
}

/// Calls `f` with the object that an event concerns, how many of its events programs have taken, and how many
/// of those they have acknowledged.
template <typename F>
void with_object(const ibv_async_event& event, F&& f) {
  const auto& element = event.element;
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return f(*element.cq, cq_of(element.cq).async_events_taken, element.cq->async_events_completed);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return f(*element.qp, qp_of(element.qp).events_taken, element.qp->events_completed);
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return f(*element.srq, cast<SharedQueue>(element.srq).events_taken, element.srq->events_completed);
    default:
      break;
  }
}

}  // namespace

}  // namespace uroce::abi

using namespace uroce;
using namespace uroce::abi;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (!is_here(*context)) return fail_null(EIO);
  return guarded([context]() -> ibv_comp_channel* {
    auto channel = std::make_unique<Channel>();
    channel->context = context;
    channel->fd = epoll_create1(EPOLL_CLOEXEC);
    channel->refcnt = 0;
    if (channel->fd < 0) return fail_null(errno);
    return channel.release();
  });
}

int ibv_destroy_comp_channel(ibv_comp_channel* base) {
  if (!is_here(*base)) return 0;
  const NotCancelled here;
  Channel& channel = channel_of(base);
  if (cqs_of(channel).load(std::memory_order_acquire) != 0) return fail(EBUSY);
  close(channel.fd);
  delete &channel;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int comp_vector) {
  if (cqe < 1) return fail_null(EINVAL);
  CompletionQueue* cq = make(context, {.entries = static_cast<std::uint32_t>(cqe),
                                       .cq_context = cq_context,
                                       .channel = channel,
                                       .comp_vector = static_cast<unsigned>(comp_vector)});
  return cq == nullptr ? nullptr : cq->base();
}

int ibv_resize_cq(ibv_cq* base, int cqe) {
  if (!is_here(*base)) return fail(EIO);
  if (cqe < 1) return fail(EINVAL);
  CompletionQueue& cq = cq_of(base);
  const std::lock_guard lock(cq.polling);
  if (const Status status = cq.cq->resize(static_cast<std::uint32_t>(cqe)); !status) return answer(status);
  base->cqe = static_cast<int>(cq.cq->entries());
  return 0;
}

int ibv_destroy_cq(ibv_cq* base) {
  if (!is_here(*base)) return 0;
  CompletionQueue& cq = cq_of(base);
  if (cq.users != 0) return fail(EBUSY);
  const NotCancelled here;
  Engine::instance().remove(cq);
  leave_channel(cq);
  Context::of(base->context).events.purge(base);
  await_acks(cq, cq.comp_events_completed, cq.comp_events_taken);
  await_acks(cq, cq.async_events_completed, cq.async_events_taken);
  end_events(cq);
  delete &cq;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** cq, void** cq_context) {
  if (!is_here(*base)) return fail(EIO), -1;
  Channel& channel = channel_of(base);
  for (bool has_waited = false;; has_waited = true) {
    epoll_event event{};
    const int count = epoll_wait(channel.fd, &event, 1, 0);
    if (count < 0) return -1;
    if (count == 0) {
      if ((fcntl(channel.fd, F_GETFL) & O_NONBLOCK) != 0) {
        channel.found_at_once.store(Channel::kElsewhere, std::memory_order_relaxed);
        return fail(EAGAIN), -1;
      }
      const int error = wait(channel);  // goes on behind a stop: signal(7)
      if (error != 0 && !(error == EINTR && goes_on_after_signals())) return fail(error), -1;
      continue;
    }
    auto* found = static_cast<CompletionQueue*>(event.data.ptr);
    const std::lock_guard lock(channel.events);
    if (!channel.cqs.contains(found) || !found->cq->take_event()) continue;  // gone, or another thread's
    pthread_mutex_lock(&found->mutex);
    ++found->comp_events_taken;
    pthread_mutex_unlock(&found->mutex);
    *cq = found->base();
    *cq_context = found->cq_context;
    if (channel.is_slept_on() && !has_waited) channel.found_at_once.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
}

void ibv_ack_cq_events(ibv_cq* base, unsigned nevents) {
  if (!is_here(*base)) return;
  CompletionQueue& cq = cq_of(base);
  pthread_mutex_lock(&cq.mutex);
  cq.comp_events_completed += nevents;
  pthread_cond_signal(&cq.cond);
  pthread_mutex_unlock(&cq.mutex);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (!is_here(*context)) return fail(EIO), -1;
  const auto count = [](ibv_async_event& taken_event) {
    with_object(taken_event, [](auto& object, std::uint32_t& taken, std::uint32_t&) {
      pthread_mutex_lock(&object.mutex);
      ++taken;
      pthread_mutex_unlock(&object.mutex);
    });
  };
  return Context::of(context).events.take(*event, count) ? 0 : -1;
}

void ibv_ack_async_event(ibv_async_event* event) {
  with_object(*event, [](auto& object, std::uint32_t&, std::uint32_t& completed) {
    if (!is_here(object)) return;
    pthread_mutex_lock(&object.mutex);
    ++completed;
    pthread_cond_signal(&object.cond);
    pthread_mutex_unlock(&object.mutex);
  });
}

}  // extern "C"
