/// Memory windows: a part of a memory region under a key of its own. IBA 10.6.7.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mem/key_fault.h"
#include "uroce/wr.h"

namespace uroce::mem {

/// How many windows are bound to one region, and whether more may be.
///
/// Threads: loops bind and unbind, control threads close. Lifetime: outlives the windows that it counts.
class WindowCount {
 public:
  /// @return false if the region is closed to windows.
  bool add() noexcept {
    std::uint32_t count = count_.load(std::memory_order_relaxed);
    while ((count & kClosed) == 0) {
      if (count_.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  void drop() noexcept { count_.fetch_sub(1, std::memory_order_acq_rel); }
  /// Lets no further window be bound. @return false, and nothing has changed, if some are.
  bool close_if_none() noexcept {
    std::uint32_t count = count_.load(std::memory_order_relaxed);
    while ((count & ~kClosed) == 0) {
      if (count_.compare_exchange_weak(count, kClosed, std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  /// Likewise; windows that are bound give access to nothing any more.
  void close() noexcept { count_.fetch_or(kClosed, std::memory_order_acq_rel); }
  void reopen() noexcept { count_.fetch_and(~kClosed, std::memory_order_acq_rel); }
  [[nodiscard]] bool is_closed() const noexcept {
    return (count_.load(std::memory_order_acquire) & kClosed) != 0;
  }
  [[nodiscard]] bool has_windows() const noexcept {
    return (count_.load(std::memory_order_acquire) & ~kClosed) != 0;
  }

 private:
  static constexpr std::uint32_t kClosed = 1U << 31;
  std::atomic<std::uint32_t> count_{0};
};

/// Who uses a key.
struct KeyUser {
  std::uint32_t pd = 0;
  Qpn qpn{};
};

/// Where a window is bound to.
struct WindowPlace {
  std::uint64_t memory = 0;      ///< address of its first byte
  WindowCount* count = nullptr;  ///< of the region, which has counted it already; null: bound to nothing
};

/// What became of a bind.
enum class BindResult : std::uint8_t {
  kDone,
  kRefused,
  kAgain,  ///< another thread binds the same window just now
};

/// One memory window: free, or bound to a part of a region under the key that the bind chose. Types 2A and 2B
/// belong to the QP that bound them until they are invalidated.
///
/// Threads: loops, several at a time: a reader that meets a change sees no binding at all.
class Window {
 public:
  Window(MwType type, std::uint32_t pd) noexcept : type_(type), pd_(pd) {}
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (WindowCount* count = region_.load()) count->drop();
  }

  [[nodiscard]] MwType type() const noexcept { return type_; }
  [[nodiscard]] std::uint32_t pd() const noexcept { return pd_; }

  /// The bytes [addr, addr + length) through `key`. @return nullptr with `fault` set, or the address.
  [[nodiscard]] std::byte* resolve(std::uint32_t key, const KeyUser& user, std::uint32_t access,
                                   std::uint64_t addr, std::uint64_t length, KeyFault& fault) const noexcept;
  /// How users name the first of the bytes that it is bound to, and how many those are; what they are good
  /// for resolve() says.
  [[nodiscard]] std::uint64_t first() const noexcept { return addr_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t length() const noexcept { return length_.load(std::memory_order_acquire); }

  /// Binds under a new key. Length 0 leaves a type 1 window bound to nothing.
  BindResult bind(std::uint32_t key, const KeyUser& user, const MwBind& to, const WindowPlace& at) noexcept;
  /// Types 2A and 2B, by the QP that bound it. @return whether it is bound under `key` to that QP.
  bool invalidate(std::uint32_t key, const KeyUser& user) noexcept;
  [[nodiscard]] bool may_invalidate(std::uint32_t key, const KeyUser& user) const noexcept;
  /// The QP is gone, and with it the binding if it was its own.
  void release(Qpn qpn) noexcept;

 private:
  [[nodiscard]] KeyFault judge(std::uint32_t key, const KeyUser& user, std::uint32_t access,
                               std::uint64_t addr, std::uint64_t length) const noexcept;
  [[nodiscard]] bool belongs_to(const KeyUser& user) const noexcept;
  /// Begins a change of what was seen at `version`. @return false if that is no longer so.
  [[nodiscard]] bool lock(std::uint32_t version) noexcept;
  void unlock() noexcept { version_.fetch_add(1, std::memory_order_release); }
  void unbind() noexcept;

  const MwType type_;
  const std::uint32_t pd_;
  std::atomic<std::uint32_t> version_{0};  // odd while somebody changes what follows
  std::atomic<std::uint32_t> key_{0};      // 0: bound to nothing
  std::atomic<std::uint32_t> qpn_{0};
  std::atomic<std::uint32_t> access_{0};
  std::atomic<std::uint64_t> addr_{0};  // as users name it
  std::atomic<std::uint64_t> length_{0};
  std::atomic<std::uint64_t> shift_{0};  // from an address to its byte
  std::atomic<WindowCount*> region_{nullptr};
};

}  // namespace uroce::mem
