/// Registered regions by key: the one place where memory access is judged.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/prefetch.h"
#include "base/random.h"
#include "mem/window.h"
#include "uroce/access.h"
#include "uroce/result.h"

namespace uroce::mem {

/// What a key stands for.
struct Region {
  std::uint64_t addr = 0;    ///< first byte, as work requests and peers name it; zero-based: where it is
  std::uint64_t length = 0;  ///< bytes
  std::uint32_t pd = 0;      ///< protection domain number
  std::uint32_t access = 0;  ///< access flags
  std::uint64_t shift = 0;   ///< from `addr` to where the byte is, modulo 2^64

  /// How its users name the first byte.
  [[nodiscard]] std::uint64_t first() const noexcept { return (access & access::kZeroBased) != 0 ? 0 : addr; }
  /// Whether it has the bytes [at, at + bytes), `at` counted from the first one.
  [[nodiscard]] bool has(std::uint64_t at, std::uint64_t bytes) const noexcept {
    return bytes <= length && at <= length - bytes;
  }
};

/// Sparse table of unguessable 32-bit keys: regions, and windows into them. A window has 256 keys, which
/// differ in the low 8 bits; whoever binds it chooses one of them.
///
/// Threads: resolve*(), invalidate() and bind() by the loops; the rest by control threads.
/// After remove() returns no loop uses the region: `quiesce` (given at construction) returns once every loop
/// has passed an iteration boundary.
class KeyTable {
 public:
  KeyTable(std::uint64_t seed, std::function<void()> quiesce);
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  /// Enters a region under a new random key, never 0, and none that was removed less than 65536 allocations
  /// ago.
  /// @return the key; kNoMemory.
  Result<std::uint32_t> insert(const Region& region);
  /// Removes a region. Unknown keys are ignored. Windows that are bound to it give access to nothing any
  /// more.
  void remove(std::uint32_t key);
  /// Likewise, unless windows are bound to it. @return kBusy if some are; nothing has changed then.
  Status remove_unbound(std::uint32_t key);
  /// Puts another region under the same key. An access meanwhile is judged by the one or by the other, and by
  /// the new one once this has returned. A key that was invalidated is valid again.
  /// @return kBusy if windows are bound to it, kNoMemory; nothing has changed then.
  Status replace(std::uint32_t key, const Region& region);

  /// Enters a window that is bound to nothing.
  /// @return the first of its 256 keys; kNoMemory.
  Result<std::uint32_t> insert_window(MwType type, std::uint32_t pd);
  void remove_window(std::uint32_t key);
  /// The QP is gone: windows of type 2 that it bound are free again.
  void release_windows(Qpn qpn);

  /// The bytes that users call [addr, addr + length) through `key`, if protection domain, rights and range
  /// allow. A zero length is judged likewise, and may lie at the region's end. @return nullptr with `fault`
  /// set, or where they are.
  [[nodiscard]] std::byte* resolve(std::uint32_t key, std::uint32_t pd, std::uint32_t access,
                                   std::uint64_t addr, std::uint64_t length, KeyFault& fault) const noexcept;
  /// Likewise for a peer, which may also name windows.
  [[nodiscard]] std::byte* resolve_remote(std::uint32_t key, const KeyUser& user, std::uint32_t access,
                                          std::uint64_t addr, std::uint64_t length,
                                          KeyFault& fault) const noexcept {
    std::byte* memory = resolve(key, user.pd, access, addr, length, fault);
    if (memory != nullptr || fault != KeyFault::kUnknownKey) [[likely]]
      return memory;
    return resolve_window(key, user, access, addr, length, fault);
  }
  /// All bytes of the region or window, likewise.
  [[nodiscard]] std::span<std::byte> resolve_all(std::uint32_t key, const KeyUser& user, std::uint32_t access,
                                                 KeyFault& fault) const noexcept;
  /// Makes the key unusable (SEND with invalidate, local invalidate). A region stays until remove(), a window
  /// can be bound again.
  /// @return false for a key that is unknown or of another PD; a region not marked access::kInvalidatable, or
  /// with windows bound to it; a window of type 1, or of another QP.
  bool invalidate(std::uint32_t key, const KeyUser& user) noexcept;
  /// Whether invalidate() would.
  [[nodiscard]] bool may_invalidate(std::uint32_t key, const KeyUser& user) const noexcept;
  /// Binds the window of which `key` is one of the keys. IBA 10.6.7.2.
  BindResult bind(std::uint32_t key, const KeyUser& user, const MwBind& to) noexcept;

  /// Whether there are so many keys that looking one up mostly waits for memory.
  [[nodiscard]] bool is_large() const noexcept {
    constexpr std::size_t kMany = 1U << 14;  // slots
    return table_.load(std::memory_order_acquire)->mask >= kMany;
  }
  /// Whether a region has that byte. Takes as long as there are keys. By loops; async-signal-safe.
  [[nodiscard]] bool covers(const void* address) const noexcept;

  /// Brings into the cache what resolve() will look at, and the memory, to be written. Any values do no harm.
  void prefetch(std::uint32_t key, std::uint64_t addr) const noexcept {
    const Table& table = *table_.load(std::memory_order_acquire);  // pairs with rebuild()
    const Slot* const slot = &table.slots[hash(key) & table.mask];
    uroce::prefetch(slot);
    uroce::prefetch(slot + 1);
    uroce::prefetch(reinterpret_cast<const void*>(addr));
  }

  [[nodiscard]] std::size_t size() const noexcept { return live_; }

 private:
  enum class State : std::uint8_t { kInvalid, kRegion, kWindow };
  struct Slot {
    std::atomic<std::uint32_t> key{0};  // 0: never used, kRemoved: removed
    std::atomic<State> state{State::kInvalid};
    Region region;
  };
  /// What lookups of a region have no need of.
  struct Companion {
    WindowCount* count = nullptr;  // of a region with access::kMwBind
    Window* window = nullptr;
  };
  struct Table {
    explicit Table(std::size_t capacity) : mask(capacity - 1), slots(capacity), companions(capacity) {}
    [[nodiscard]] Companion& companion(const Slot& slot) noexcept {
      return companions[static_cast<std::size_t>(&slot - slots.data())];
    }
    std::size_t mask;
    std::vector<Slot> slots;
    std::vector<Companion> companions;  // of the slot with the same index
  };
  static constexpr std::uint32_t kRemoved = 1;
  static constexpr std::uint32_t kVariants = 0xff;  // bits of a window's key that its user chooses

  [[nodiscard]] static std::size_t hash(std::uint32_t key) noexcept { return key * 0x9e3779b1U >> 7; }
  [[nodiscard]] static Slot* find(Table& table, std::uint32_t key) noexcept;
  [[nodiscard]] Window* find_window(std::uint32_t key) const noexcept;
  [[nodiscard]] static Slot* find_invalidatable(Table& table, std::uint32_t key,
                                                const KeyUser& user) noexcept;
  [[nodiscard]] std::byte* resolve_window(std::uint32_t key, const KeyUser& user, std::uint32_t access,
                                          std::uint64_t addr, std::uint64_t length,
                                          KeyFault& fault) const noexcept;
  static Slot& place(Table& table, std::uint32_t key, State state, const Region& region,
                     const Companion& companion);
  static void copy(Table& from, Table& to);
  /// What is different in the next table.
  struct Change {
    std::uint32_t key = 0;  // 0: nothing
    Region region;
    WindowCount* count = nullptr;
  };
  void rebuild(std::size_t capacity, const Change& change);
  void make_room();
  [[nodiscard]] bool is_fresh(std::uint32_t key) const;
  [[nodiscard]] std::uint32_t new_key();
  [[nodiscard]] std::uint32_t new_window_key();
  void retire(std::uint32_t key);
  WindowCount* add_count(std::uint32_t key, const Region& region);
  void erase(std::uint32_t key);
  void adopt(std::unique_ptr<WindowCount> orphan);

  std::atomic<Table*> table_{nullptr};
  std::atomic<Table*> next_{nullptr};  // is being filled and will take the place of table_
  std::mutex control_;
  std::function<void()> quiesce_;
  Random random_;
  std::unordered_map<std::uint32_t, std::unique_ptr<WindowCount>> counts_;  // of regions, by key
  std::vector<std::unique_ptr<WindowCount>> orphans_;  // of regions that went before their windows
  std::unordered_map<std::uint32_t, std::unique_ptr<Window>> windows_;  // by first key
  std::size_t live_ = 0;
  std::size_t used_ = 0;                       // live and removed slots
  std::deque<std::uint32_t> retired_;          // keys removed last, oldest first
  std::unordered_set<std::uint32_t> resting_;  // the same
};

}  // namespace uroce::mem
