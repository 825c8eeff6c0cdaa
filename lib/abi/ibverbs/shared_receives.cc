// Shared receive queues and XRC domains.
#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/objects.h"
#include "base/owned_fd.h"

namespace uroce::abi {

namespace {

/// 0, or why such a queue cannot be.
int check(const ibv_context& context, const ibv_srq_init_attr_ex& attr) noexcept {
  constexpr std::uint32_t kKnown =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((attr.comp_mask & ~kKnown) != 0) return EOPNOTSUPP;
  if (!has(attr, IBV_SRQ_INIT_ATTR_PD) || !is_of(context, attr.pd)) return EINVAL;
  const ibv_srq_type type = has(attr, IBV_SRQ_INIT_ATTR_TYPE) ? attr.srq_type : IBV_SRQT_BASIC;
  if (type == IBV_SRQT_BASIC) return 0;
  if (type != IBV_SRQT_XRC) return EOPNOTSUPP;
  const bool is_whole = has(attr, IBV_SRQ_INIT_ATTR_XRCD) && has(attr, IBV_SRQ_INIT_ATTR_CQ);
  return is_whole && is_of(context, attr.xrcd) && is_of(context, attr.cq) ? 0 : EINVAL;
}

bool is_xrc(const ibv_srq_init_attr_ex& attr) noexcept {
  return has(attr, IBV_SRQ_INIT_ATTR_TYPE) && attr.srq_type == IBV_SRQT_XRC;
}

Result<Srq> make(const ibv_srq_init_attr_ex& attr) {
  Pd& pd = cast<ProtectionDomain>(attr.pd).pd();
  const SrqInitAttr wanted{.max_wr = attr.attr.max_wr, .max_sge = attr.attr.max_sge};
  if (!is_xrc(attr)) return Srq::create(pd, wanted);
  return Srq::create(pd, *cast<XrcDomain>(attr.xrcd).xrcd, *cq_of(attr.cq).cq, wanted);
}

/// @param xrcd  nullptr: a new one
ibv_xrcd* open_domain(ibv_context* context, std::shared_ptr<Xrcd> xrcd) {
  if (xrcd == nullptr) {
    auto made = Xrcd::create(Context::of(context).device());
    if (!made) return fail_null(to_errno(made.error().code));
    xrcd = std::make_shared<Xrcd>(std::move(*made));
  }
  auto domain = std::make_unique<XrcDomain>();
  domain->context = context;
  domain->xrcd = std::move(xrcd);
  return domain.release();
}

/// A domain and, as long as it lives, the file that names it: should the program remove that, no other file
/// gets its number.
struct NamedDomain {
  OwnedFd file;
  std::shared_ptr<Xrcd> xrcd;
};

/// In a way that takes no part in the file's locks; its own descriptor where there is no /proc.
OwnedFd hold(int fd) {
  constexpr int kLowest = 3;  // not the number of a standard stream that the program has closed
  const OwnedFd path(open(("/proc/thread-self/fd/" + std::to_string(fd)).c_str(), O_PATH | O_CLOEXEC));
  return OwnedFd(fcntl(path.is_open() ? path.get() : fd, F_DUPFD_CLOEXEC, kLowest));
}

/// With the mutex of all that are named held.
ibv_xrcd* open_named(ibv_context* context, std::weak_ptr<Xrcd>& name, int fd, int oflags) {
  auto known = name.lock();
  if (known != nullptr && (oflags & O_EXCL) != 0) return fail_null(EINVAL);
  if (known != nullptr) return open_domain(context, std::move(known));
  if ((oflags & O_CREAT) == 0) return fail_null(EAGAIN);
  auto named = std::make_shared<NamedDomain>(hold(fd));
  if (!named->file.is_open()) return fail_null(errno);
  ibv_xrcd* const opened = open_domain(context, nullptr);
  if (opened == nullptr) return nullptr;
  std::shared_ptr<Xrcd>& xrcd = cast<XrcDomain>(opened).xrcd;
  named->xrcd = std::move(xrcd);
  xrcd = std::shared_ptr<Xrcd>(named, named->xrcd.get());
  name = xrcd;
  return opened;
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  if (!is_here(*context)) return fail_null(EIO);
  if (const int wrong = check(*context, *attr); wrong != 0) return fail_null(wrong);
  return guarded([&]() -> ibv_srq* {
    auto made = make(*attr);
    if (!made) return Context::refuse(made.error());
    auto srq = std::make_unique<SharedQueue>(is_shared(attr->pd));
    srq->context = context;
    srq->srq_context = attr->srq_context;
    srq->pd = attr->pd;
    srq->handle = made->number();
    srq->events_completed = 0;
    attr->attr.max_wr = made->attr().max_wr;
    attr->attr.max_sge = made->attr().max_sge;
    srq->srq.emplace(std::move(*made));
    srq->of_pd = Use(cast<ProtectionDomain>(attr->pd).users);
    if (is_xrc(*attr)) {
      srq->of_xrcd = Use(cast<XrcDomain>(attr->xrcd).users);
      srq->of_cq = Use(cq_of(attr->cq).users);
    }
    Engine::instance().add(*srq);
    init_events(*srq);
    return srq.release();
  });
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  if (!is_here(*srq)) return EIO;
  *number = cast<SharedQueue>(srq).srq->number();
  return 0;
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  if (!is_here(*context)) return fail_null(EIO);
  constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask != kNeeded) return fail_null(EINVAL);
  return guarded([&]() -> ibv_xrcd* {
    if (attr->fd < 0) return open_domain(context, nullptr);
    struct stat file {};
    if (fstat(attr->fd, &file) != 0) return fail_null(errno);
    NamedDomains& named = Engine::instance().named_domains();
    const std::lock_guard lock(named.mutex);
    return open_named(context, named.by_file[{file.st_dev, file.st_ino}], attr->fd, attr->oflags);
  });
}

int close_xrcd(ibv_xrcd* base) {
  if (!is_here(*base)) return 0;
  auto& domain = cast<XrcDomain>(base);
  if (domain.users != 0) return EBUSY;
  NamedDomains& named = Engine::instance().named_domains();
  const std::lock_guard lock(named.mutex);
  delete &domain;
  std::erase_if(named.by_file, [](const auto& known) { return known.second.expired(); });
  return 0;
}

}  // namespace uroce::abi

using namespace uroce;
using namespace uroce::abi;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq_init_attr_ex all{};
  all.srq_context = attr->srq_context;
  all.attr = attr->attr;
  all.comp_mask = IBV_SRQ_INIT_ATTR_PD;
  all.pd = pd;
  ibv_srq* srq = create_srq_ex(pd->context, &all);
  if (srq != nullptr) attr->attr = all.attr;
  return srq;
}

int ibv_modify_srq(ibv_srq* base, ibv_srq_attr* attr, int attr_mask) {
  if (!is_here(*base)) return fail(EIO);
  auto& srq = cast<SharedQueue>(base);
  const auto mask = static_cast<unsigned>(attr_mask);
  constexpr unsigned kBoth = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
  if ((mask & ~kBoth) != 0) return fail(EINVAL);
  if ((mask & kBoth) == kBoth && attr->srq_limit > attr->max_wr)
    return fail(EINVAL);  // before it has another size
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    const std::lock_guard lock(srq.posting);
    if (const Status status = srq.srq->resize(attr->max_wr); !status) return answer(status);
  }
  return (mask & IBV_SRQ_LIMIT) != 0 ? answer(srq.srq->arm_limit(attr->srq_limit)) : 0;
}

int ibv_query_srq(ibv_srq* base, ibv_srq_attr* attr) {
  if (!is_here(*base)) return fail(EIO);
  const Srq& srq = *cast<SharedQueue>(base).srq;
  *attr = {.max_wr = srq.attr().max_wr, .max_sge = srq.attr().max_sge, .srq_limit = srq.limit()};
  return 0;
}

int ibv_destroy_srq(ibv_srq* base) {
  if (!is_here(*base)) return 0;
  auto& srq = cast<SharedQueue>(base);
  if (srq.users != 0) return fail(EBUSY);
  const NotCancelled here;
  Engine::instance().remove(srq);
  Context::of(base->context).events.purge(base);
  await_acks(*base, base->events_completed, srq.events_taken);
  end_events(*base);
  delete &srq;
  return 0;
}

}  // extern "C"
