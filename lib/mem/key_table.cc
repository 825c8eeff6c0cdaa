#include "mem/key_table.h"

#include <algorithm>
#include <new>

namespace uroce::mem {

namespace {

/// What a window can give. IBA 10.6.7.2 ?
constexpr std::uint32_t kWindowRights = access::kRemoteWrite | access::kRemoteRead | access::kRemoteAtomic |
                                        access::kFlushGlobal | access::kFlushPersistent | access::kZeroBased;

/// Whether a region allows a window with that access to that range.
bool allows(const Region& region, const MwBind& to) noexcept {
  constexpr std::uint32_t kWrites = access::kRemoteWrite | access::kRemoteAtomic;
  constexpr std::uint32_t kFlushes = access::kFlushGlobal | access::kFlushPersistent;
  if ((region.access & access::kMwBind) == 0 || (to.access & ~kWindowRights) != 0) return false;
  if ((to.access & kWrites) != 0 && (region.access & access::kLocalWrite) == 0) return false;
  if ((to.access & kFlushes & ~region.access) != 0) return false;
  return region.has(to.addr - region.first(), to.length);
}

/// A zero-based region as lookups want it.
Region as_named(Region region) noexcept {
  if ((region.access & access::kZeroBased) == 0 || region.addr == 0) return region;
  region.shift += region.addr;
  region.addr = 0;
  return region;
}

}  // namespace

KeyTable::KeyTable(std::uint64_t seed, std::function<void()> quiesce)
    : quiesce_(std::move(quiesce)), random_(seed) {
  table_.store(new Table(64), std::memory_order_relaxed);  // when nothing is left that may run out of memory
}

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

bool KeyTable::covers(const void* address) const noexcept {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const auto& slots = table_.load(std::memory_order_acquire)->slots;  // pairs with rebuild()
  return std::any_of(slots.begin(), slots.end(), [at](const Slot& slot) {
    const bool is_region = slot.key.load(std::memory_order_acquire) > kRemoved &&  // pairs with place()
                           slot.state.load(std::memory_order_relaxed) != State::kWindow;
    return is_region && at - (slot.region.addr + slot.region.shift) < slot.region.length;
  });
}

KeyTable::Slot& KeyTable::place(Table& table, std::uint32_t key, State state, const Region& region,
                                const Companion& companion) {
  std::size_t i = hash(key) & table.mask;
  while (table.slots[i].key.load(std::memory_order_relaxed) != 0) i = (i + 1) & table.mask;
  table.slots[i].region = region;
  table.companions[i] = companion;
  table.slots[i].state.store(state, std::memory_order_relaxed);
  table.slots[i].key.store(key, std::memory_order_release);  // pairs with find()
  return table.slots[i];
}

/// A loop may invalidate a key meanwhile. It marks the old slot and then looks for the new one, this here
/// makes the new one and then looks at the old mark: one of them sees the other. Windows are not copied: both
/// tables name the same one.
void KeyTable::copy(Table& from, Table& to) {
  for (const Slot& slot : from.slots) {
    const std::uint32_t key = slot.key.load();
    if (key <= kRemoved) continue;
    Slot& made = place(to, key, slot.state.load(), slot.region, from.companion(slot));
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with invalidate()
    if (slot.state.load() == State::kInvalid) made.state.store(State::kInvalid);
  }
}

void KeyTable::rebuild(std::size_t capacity, const Change& change) {
  auto fresh = std::make_unique<Table>(capacity);
  next_.store(fresh.get());
  quiesce_();  // from here on loops invalidate in both
  Table* old = table_.load();
  copy(*old, *fresh);
  if (Slot* slot = change.key == 0 ? nullptr : find(*fresh, change.key)) {
    slot->region = change.region;
    slot->state.store(State::kRegion);
    fresh->companion(*slot).count = change.count;
  }
  table_.store(fresh.release(), std::memory_order_release);  // pairs with resolve()
  quiesce_();
  next_.store(nullptr);
  delete old;
  used_ = live_;
}

void KeyTable::make_room() {
  if (2 * (used_ + 1) <= table_.load()->slots.size()) return;
  std::size_t capacity = 64;
  while (capacity < 4 * (live_ + 1)) capacity *= 2;
  rebuild(capacity, {});
}

/// Neither in use nor resting.
bool KeyTable::is_fresh(std::uint32_t key) const {
  return key > kVariants && !resting_.contains(key) && find(*table_.load(), key) == nullptr;
}

/// Neither a key that something has, nor one that a window could be given.
std::uint32_t KeyTable::new_key() {
  for (;;) {
    const std::uint32_t key = random_.next32();
    if (is_fresh(key) && is_fresh(key & ~kVariants)) return key;
  }
}

/// None of the window's keys is one that something else has.
std::uint32_t KeyTable::new_window_key() {
  for (;;) {
    const std::uint32_t first = random_.next32() & ~kVariants;
    std::uint32_t fresh = 0;
    while (fresh <= kVariants && is_fresh(first + fresh)) ++fresh;
    if (fresh > kVariants) return first;
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

WindowCount* KeyTable::add_count(std::uint32_t key, const Region& region) {
  if ((region.access & access::kMwBind) == 0) return nullptr;
  return (counts_[key] = std::make_unique<WindowCount>()).get();
}

Result<std::uint32_t> KeyTable::insert(const Region& given) {
  const std::lock_guard lock(control_);
  const Region region = as_named(given);
  try {
    make_room();
    const std::uint32_t key = new_key();
    place(*table_.load(), key, State::kRegion, region, {.count = add_count(key, region)});
    ++live_;
    ++used_;
    return key;
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for another memory region"};
  }
}

/// Takes a key out of the table. No loop uses what it stood for once this has returned.
void KeyTable::erase(std::uint32_t key) {
  Slot* slot = key > kRemoved ? find(*table_.load(), key) : nullptr;
  if (slot == nullptr) return;
  slot->key.store(kRemoved, std::memory_order_release);
  retire(key);
  --live_;
  const auto unused =  // before the loops pass a boundary
      std::partition(orphans_.begin(), orphans_.end(),
                     [](const auto& orphan) { return orphan->has_windows(); });
  quiesce_();
  orphans_.erase(unused, orphans_.end());
}

void KeyTable::adopt(std::unique_ptr<WindowCount> orphan) {
  try {
    orphans_.push_back(std::move(orphan));
  } catch (const std::bad_alloc&) {
    static_cast<void>(orphan.release());  // windows still name it, and the removal must not fail
  }
}

void KeyTable::remove(std::uint32_t key) {
  const std::lock_guard lock(control_);
  auto count = counts_.extract(key);
  bool is_bound = false;  // asked before the loops pass a boundary: who looks at it by then is done with it
  if (!count.empty()) {
    count.mapped()->close();
    is_bound = count.mapped()->has_windows();
  }
  erase(key);
  if (is_bound) adopt(std::move(count.mapped()));
}

Status KeyTable::remove_unbound(std::uint32_t key) {
  {
    const std::lock_guard lock(control_);
    const auto count = counts_.find(key);
    if (count != counts_.end() && !count->second->close_if_none()) {
      return Error{Errc::kBusy, "memory windows are bound to the region"};
    }
  }
  remove(key);
  return {};
}

Status KeyTable::replace(std::uint32_t key, const Region& given) {
  const std::lock_guard lock(control_);
  const Region region = as_named(given);
  const bool had_count = counts_.contains(key);
  if (had_count && !counts_[key]->close_if_none()) {
    return Error{Errc::kBusy, "memory windows are bound to the region"};
  }
  try {
    std::unique_ptr<WindowCount> fresh;
    if ((region.access & access::kMwBind) != 0) fresh = std::make_unique<WindowCount>();
    std::unique_ptr<WindowCount>& current = counts_[key];
    rebuild(table_.load()->slots.size(), {.key = key, .region = region, .count = fresh.get()});
    current.swap(fresh);  // no loop uses the old one any more
  } catch (const std::bad_alloc&) {
    had_count ? counts_[key]->reopen() : void(counts_.erase(key));
    return Error{Errc::kNoMemory, "no memory to register a region anew"};
  }
  if (counts_[key] == nullptr) counts_.erase(key);
  return {};
}

Result<std::uint32_t> KeyTable::insert_window(MwType type, std::uint32_t pd) {
  const std::lock_guard lock(control_);
  try {
    make_room();
    const std::uint32_t key = new_window_key();
    Window* window = (windows_[key] = std::make_unique<Window>(type, pd)).get();
    place(*table_.load(), key, State::kWindow, {}, {.window = window});
    ++live_;
    ++used_;
    return key;
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for another memory window"};
  }
}

void KeyTable::remove_window(std::uint32_t key) {
  const std::lock_guard lock(control_);
  erase(key);
  windows_.erase(key);
}

void KeyTable::release_windows(Qpn qpn) {
  const std::lock_guard lock(control_);
  for (auto& [key, window] : windows_) window->release(qpn);
}

std::byte* KeyTable::resolve(std::uint32_t key, std::uint32_t pd, std::uint32_t access, std::uint64_t addr,
                             std::uint64_t length, KeyFault& fault) const noexcept {
  Table& table = *table_.load(std::memory_order_acquire);  // pairs with rebuild()
  const Slot* slot = key > kRemoved ? find(table, key) : nullptr;
  fault = KeyFault::kNone;
  if (slot == nullptr || slot->state.load(std::memory_order_relaxed) != State::kRegion) {
    fault = KeyFault::kUnknownKey;
  } else if (slot->region.pd != pd) {
    fault = KeyFault::kWrongPd;
  } else if ((slot->region.access & access) != access) {
    fault = KeyFault::kNoRights;
  } else if (addr < slot->region.addr || !slot->region.has(addr - slot->region.addr, length)) {
    fault = KeyFault::kOutOfRange;
  }
  return fault == KeyFault::kNone ? reinterpret_cast<std::byte*>(addr + slot->region.shift) : nullptr;
}

/// The window that has `key` among its keys, bound or not.
Window* KeyTable::find_window(std::uint32_t key) const noexcept {
  Table& table = *table_.load(std::memory_order_acquire);
  const Slot* slot = key > kVariants ? find(table, key & ~kVariants) : nullptr;
  return slot == nullptr ? nullptr : table.companion(*slot).window;
}

std::byte* KeyTable::resolve_window(std::uint32_t key, const KeyUser& user, std::uint32_t access,
                                    std::uint64_t addr, std::uint64_t length,
                                    KeyFault& fault) const noexcept {
  const Window* window = find_window(key);
  return window == nullptr ? nullptr : window->resolve(key, user, access, addr, length, fault);
}

std::span<std::byte> KeyTable::resolve_all(std::uint32_t key, const KeyUser& user, std::uint32_t access,
                                           KeyFault& fault) const noexcept {
  Table& table = *table_.load(std::memory_order_acquire);
  const Slot* slot = key > kRemoved ? find(table, key) : nullptr;
  std::uint64_t addr = 0;
  std::uint64_t length = 0;
  if (const Window* window = find_window(key)) {
    addr = window->first();
    length = window->length();
  } else if (slot != nullptr) {
    addr = slot->region.first();
    length = slot->region.length;
  }
  return {resolve_remote(key, user, access, addr, length, fault), length};
}

KeyTable::Slot* KeyTable::find_invalidatable(Table& table, std::uint32_t key, const KeyUser& user) noexcept {
  Slot* slot = key > kRemoved ? find(table, key) : nullptr;
  if (slot == nullptr || slot->region.pd != user.pd) return nullptr;
  const WindowCount* count = table.companion(*slot).count;
  if (count != nullptr && count->has_windows()) return nullptr;
  return (slot->region.access & access::kInvalidatable) != 0 ? slot : nullptr;
}

bool KeyTable::may_invalidate(std::uint32_t key, const KeyUser& user) const noexcept {
  const Window* window = find_window(key);
  if (window != nullptr) return window->may_invalidate(key, user);
  return find_invalidatable(*table_.load(std::memory_order_acquire), key, user) != nullptr;
}

bool KeyTable::invalidate(std::uint32_t key, const KeyUser& user) noexcept {
  if (Window* window = find_window(key)) return window->invalidate(key, user);
  Table& table = *table_.load(std::memory_order_acquire);  // once: another may take its place at any time
  Slot* slot = find_invalidatable(table, key, user);
  if (slot == nullptr) return false;
  WindowCount* count = table.companion(*slot).count;
  if (count != nullptr && !count->close_if_none()) return false;
  slot->state.store(State::kInvalid, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with copy()
  if (Table* next = next_.load()) {
    if (Slot* moved = find(*next, key)) moved->state.store(State::kInvalid, std::memory_order_relaxed);
  }
  return true;
}

BindResult KeyTable::bind(std::uint32_t key, const KeyUser& user, const MwBind& to) noexcept {
  Window* window = find_window(key);
  if (window == nullptr || window->pd() != user.pd) return BindResult::kRefused;
  const bool is_zero_based = (to.access & access::kZeroBased) != 0;
  if (is_zero_based && window->type() == MwType::kType1) return BindResult::kRefused;  // IBA 10.6.7.2 ?
  if (to.length == 0) {
    return window->type() == MwType::kType1 ? window->bind(key, user, to, {}) : BindResult::kRefused;
  }
  Table& table = *table_.load(std::memory_order_acquire);
  const Slot* slot = raw(to.mr) > kRemoved ? find(table, raw(to.mr)) : nullptr;
  if (slot == nullptr || slot->state.load(std::memory_order_relaxed) != State::kRegion) {
    return BindResult::kRefused;
  }
  WindowCount* count = table.companion(*slot).count;
  if (slot->region.pd != user.pd || !allows(slot->region, to) || !count->add()) return BindResult::kRefused;
  const BindResult result =
      window->bind(key, user, to, {.memory = to.addr + slot->region.shift, .count = count});
  if (result != BindResult::kDone) count->drop();
  return result;
}

}  // namespace uroce::mem
