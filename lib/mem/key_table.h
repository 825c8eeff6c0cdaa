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
#include <unordered_set>
#include <vector>

#include "base/random.h"
#include "uroce/access.h"
#include "uroce/result.h"

namespace uroce::mem {

/// What a key stands for.
struct Region {
  std::uint64_t addr = 0;    ///< first byte
  std::uint64_t length = 0;  ///< bytes
  std::uint32_t pd = 0;      ///< protection domain number
  std::uint32_t access = 0;  ///< access flags
};

/// Why an access was refused, in the order of the checks. IBA 9.7.4.1.5, 10.6.3.
enum class KeyFault : std::uint8_t { kNone, kUnknownKey, kWrongPd, kNoRights, kOutOfRange };

/// Sparse table of unguessable 32-bit keys.
///
/// Threads: resolve() and invalidate() by the loops; insert() and remove() by control threads.
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
  /// Removes a key. Unknown keys are ignored.
  void remove(std::uint32_t key);

  /// The bytes [addr, addr + length) through `key`, if protection domain, rights and range allow.
  /// A zero length is not looked up at all. @return nullptr with `fault` set, or the address.
  [[nodiscard]] std::byte* resolve(std::uint32_t key, std::uint32_t pd, std::uint32_t access,
                                   std::uint64_t addr, std::uint64_t length, KeyFault& fault) const noexcept;
  /// All bytes of the region, likewise.
  [[nodiscard]] std::span<std::byte> resolve_all(std::uint32_t key, std::uint32_t pd, std::uint32_t access,
                                                 KeyFault& fault) const noexcept;
  /// Makes the key unusable from the loop (SEND with invalidate); the region stays until remove().
  /// @return false if the key is unknown, of another PD or not marked access::kInvalidatable.
  bool invalidate(std::uint32_t key, std::uint32_t pd) noexcept;
  /// Whether invalidate() would.
  [[nodiscard]] bool may_invalidate(std::uint32_t key, std::uint32_t pd) const noexcept {
    return find_invalidatable(key, pd) != nullptr;
  }

  [[nodiscard]] std::size_t size() const noexcept { return live_; }

 private:
  struct Slot {
    std::atomic<std::uint32_t> key{0};  // 0: never used, kRemoved: removed
    std::atomic<bool> valid{false};
    Region region;
  };
  struct Table {
    explicit Table(std::size_t capacity) : mask(capacity - 1), slots(capacity) {}
    std::size_t mask;
    std::vector<Slot> slots;
  };
  static constexpr std::uint32_t kRemoved = 1;

  [[nodiscard]] static std::size_t hash(std::uint32_t key) noexcept { return key * 0x9e3779b1U >> 7; }
  [[nodiscard]] static Slot* find(Table& table, std::uint32_t key) noexcept;
  [[nodiscard]] Slot* find_invalidatable(std::uint32_t key, std::uint32_t pd) const noexcept;
  static Slot& place(Table& table, std::uint32_t key, const Region& region, bool valid);
  static void copy(const Table& from, Table& to);
  void rebuild(std::size_t capacity);
  [[nodiscard]] std::uint32_t new_key();
  void retire(std::uint32_t key);

  std::atomic<Table*> table_;
  std::atomic<Table*> next_{nullptr};  // is being filled and will take the place of table_
  std::mutex control_;
  std::function<void()> quiesce_;
  Random random_;
  std::size_t live_ = 0;
  std::size_t used_ = 0;                       // live and removed slots
  std::deque<std::uint32_t> retired_;          // keys removed last, oldest first
  std::unordered_set<std::uint32_t> resting_;  // the same
};

}  // namespace uroce::mem
