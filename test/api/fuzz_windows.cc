// Steps with memory windows, and regions that change.
#include <algorithm>
#include <bit>

#include "api/fuzz_world.h"

namespace uroce::api {

namespace {

bool is_bindable(const MrObject& mr) {
  constexpr std::uint32_t kNeeded = access::kMwBind | access::kLocalWrite;
  return (mr.access & kNeeded) == kNeeded;
}

bool has_bindable(const Side& on) {
  return std::any_of(on.mrs.begin(), on.mrs.end(), [](const auto& mr) { return is_bindable(*mr); });
}

bool is_maybe_bound(const MwObject& mw) {
  return mw.mw.type() != MwType::kType1 && mw.mr != nullptr;
}

}  // namespace

void World::create_mw(Side& on) {
  PdObject* pd = pick(on.pds, random_);
  if (pd == nullptr || on.mws.size() == 6) return;
  const auto type = static_cast<std::uint8_t>(wrong(24) ? below(256) : 1 + below(3));
  auto mw = Mw::create(pd->pd, MwType{type});
  expect(mw.has_value() == (type >= 1 && type <= 3), "Mw::create judges types wrongly");
  if (!mw) {
    ++totals_.errors;
    return expect_error(mw.error(), {Errc::kInvalid}, "Mw::create");
  }
  const std::uint32_t key = raw(mw->rkey());
  for (const auto& other_mw : on.mws) {
    expect(raw(other_mw->mw.rkey()) >> 8 != key >> 8, "two windows share keys");
  }
  for (const auto& mr : on.mrs)
    expect(raw(mr->mr.rkey()) >> 8 != key >> 8, "a region has the key of a window");
  ++pd->users;
  on.mws.push_back(std::make_unique<MwObject>(std::move(*mw), *pd));
}

void World::destroy_mw(Side& on) {
  MwObject* mw = pick(on.mws, random_);
  if (mw == nullptr || !wrong(2)) return;
  on.stale_keys.push_back(raw(mw->key));
  --mw->pd.users;
  erase(on.mws, *mw);
}

/// Mostly a part of a region.
MwBind World::random_bind(Side& on, MwObject& mw) {
  MrObject* mr = pick(on.mrs, random_);
  for (int i = 0; i < 4 && mr != nullptr && !is_bindable(*mr) && !wrong(8); ++i) mr = pick(on.mrs, random_);
  constexpr std::uint32_t kRemote = access::kRemoteWrite | access::kRemoteRead;
  MwBind bind{.access = wrong(4) ? random_.next32() & 0x40'000fff : kRemote};
  if (mr == nullptr || wrong(16)) {
    bind.mr = Lkey{wrong_key(on)};
    bind.addr = on.arena.address(random_);
    bind.length = below(5000);
    return bind;
  }
  const auto size = static_cast<std::uint32_t>(mr->mr.memory().size());
  const std::uint32_t offset = below(size + 1);
  bind.mr = mr->mr.lkey();
  bind.addr = mr->mr.addr() + offset;
  bind.length = below(size - offset + 1) + (wrong(16) ? 1 + below(300) : 0);
  mr->had_windows = true;
  mw.bound = bind;
  mw.mr = mr;
  return bind;
}

void World::bind_type1(Side& on) {
  MwObject* mw = pick(on.mws, random_);
  QpObject* object = pick(on.qps, random_);
  if (mw == nullptr || object == nullptr || (is_tame_ && !wrong(1))) return;
  const MwBind bind = random_bind(on, *mw);
  const std::uint64_t wr_id = next_wr_ += 2;
  const bool signaled = object->qp.attr().sq_sig_all || chance(2);
  const Rkey before = mw->mw.rkey();
  auto key = object->qp.bind_mw(mw->mw, bind, wr_id, signaled ? send_flag::kSignaled : std::uint8_t{0});
  if (!key) {
    ++totals_.errors;
    return expect_error(key.error(), {Errc::kInvalid, Errc::kBadState}, "Qp::bind_mw");
  }
  expect(mw->mw.type() == MwType::kType1 && *key != before && *key == mw->mw.rkey(),
         "a bind gives no new key");
  mw->key = *key;
  ++totals_.posted;
  object->sends.push_back({wr_id, signaled, WcOpcode::kBindMw, 0});
  object->uses.send_cq->add(1);
}

/// Makes a work request a bind that may go well.
void World::aim_bind(Side& on, SendWr& wr) {
  MwObject* mw = pick(on.mws, random_);
  if (is_tame_ && !wrong(2) && (mw == nullptr || !has_bindable(on) || is_maybe_bound(*mw))) {
    wr.opcode = WrOpcode::kSend;
    return;
  }
  if (mw == nullptr) return;  // it has no parameters then
  mw->bound = random_bind(on, *mw);
  mw->key = mw->mw.rkey(static_cast<std::uint8_t>(below(256)));
  wr.rkey = wrong(32) ? Rkey{random_.next32()} : mw->key;
  wr.bind = &mw->bound;
}

void World::aim_invalidate(Side& on, SendWr& wr) {
  const MwObject* mw = pick(on.mws, random_);
  const MrObject* mr = pick(on.mrs, random_);
  if (mw != nullptr && chance(2)) {
    wr.invalidate_rkey = mw->key;
  } else if (mr != nullptr) {
    wr.invalidate_rkey = mr->mr.rkey();
  }
}

/// Fails only while windows are bound, and then changes nothing.
void World::dereg_mr(Side& on) {
  MrObject* mr = pick(on.mrs, random_);
  if (mr == nullptr || !wrong(2)) return;
  const auto memory = mr->mr.memory();
  const std::uint32_t key = raw(mr->mr.rkey());
  const Status status = mr->mr.dereg();
  if (!status) {
    ++totals_.errors;
    expect(mr->had_windows, "a region without windows cannot be deregistered");
    expect(raw(mr->mr.rkey()) == key, "a region that was not deregistered has changed");
    return expect_error(status.error(), {Errc::kBusy}, "Mr::dereg");
  }
  on.stale_keys.push_back(key);
  const bool in_arena = mr->slot != Arena::kSlots;
  --mr->pd.users;
  erase(on.mrs, *mr);
  if (in_arena) on.arena.restore(memory);
}

/// Another part of the slot, or other access, under the same key.
void World::rereg_mr(Side& on) {
  MrObject* mr = pick(on.mrs, random_);
  if (mr == nullptr || mr->slot == Arena::kSlots || !wrong(2)) return;
  const auto before = mr->mr.memory();
  const std::uint32_t key = raw(mr->mr.rkey());
  const std::uint32_t changes = wrong(16) ? below(12) : mr_change::kTranslation | mr_change::kAccess;
  const std::uint32_t from = below(100);
  const auto memory = on.arena.slot(mr->slot).subspan(from, 512 + below(Arena::kSlotBytes - 511 - from));
  // The part keeps what rights it has unless both change: only then does the model know what may be written.
  if (changes != (mr_change::kTranslation | mr_change::kAccess) && changes != 0 && changes < 8) return;
  const std::uint32_t flags = access::kAll | (chance(2) ? kKnownAccess : 0);
  const Status status = mr->mr.rereg(changes, mr->pd.pd, memory, flags);
  expect(raw(mr->mr.rkey()) == key, "a region has another key");
  if (!status) {
    ++totals_.errors;
    const bool is_right = changes != 0 && changes < 8;
    expect(mr->mr.memory().data() == before.data(), "a region that was not registered anew has changed");
    expect(!is_right || mr->had_windows, "a region without windows cannot be registered anew");
    return expect_error(status.error(), {is_right ? Errc::kBusy : Errc::kInvalid}, "Mr::rereg");
  }
  mr->access = flags;
  expect(mr->mr.memory().data() == memory.data(), "a region is not what it was changed to");
  on.arena.restore(before);
  on.arena.open(memory);
}

}  // namespace uroce::api
