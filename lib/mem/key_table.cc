#include "mem/key_table.h"

#include <new>

namespace uroce::mem {

KeyTable::KeyTable(std::uint64_t seed, std::function<void()> quiesce)
    : table_(new Table(64)), quiesce_(std::move(quiesce)), random_(seed) {}

KeyTable::~KeyTable() {
  delete table_.load();
}

KeyTable::Slot* KeyTable::find(Table& table, std::uint32_t key) noexcept {
  for (std::size_t i = hash(key) & table.mask;; i = (i + 1) & table.mask) {
    const std::uint32_t found = table.slots[i].key.load(std::memory_order_acquire);  // pairs with place()
    if (found == key) return &table.slots[i];
    if (found == 0) return nullptr;
  }
}

KeyTable::Slot& KeyTable::place(Table& table, std::uint32_t key, const Region& region, bool valid) {
  std::size_t i = hash(key) & table.mask;
  while (table.slots[i].key.load(std::memory_order_relaxed) != 0) i = (i + 1) & table.mask;
  table.slots[i].region = region;
  table.slots[i].valid.store(valid, std::memory_order_relaxed);
  table.slots[i].key.store(key, std::memory_order_release);  // pairs with find()
  return table.slots[i];
}

/// A loop may invalidate a key meanwhile. It marks the old slot and then looks for the new one, this here
/// makes the new one and then looks at the old mark: one of them sees the other.
void KeyTable::copy(const Table& from, Table& to) {
  for (const Slot& slot : from.slots) {
    const std::uint32_t key = slot.key.load();
    if (key <= kRemoved) continue;
    Slot& made = place(to, key, slot.region, slot.valid.load());
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with invalidate()
    if (!slot.valid.load()) made.valid.store(false);
  }
}

void KeyTable::rebuild(std::size_t capacity) {
  auto fresh = std::make_unique<Table>(capacity);
  next_.store(fresh.get());
  quiesce_();  // from here on loops invalidate in both
  Table* old = table_.load();
  copy(*old, *fresh);
  table_.store(fresh.release(), std::memory_order_release);  // pairs with resolve()
  quiesce_();
  next_.store(nullptr);
  delete old;
  used_ = live_;
}

std::uint32_t KeyTable::new_key() {
  for (;;) {
    const std::uint32_t key = random_.next32();
    if (key > kRemoved && !resting_.contains(key) && find(*table_.load(), key) == nullptr) return key;
  }
}

/// Peers may hold the key for a while: it rests before somebody else can get it.
void KeyTable::retire(std::uint32_t key) {
  constexpr std::size_t kRest = 1U << 16;  // removals
  try {
    resting_.insert(key);
    retired_.push_back(key);
  } catch (const std::bad_alloc&) {
    return;  // the removal itself must not fail
  }
  if (retired_.size() <= kRest) return;
  resting_.erase(retired_.front());
  retired_.pop_front();
}

Result<std::uint32_t> KeyTable::insert(const Region& region) {
  const std::lock_guard lock(control_);
  try {
    if (2 * (used_ + 1) > table_.load()->slots.size()) {
      std::size_t capacity = 64;
      while (capacity < 4 * (live_ + 1)) capacity *= 2;
      rebuild(capacity);
    }
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for another memory region"};
  }
  const std::uint32_t key = new_key();
  place(*table_.load(), key, region, true);
  ++live_;
  ++used_;
  return key;
}

void KeyTable::remove(std::uint32_t key) {
  const std::lock_guard lock(control_);
  Slot* slot = key > kRemoved ? find(*table_.load(), key) : nullptr;
  if (slot == nullptr) return;
  slot->key.store(kRemoved, std::memory_order_release);
  retire(key);
  --live_;
  quiesce_();
}

std::byte* KeyTable::resolve(std::uint32_t key, std::uint32_t pd, std::uint32_t access, std::uint64_t addr,
                             std::uint64_t length, KeyFault& fault) const noexcept {
  Table& table = *table_.load(std::memory_order_acquire);  // pairs with rebuild()
  const Slot* slot = key > kRemoved ? find(table, key) : nullptr;
  fault = KeyFault::kNone;
  if (slot == nullptr || !slot->valid.load(std::memory_order_relaxed)) {
    fault = KeyFault::kUnknownKey;
  } else if (slot->region.pd != pd) {
    fault = KeyFault::kWrongPd;
  } else if ((slot->region.access & access) != access) {
    fault = KeyFault::kNoRights;
  } else if (addr < slot->region.addr || length > slot->region.length ||
             addr - slot->region.addr > slot->region.length - length) {
    fault = KeyFault::kOutOfRange;
  }
  return fault == KeyFault::kNone ? reinterpret_cast<std::byte*>(addr) : nullptr;
}

std::span<std::byte> KeyTable::resolve_all(std::uint32_t key, std::uint32_t pd, std::uint32_t access,
                                           KeyFault& fault) const noexcept {
  const Slot* slot = key > kRemoved ? find(*table_.load(std::memory_order_acquire), key) : nullptr;
  const std::uint64_t addr = slot == nullptr ? 0 : slot->region.addr;
  const std::uint64_t length = slot == nullptr ? 0 : slot->region.length;
  return {resolve(key, pd, access, addr, length, fault), length};
}

KeyTable::Slot* KeyTable::find_invalidatable(std::uint32_t key, std::uint32_t pd) const noexcept {
  Slot* slot = key > kRemoved ? find(*table_.load(std::memory_order_acquire), key) : nullptr;
  if (slot == nullptr || slot->region.pd != pd) return nullptr;
  return (slot->region.access & access::kInvalidatable) != 0 ? slot : nullptr;
}

bool KeyTable::invalidate(std::uint32_t key, std::uint32_t pd) noexcept {
  Slot* slot = find_invalidatable(key, pd);
  if (slot == nullptr) return false;
  slot->valid.store(false, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with copy()
  if (Table* next = next_.load()) {
    if (Slot* moved = find(*next, key)) moved->valid.store(false, std::memory_order_relaxed);
  }
  return true;
}

}  // namespace uroce::mem
