#include "uroce/ah.h"

#include <algorithm>
#include <new>

#include "verbs/device_impl.h"
#include "verbs/gsi.h"

namespace uroce {

struct Ah::Impl {
  Impl(Device::Impl& device_impl, const AhAttr& ah_attr)
      : device(device_impl), id(device_impl.take_ah()), attr(ah_attr) {}
  ~Impl() { device.retire_ah(id); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Device::Impl& device;
  const AhId id;
  const AhAttr attr;
};

AhId Device::Impl::take_ah() {
  const std::lock_guard lock(control);
  if (free_ahs.empty()) {
    const auto index = static_cast<std::uint32_t>(ah_generations.size());
    free_ahs.reserve(index + 1);  // release_ah() needs no memory
    ah_generations.push_back(0);
    free_ahs.push_back(index);
  }
  const std::uint32_t index = free_ahs.back();
  free_ahs.pop_back();
  return AhId{std::uint64_t{++ah_generations[index]} << 32 | index};
}

void Device::Impl::release_ah(AhId id) {
  const std::lock_guard lock(control);
  free_ahs.push_back(static_cast<std::uint32_t>(raw(id)));
}

void Device::Impl::retire_ah(AhId id) noexcept {
  try {
    const std::lock_guard lock(leaving);
    LeavingHandle handle{.id = id, .awaited = {}};
    handle.awaited.reserve(datagram_qps.size());
    leaving_ahs.reserve(leaving_ahs.size() + 1);
    for (auto& runner : runners) {
      runner->execute([&](engine::PollLoop& loop, Ticks) { add_sends(loop, handle.awaited); });
    }
    leaving_ahs.push_back(std::move(handle));
  } catch (const std::bad_alloc&) {
    remove_ah(id);
  }
  reap_ahs();
}

void Device::Impl::reap_ahs() noexcept {
  const std::lock_guard lock(leaving);
  std::erase_if(leaving_ahs, [this](LeavingHandle& handle) {
    std::erase_if(handle.awaited, [this](const LeavingHandle::Sends& sends) { return have_left(sends); });
    if (handle.awaited.empty()) remove_ah(handle.id);
    return handle.awaited.empty();
  });
}

/// Of the QPs of a loop. There is room for all.
void Device::Impl::add_sends(engine::PollLoop& loop, std::vector<LeavingHandle::Sends>& to) const {
  for (const Qpn qpn : datagram_qps) {
    const transport::QueuePair* qp = loop.find(qpn);
    if (qp == nullptr) continue;
    const std::uint32_t end = qp->context().sq.tail();
    if (!qp->context().sq.is_retired(end)) to.push_back({qpn, end});
  }
}

bool Device::Impl::have_left(const LeavingHandle::Sends& sends) {
  bool have = true;
  runner_of(sends.qpn).execute([&](engine::PollLoop& loop, Ticks) {
    const transport::QueuePair* qp = loop.find(sends.qpn);
    have = qp == nullptr || qp->context().sq.is_retired(sends.end);
  });
  return have;
}

void Device::Impl::remove_ah(AhId id) {
  for (auto& runner : runners) {
    runner->execute([id](engine::PollLoop& loop, Ticks) { loop.remove_handle(id); });
  }
  release_ah(id);
}

Ah::Ah(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Ah::Ah(Ah&&) noexcept = default;
Ah& Ah::operator=(Ah&&) noexcept = default;
Ah::~Ah() = default;

namespace {

Status check(Device::Impl& device, const AhAttr& attr) {
  const auto own = device.own_addresses();
  if (!attr.dgid.is_unicast() && !attr.dgid.is_multicast())
    return Error{Errc::kInvalid, "dgid is not an address"};
  if (attr.sgid_index >= own.size()) return Error{Errc::kInvalid, "sgid_index is beyond the GID table"};
  if (attr.sl > 7) return Error{Errc::kInvalid, "sl is 0 to 7"};
  if (!engine::can_reach(own[attr.sgid_index], attr.dgid)) {
    return Error{Errc::kInvalid,
                 "sgid_index and dgid are of different address families, or that GID has been removed: "
                 "choose another GID index"};
  }
  return {};
}

Error no_memory() {
  return Error{Errc::kNoMemory, "no memory for an address handle"};
}

}  // namespace

Result<Ah> Ah::create(Pd& pd, const AhAttr& attr) {
  Device::Impl& device = pd.device();
  device.reap_ahs();
  try {
    if (Status usable = check(device, attr); !usable) return usable.error();
    auto impl = std::make_unique<Impl>(device, attr);
    for (auto& runner : device.runners) {
      runner->execute(
          [&](engine::PollLoop& loop, Ticks now) { loop.add_handle(impl->id, pd.number(), attr, now); });
    }
    return Ah(std::move(impl));
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

Result<AhAttr> way_back(Device::Impl& device, const Wc& wc, std::span<const std::byte, kGrhBytes> grh) {
  if ((wc.flags & wc_flag::kGrh) == 0) {
    return Error{Errc::kInvalid, "only a completed UD receive tells where it came from"};
  }
  const transport::DatagramOrigin origin = transport::origin_of(grh);
  AhAttr attr = origin.sender;
  try {
    const auto own = device.own_addresses();
    // To a group: answered from any address that can.
    const auto is_to = [&](const engine::Address& a) {
      const bool is = origin.to.is_multicast() ? engine::can_reach(a, attr.dgid) : a.gid == origin.to;
      return is && a.type == origin.type && !a.removed;
    };
    auto it = std::find_if(own.begin(), own.end(),
                           [&](const engine::Address& a) { return is_to(a) && a.vlan == wc.vlan; });
    if (it == own.end()) it = std::find_if(own.begin(), own.end(), is_to);
    attr.sgid_index = static_cast<std::uint32_t>(it - own.begin());
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  attr.sl = wc.sl;
  return attr;
}

Result<Ah> Ah::from_wc(Pd& pd, const Wc& wc, std::span<const std::byte, kGrhBytes> grh) {
  auto attr = way_back(pd.device(), wc, grh);
  if (!attr) return attr.error();
  return create(pd, *attr);
}

AhId Ah::id() const noexcept {
  return impl_->id;
}
const AhAttr& Ah::attr() const noexcept {
  return impl_->attr;
}

}  // namespace uroce
