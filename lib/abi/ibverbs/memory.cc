// Protection domains, memory regions and windows.
#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/objects.h"
#include "abi/ibverbs/pages.h"

namespace uroce::abi {

namespace {

/// Hints that a copying engine needs not, and those that programs may give to any device.
constexpr unsigned kIgnored = unsigned{IBV_ACCESS_HUGETLB} | IBV_ACCESS_OPTIONAL_RANGE;
constexpr unsigned kUnsupported = IBV_ACCESS_ON_DEMAND;

std::atomic<std::uint32_t> next_handle{1};

std::span<std::byte> bytes_at(void* addr, std::size_t length) noexcept {
  return {static_cast<std::byte*>(addr), length};
}

bool writes(unsigned access) noexcept {
  return (access & IBV_ACCESS_LOCAL_WRITE) != 0;  // peers must not either, without that
}

ibv_mr* reg(ibv_pd* base, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  if (!is_here(*base)) return fail_null(EIO);
  if ((access & kUnsupported) != 0) return fail_null(EOPNOTSUPP);
  return guarded([&]() -> ibv_mr* {
    if (const int why = make_present(bytes_at(addr, length), writes(access)); why != 0) return fail_null(why);
    auto& pd = cast<ProtectionDomain>(base);
    auto mr = Mr::reg(pd.pd(), bytes_at(addr, length), access & ~kIgnored, iova);
    if (!mr) return fail_null(to_errno(mr.error().code));
    auto region = std::make_unique<Region>();
    region->context = base->context;
    region->pd = base;
    region->addr = addr;
    region->length = length;
    region->handle = next_handle.fetch_add(1, std::memory_order_relaxed);
    region->lkey = raw(mr->lkey());
    region->rkey = raw(mr->rkey());
    region->is_written = writes(access);
    region->mr.emplace(std::move(*mr));
    region->of_pd = Use(pd.users);
    return region.release();
  });
}

}  // namespace

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (!is_here(*context)) return fail_null(EIO);
  if (attr->comp_mask != 0) return fail_null(EINVAL);
  auto* td = new (std::nothrow) ThreadDomain;
  if (td == nullptr) return fail_null(ENOMEM);
  td->context = context;
  return td;
}

int dealloc_td(ibv_td* base) {
  if (!is_here(*base)) return 0;
  auto& td = cast<ThreadDomain>(base);
  if (td.users != 0) return EBUSY;
  delete &td;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr std::uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (!is_here(*context)) return fail_null(EIO);
  if (!is_of(*context, attr->pd) || (attr->td != nullptr && !is_of(*context, attr->td))) {
    return fail_null(EINVAL);
  }
  if ((attr->comp_mask & ~kKnown) != 0) return fail_null(EINVAL);
  auto* pd = new (std::nothrow) ProtectionDomain;
  if (pd == nullptr) return fail_null(ENOMEM);
  pd->context = context;
  pd->parent = &cast<ProtectionDomain>(attr->pd);
  pd->of_parent = Use(pd->parent->users);
  pd->handle = pd->parent->handle;
  if (attr->td != nullptr) {
    pd->of_thread_domain = Use(cast<ThreadDomain>(attr->td).users);
    pd->is_single_threaded = true;
  }
  return pd;
}

ibv_mw* alloc_mw(ibv_pd* base, ibv_mw_type type) {
  if (!is_here(*base)) return fail_null(EIO);
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail_null(EINVAL);
  return guarded([&]() -> ibv_mw* {
    auto& pd = cast<ProtectionDomain>(base);
    auto mw = Mw::create(pd.pd(), type == IBV_MW_TYPE_1 ? MwType::kType1 : MwType::kType2B);
    if (!mw) return fail_null(to_errno(mw.error().code));
    auto window = std::make_unique<Window>();
    window->context = base->context;
    window->pd = base;
    window->rkey = raw(mw->rkey());
    window->handle = next_handle.fetch_add(1, std::memory_order_relaxed);
    window->type = type;
    window->mw.emplace(std::move(*mw));
    window->of_pd = Use(pd.users);
    return window.release();
  });
}

int dealloc_mw(ibv_mw* mw) {
  if (is_here(*mw)) delete &cast<Window>(mw);
  return 0;
}

int bind_mw(ibv_qp* base, ibv_mw* mw, ibv_mw_bind* bind) {
  QueuePair& qp = qp_of(base);
  if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) return EINVAL;  // type 1 has no such windows
  if (mw->context != base->context) return EINVAL;
  const std::lock_guard lock(qp.sending);
  const auto flags = static_cast<std::uint8_t>(bind->send_flags & 0xf);
  const auto key = qp.qp->bind_mw(*cast<Window>(mw).mw, bind_of(bind->bind_info), bind->wr_id, flags);
  if (!key) return key.error().code == Errc::kBadState ? ENOMEM : to_errno(key.error().code);
  mw->rkey = raw(*key);
  return 0;
}

}  // namespace uroce::abi

using namespace uroce;
using namespace uroce::abi;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (!is_here(*context)) return fail_null(EIO);
  return guarded([context]() -> ibv_pd* {
    auto pd = Pd::create(Context::of(context).device());
    if (!pd) return fail_null(to_errno(pd.error().code));
    auto made = std::make_unique<ProtectionDomain>();
    made->context = context;
    made->handle = pd->number();
    made->own.emplace(std::move(*pd));
    return made.release();
  });
}

int ibv_dealloc_pd(ibv_pd* base) {
  if (!is_here(*base)) return 0;
  auto& pd = cast<ProtectionDomain>(base);
  if (pd.users != 0) return fail(EBUSY);
  delete &pd;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) {
  return reg(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr), static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
  return reg(pd, addr, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
  return reg(pd, addr, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) {
  return fail_null(EOPNOTSUPP);
}

int ibv_rereg_mr(ibv_mr* base, int flags, ibv_pd* pd, void* addr, std::size_t length, int access) {
  if (!is_here(*base)) return fail(EIO), IBV_REREG_MR_ERR_INPUT;
  auto& region = cast<Region>(base);
  const auto rights = static_cast<unsigned>(access);
  const bool joins = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool has_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  const bool has_all = (!joins || pd != nullptr) && (!moves || (addr != nullptr && length != 0)) &&
                       (has_access || access == 0);
  if (flags <= 0 || flags > IBV_REREG_MR_FLAGS_SUPPORTED || !has_all || (rights & kUnsupported) != 0) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const auto memory = moves ? bytes_at(addr, length) : bytes_at(region.addr, region.length);
  const bool is_written = has_access ? writes(rights) : region.is_written;
  auto& target = cast<ProtectionDomain>(joins ? pd : region.pd);
  if (target.context != base->context) return fail(EINVAL), IBV_REREG_MR_ERR_INPUT;
  const NotCancelled here;
  if (const int why = make_present(memory, is_written); why != 0) return fail(why), IBV_REREG_MR_ERR_INPUT;
  const Status status =
      region.mr->rereg(static_cast<std::uint32_t>(flags), target.pd(), memory, rights & ~kIgnored);
  if (!status) return answer(status), IBV_REREG_MR_ERR_INPUT;
  region.is_written = is_written;
  if (joins) {
    region.pd = pd;
    region.of_pd = Use(target.users);
  }
  if (moves) {
    region.addr = addr;
    region.length = length;
  }
  return 0;
}

int ibv_dereg_mr(ibv_mr* base) {
  if (!is_here(*base)) return 0;
  auto& region = cast<Region>(base);
  if (const Status status = region.mr->dereg(); !status) return answer(status);
  delete &region;
  return 0;
}

ibv_pd* ibv_import_pd(ibv_context*, std::uint32_t) {
  return fail_null(EOPNOTSUPP);
}
void ibv_unimport_pd(ibv_pd*) {}
ibv_mr* ibv_import_mr(ibv_pd*, std::uint32_t) {
  return fail_null(EOPNOTSUPP);
}
void ibv_unimport_mr(ibv_mr*) {}
ibv_dm* ibv_import_dm(ibv_context*, std::uint32_t) {
  return fail_null(EOPNOTSUPP);
}
void ibv_unimport_dm(ibv_dm*) {}

}  // extern "C"
