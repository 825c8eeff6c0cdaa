#include "mem/window.h"

#include "uroce/access.h"

namespace uroce::mem {

// A change makes the version odd, changes, and makes it even again. Readers load what they need in between
// two looks at the version: each load is an acquire, so none is done after the second look.

std::byte* Window::resolve(std::uint32_t key, const KeyUser& user, std::uint32_t access, std::uint64_t addr,
                           std::uint64_t length, KeyFault& fault) const noexcept {
  const std::uint32_t before = version_.load(std::memory_order_acquire);  // pairs with unlock()
  fault = judge(key, user, access, addr, length);
  const std::uint64_t shift = shift_.load(std::memory_order_acquire);
  if ((before & 1) != 0 || version_.load(std::memory_order_relaxed) != before) fault = KeyFault::kUnknownKey;
  return fault == KeyFault::kNone ? reinterpret_cast<std::byte*>(addr + shift) : nullptr;
}

KeyFault Window::judge(std::uint32_t key, const KeyUser& user, std::uint32_t access, std::uint64_t addr,
                       std::uint64_t length) const noexcept {
  const WindowCount* region = region_.load(std::memory_order_acquire);
  if (key_.load(std::memory_order_acquire) != key || region == nullptr || region->is_closed()) {
    return KeyFault::kUnknownKey;
  }
  if (!belongs_to(user)) return KeyFault::kWrongPd;
  if ((access_.load(std::memory_order_acquire) & access) != access) return KeyFault::kNoRights;
  const std::uint64_t size = this->length();
  const bool fits = length <= size && addr - first() <= size - length;
  return fits ? KeyFault::kNone : KeyFault::kOutOfRange;
}

/// Type 1 belongs to a protection domain, 2A to a QP, 2B to both. IBA 10.6.7.2 ?
bool Window::belongs_to(const KeyUser& user) const noexcept {
  if (type_ != MwType::kType2A && pd_ != user.pd) return false;
  return type_ == MwType::kType1 || qpn_.load(std::memory_order_acquire) == raw(user.qpn);
}

bool Window::lock(std::uint32_t version) noexcept {
  return (version & 1) == 0 &&
         version_.compare_exchange_strong(version, version + 1, std::memory_order_acq_rel);
}

BindResult Window::bind(std::uint32_t key, const KeyUser& user, const MwBind& to,
                        const WindowPlace& at) noexcept {
  const std::uint32_t version = version_.load(std::memory_order_acquire);
  const std::uint32_t bound = key_.load(std::memory_order_acquire);
  const bool may = type_ == MwType::kType1 ? bound != key : bound == 0;
  if (!may) return BindResult::kRefused;
  if (!lock(version)) return BindResult::kAgain;
  WindowCount* before = region_.load(std::memory_order_relaxed);
  const bool is_zero_based = (to.access & access::kZeroBased) != 0;
  key_.store(at.count == nullptr ? 0 : key, std::memory_order_release);  // after the version, as all here
  qpn_.store(raw(user.qpn), std::memory_order_release);
  access_.store(to.access, std::memory_order_release);
  addr_.store(is_zero_based ? 0 : to.addr, std::memory_order_release);
  length_.store(to.length, std::memory_order_release);
  shift_.store(at.memory - (is_zero_based ? 0 : to.addr), std::memory_order_release);
  region_.store(at.count, std::memory_order_release);
  unlock();
  if (before != nullptr) before->drop();
  return BindResult::kDone;
}

void Window::unbind() noexcept {
  WindowCount* before = region_.load(std::memory_order_relaxed);
  key_.store(0, std::memory_order_release);
  qpn_.store(0, std::memory_order_release);
  length_.store(0, std::memory_order_release);
  region_.store(nullptr, std::memory_order_release);
  unlock();
  if (before != nullptr) before->drop();
}

bool Window::may_invalidate(std::uint32_t key, const KeyUser& user) const noexcept {
  return type_ != MwType::kType1 && key_.load(std::memory_order_acquire) == key && belongs_to(user);
}

/// What is bound is changed by its QP's thread only, and by nobody once the QP is gone.
bool Window::invalidate(std::uint32_t key, const KeyUser& user) noexcept {
  const std::uint32_t version = version_.load(std::memory_order_acquire);
  if (!may_invalidate(key, user) || !lock(version)) return false;
  unbind();
  return true;
}

void Window::release(Qpn qpn) noexcept {
  const std::uint32_t version = version_.load(std::memory_order_acquire);
  if (type_ == MwType::kType1 || qpn_.load(std::memory_order_acquire) != raw(qpn)) return;
  if (lock(version)) unbind();
}

}  // namespace uroce::mem
