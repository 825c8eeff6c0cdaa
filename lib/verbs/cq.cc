#include "uroce/cq.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/asymmetric_barrier.h"
#include "base/bounded_time.h"
#include "base/eventfd.h"
#include "base/give_way.h"
#include "verbs/cq_impl.h"
#include "verbs/device_impl.h"

namespace uroce {

Cq::Impl::Impl(Device::Impl& device_impl, const CqAttr& attr)
    : device(device_impl),
      runner(*device_impl.runners[attr.loop]),
      loop(attr.loop),
      ring(attr.entries, -1, &runner.loop().now(), attr.timestamps) {
  const std::lock_guard lock(device.control);
  ring.set_number(device.next_cq++);
}

Cq::Impl::~Impl() {
  runner.execute([this](engine::PollLoop& owner, Ticks) { owner.forget(ring); });
  if (known_fd() >= 0) close(known_fd());
}

int Cq::Impl::event_fd() noexcept {
  if (known_fd() >= 0) return known_fd();
  const std::lock_guard lock(fd_mutex_);
  if (known_fd() >= 0) return known_fd();
  const int made = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (made < 0) return made;
  bool has_event = false;
  runner.execute([&](engine::PollLoop&, Ticks) { has_event = ring.set_event_fd(made); });
  if (has_event) signal_eventfd(made);
  fd_.store(made, std::memory_order_release);  // pairs with known_fd()
  return made;
}

std::string describe_overflow(const transport::CqSize& cq) {
  std::string text = "completion queue of " + std::to_string(cq.entries) + " entries overflowed: ";
  if (cq.demand <= cq.entries) return text + "poll it more often, or create it larger";
  return text + "its QPs can fill " + std::to_string(cq.demand) + ": create it with so many";
}

namespace {

/// Of a thread that runs its loop while it waits, on the only core that it may run on: its peer may have the
/// same. Where it may move, giving way to whoever else is there costs more than it gains.
thread_local constinit GiveWay give_way{{.only_one_core = true}};

Status check_entries(std::uint32_t entries, const Limits& limits) {
  if (entries > 0 && entries <= limits.max_cqe) return {};
  return Error{Errc::kInvalid, "a CQ has 1 to " + std::to_string(limits.max_cqe) + " entries"};
}

Error no_memory(std::uint32_t entries) {
  return Error{Errc::kNoMemory, "no memory for a CQ of " + std::to_string(entries) + " entries"};
}

}  // namespace

[[gnu::noinline]] std::size_t Cq::Impl::take_others(std::span<Wc> out) noexcept {
  is_taking_.store(false, std::memory_order_release);  // pairs with purge()
  const std::lock_guard lock(purge_mutex_);
  // Fewer than wanted means that the CQ is empty, also where completions of QPs that are gone were in it.
  std::size_t kept = 0;
  std::uint32_t first = ring.head();
  while (const std::size_t count = ring.poll(out.subspan(kept))) {
    kept += filter(out.subspan(kept, count), first);
    first = ring.head();
  }
  return kept;
}

[[gnu::noinline]] std::size_t Cq::Impl::take_late(std::span<Wc> out) noexcept {
  std::size_t count = 0;
  while (count < out.size() && ring.shows_late()) {
    runner.execute([](engine::PollLoop& owner, Ticks) { owner.take_late(); });
    const std::size_t more = take(out.subspan(count));
    if (more == 0) break;
    count += more;
  }
  return count;
}

bool Cq::Impl::is_gone(Qpn qpn, std::uint32_t index) const noexcept {
  return std::any_of(purges_.begin(), purges_.end(), [&](const Purge& purge) {
    return purge.qpn == qpn && static_cast<std::int32_t>(purge.until - index) > 0;
  });
}

std::size_t Cq::Impl::filter(std::span<Wc> taken, std::uint32_t first) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (!is_gone(taken[i].qpn, first + static_cast<std::uint32_t>(i))) taken[kept++] = taken[i];
  }
  const auto head = first + static_cast<std::uint32_t>(taken.size());
  std::erase_if(purges_,
                [&](const Purge& purge) { return static_cast<std::int32_t>(purge.until - head) <= 0; });
  has_purges_.store(!purges_.empty(), std::memory_order_release);  // pairs with take_some()
  return kept;
}

void Cq::Impl::add_qp() {
  const std::lock_guard lock(purge_mutex_);
  const std::size_t most = purges_.size() + qps_ + 1;
  if (most > purges_.capacity()) purges_.reserve(2 * most);
  ++qps_;
}

void Cq::Impl::remove_qp() noexcept {
  const std::lock_guard lock(purge_mutex_);
  --qps_;
}

void Cq::Impl::purge(Qpn qpn) noexcept {
  const std::lock_guard lock(purge_mutex_);
  if (ring.tail() == ring.head()) return;
  const auto known = std::ranges::find(purges_, qpn, &Purge::qpn);
  if (known != purges_.end()) {
    known->until = ring.tail();
  } else {
    purges_.push_back({qpn, ring.tail()});  // there is room
  }
  has_purges_.store(true, std::memory_order_release);  // pairs with take_some()
  heavy_barrier();
  // Whoever takes is through in no time, unless he has lost his core.
  for (int looks = 0; is_taking_.load(std::memory_order_acquire); ++looks) {
    if (looks == 1000) return;
  }
  ring.remove_if([this](Qpn of, std::uint32_t index) { return is_gone(of, index); });
  purges_.clear();
  has_purges_.store(false, std::memory_order_release);  // pairs with take_some()
}

Cq::Cq(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Cq::Cq(Cq&&) noexcept = default;
Cq& Cq::operator=(Cq&&) noexcept = default;
Cq::~Cq() = default;

Result<Cq> Cq::create(Device& device, const CqAttr& attr) {
  Device::Impl& impl = device.impl();
  if (Status fits = check_entries(attr.entries, impl.limits); !fits) return fits.error();
  if (attr.loop >= impl.runners.size()) {
    return Error{Errc::kInvalid,
                 "the device has " + std::to_string(impl.runners.size()) + " loops (--lcores)"};
  }
  try {
    return Cq(std::make_unique<Impl>(impl, attr));
  } catch (const std::bad_alloc&) {
    return no_memory(attr.entries);
  }
}

std::uint32_t Cq::number() const noexcept {
  return impl_->ring.size().number;
}
std::uint32_t Cq::entries() const noexcept {
  return impl_->ring.entries();
}

Status Cq::resize(std::uint32_t entries) {
  if (Status fits = check_entries(entries, impl_->device.limits); !fits) return fits;
  bool is_enough = false;
  try {
    impl_->runner.execute([&](engine::PollLoop&, Ticks) { is_enough = impl_->ring.resize(entries); });
  } catch (const std::bad_alloc&) {
    return no_memory(entries);
  }
  if (is_enough) return {};
  return Error{Errc::kInvalid,
               "the CQ holds more than " + std::to_string(entries) + " completions: poll them first"};
}

Status Cq::moderate(std::uint16_t count, std::chrono::microseconds period) {
  if (period.count() < 0) return Error{Errc::kInvalid, "a period is not negative"};
  if (period > std::chrono::hours(1)) return Error{Errc::kInvalid, "a period is an hour at most"};
  const auto period_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(period).count());
  try {
    impl_->runner.execute(
        [&](engine::PollLoop& loop, Ticks) { loop.moderate(impl_->ring, count, period_ns); });
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory to moderate one more CQ"};
  }
  return {};
}

std::size_t Cq::poll(std::span<Wc> out) noexcept {
  std::size_t count = impl_->take(out);
  if (count == 0) {
    static_cast<void>(impl_->runner.run_from_application());
    count = impl_->take(out);
  }
  if (count < out.size() && impl_->ring.shows_late()) [[unlikely]]
    count += impl_->take_late(out.subspan(count));
  return count;
}

void Cq::arm(bool solicited_only, bool lingers) noexcept {
  impl_->ring.arm(solicited_only);
  if (!lingers) impl_->runner.expect_sleeper();
}

bool Cq::linger(int fd) noexcept {
  if (impl_->runner.mode() != Mode::kAuto) return false;
  constexpr std::uint64_t kLookNs = 1'000;
  constexpr std::uint64_t kMostNs = 1'000'000;
  const engine::Clock& clock = impl_->device.clock;
  const Ticks begin = clock.now();
  const std::uint64_t longest = impl_->patience.ns();
  bool has_come = false;
  bool was_idle = false;
  std::uint64_t gap_ns = 0;
  Ticks now = begin;
  Ticks looked = begin;
  Ticks quiet_since = begin;
  do {
    const bool found = impl_->runner.run_from_application().value_or(0) != 0;
    now = clock.now();
    if (now >= looked + kLookNs) {
      sched_yield();  // who is to bring the event may have but this core, too
      has_come = is_readable(fd);
      looked = now = clock.now();
    }
    if ((found || has_come) && was_idle) gap_ns = std::max(gap_ns, now.ns() - quiet_since.ns());
    if (found) quiet_since = now;
    was_idle = !found;
  } while (!has_come && now < quiet_since + longest && now < begin + kMostNs);
  if (gap_ns != 0 && gap_ns < longest) {
    impl_->patience.pays(gap_ns);
  } else if (was_idle) {
    impl_->patience.fails();  // also if a yield has taken too long
  }
  if (!was_idle) static_cast<void>(impl_->runner.run_from_application());  // it answers what has come
  return has_come || is_readable(fd);
}

int Cq::fd() const noexcept {
  return impl_->event_fd();
}

bool Cq::clear_event() noexcept {
  return drain_eventfd(impl_->known_fd()) != 0;
}

bool Cq::take_event() noexcept {
  const int fd = impl_->known_fd();
  const std::uint64_t count = drain_eventfd(fd);
  return count == 1 || (count > 1 && signal_eventfd(fd, count - 1));
}

bool Cq::wait(std::chrono::nanoseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + bounded(timeout);
  if (impl_->runner.mode() == Mode::kApp) {
    while (impl_->ring.is_empty()) {
      const unsigned work = impl_->runner.run_from_application().value_or(0);
      if (std::chrono::steady_clock::now() >= end) return !impl_->ring.is_empty();
      give_way.after(work);
    }
    return true;
  }
  if (!impl_->ring.is_empty()) return true;
  // Without a descriptor it looks by itself, every millisecond.
  const int fd = impl_->event_fd();
  const std::chrono::nanoseconds longest = std::chrono::milliseconds(fd < 0 ? 1 : 1000);
  while (impl_->ring.is_empty()) {
    arm(false, true);
    if (!impl_->ring.is_empty()) break;
    const std::chrono::nanoseconds left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    if (!linger(fd)) static_cast<void>(impl_->runner.sleep({&fd, 1}, std::min(left, longest)));
    clear_event();
  }
  return true;
}

}  // namespace uroce
