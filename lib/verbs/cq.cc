#include "uroce/cq.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/asymmetric_barrier.h"
#include "verbs/cq_impl.h"
#include "verbs/device_impl.h"

namespace uroce {

Cq::Impl::Impl(engine::LoopRunner& loop_runner, unsigned loop_index, std::uint32_t entries, int event_fd)
    : runner(loop_runner), loop(loop_index), fd(event_fd), ring(entries, event_fd) {}

Cq::Impl::~Impl() {
  close(fd);
}

std::size_t Cq::Impl::take(std::span<Wc> out) noexcept {
  std::uint32_t first = ring.head();
  std::size_t count = ring.poll(out);
  if (count == 0 || !has_purges_.load(std::memory_order_acquire)) return count;
  // Fewer than wanted means that the CQ is empty, also where completions of QPs that are gone were in it.
  std::size_t kept = 0;
  while (count != 0) {
    kept += filter(out.subspan(kept, count), first);
    first = ring.head();
    count = ring.poll(out.subspan(kept));
  }
  return kept;
}

std::size_t Cq::Impl::filter(std::span<Wc> taken, std::uint32_t first) noexcept {
  const std::lock_guard lock(purge_mutex_);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto index = first + static_cast<std::uint32_t>(i);
    const bool gone = std::any_of(purges_.begin(), purges_.end(), [&](const Purge& purge) {
      return purge.qpn == taken[i].qpn && static_cast<std::int32_t>(purge.until - index) > 0;
    });
    if (!gone) taken[kept++] = taken[i];
  }
  const auto head = first + static_cast<std::uint32_t>(taken.size());
  std::erase_if(purges_,
                [&](const Purge& purge) { return static_cast<std::int32_t>(purge.until - head) <= 0; });
  has_purges_.store(!purges_.empty(), std::memory_order_relaxed);
  return kept;
}

void Cq::Impl::purge(Qpn qpn) {
  const std::lock_guard lock(purge_mutex_);
  if (ring.tail() == ring.head()) return;
  purges_.push_back({qpn, ring.tail()});
  has_purges_.store(true, std::memory_order_release);  // pairs with take()
}

Cq::Cq(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Cq::Cq(Cq&&) noexcept = default;
Cq& Cq::operator=(Cq&&) noexcept = default;
Cq::~Cq() = default;

Result<Cq> Cq::create(Device& device, std::uint32_t entries, unsigned loop) {
  Device::Impl& impl = device.impl();
  if (entries == 0 || entries > impl.limits.max_cqe) {
    return Error{Errc::kInvalid, "a CQ has 1 to " + std::to_string(impl.limits.max_cqe) + " entries"};
  }
  if (loop >= impl.runners.size()) {
    return Error{Errc::kInvalid,
                 "the device has " + std::to_string(impl.runners.size()) + " loops (--lcores)"};
  }
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return Error{Errc::kSystem, std::string("eventfd: ") + std::strerror(errno)};
  try {
    return Cq(std::make_unique<Impl>(*impl.runners[loop], loop, entries, fd));
  } catch (const std::bad_alloc&) {
    close(fd);
    return Error{Errc::kNoMemory, "no memory for a CQ of " + std::to_string(entries) + " entries"};
  }
}

std::size_t Cq::poll(std::span<Wc> out) noexcept {
  std::size_t count = impl_->take(out);
  if (count != 0) return count;
  impl_->runner.run_from_application();
  return impl_->take(out);
}

void Cq::arm(bool solicited_only) noexcept {
  impl_->ring.arm(solicited_only);
  if (impl_->runner.mode() != Mode::kApp) heavy_barrier();  // pairs with CqRing::push()
}
int Cq::fd() const noexcept {
  return impl_->fd;
}

void Cq::clear_event() noexcept {
  std::uint64_t count = 0;
  if (read(impl_->fd, &count, sizeof count) < 0) return;  // there was none
}

bool Cq::wait(std::chrono::nanoseconds timeout) {
  // A year is for ever, and can be added to the clock.
  const auto end = std::chrono::steady_clock::now() +
                   std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(24 * 365));
  if (impl_->runner.mode() == Mode::kApp) {
    while (impl_->ring.is_empty()) {
      impl_->runner.run_from_application();
      if (std::chrono::steady_clock::now() >= end) return !impl_->ring.is_empty();
    }
    return true;
  }
  while (impl_->ring.is_empty()) {
    arm();
    if (!impl_->ring.is_empty()) break;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wanted{.fd = impl_->fd, .events = POLLIN, .revents = 0};
    ::poll(&wanted, 1, static_cast<int>(std::min<std::int64_t>(left.count() + 1, 1000)));
    clear_event();
  }
  return true;
}

}  // namespace uroce
