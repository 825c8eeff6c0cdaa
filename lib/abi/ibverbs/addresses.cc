#include "abi/ibverbs/addresses.h"

#include <cstring>

#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/objects.h"

namespace uroce::abi {

AhAttr path_of(const ibv_ah_attr& attr) noexcept {
  AhAttr path{.sgid_index = attr.grh.sgid_index,
              .traffic_class = attr.grh.traffic_class,
              .hop_limit = attr.grh.hop_limit,
              .flow_label = attr.grh.flow_label & 0xf'ffff,
              .sl = static_cast<std::uint8_t>(attr.sl & 7)};
  std::memcpy(path.dgid.raw.data(), attr.grh.dgid.raw, sizeof attr.grh.dgid.raw);
  return path;
}

namespace {

/// The way back to the sender of a datagram.
Result<Ah> way_back(Pd& pd, const ibv_wc& wc, const ibv_grh& grh) {
  const Wc received{.src_qpn = Qpn{wc.src_qp},
                    .flags = static_cast<std::uint8_t>(wc.wc_flags),
                    .vlan = wc.slid};  // polling put it there
  static_assert(sizeof(ibv_grh) == kGrhBytes);
  return Ah::from_wc(
      pd, received,
      std::span<const std::byte, kGrhBytes>(reinterpret_cast<const std::byte*>(&grh), kGrhBytes));
}

}  // namespace

}  // namespace uroce::abi

using namespace uroce;
using namespace uroce::abi;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* base, ibv_ah_attr* attr) {
  if (!is_here(*base)) return fail_null(EIO);
  if (attr->is_global == 0 || attr->port_num != 1) return fail_null(EINVAL);
  return guarded([&]() -> ibv_ah* {
    auto& pd = cast<ProtectionDomain>(base);
    auto made = Ah::create(pd.pd(), path_of(*attr));
    if (!made) return fail_null(to_errno(made.error().code));
    auto ah = std::make_unique<AddressHandle>();
    ah->context = base->context;
    ah->pd = base;
    ah->handle = static_cast<std::uint32_t>(raw(made->id()));
    ah->ah.emplace(std::move(*made));
    ah->of_pd = Use(pd.users);
    return ah.release();
  });
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* attr) {
  if (!is_here(*context)) return fail(EIO), -1;
  if (port_num != 1 || (wc->wc_flags & IBV_WC_GRH) == 0) return fail(EINVAL), -1;
  auto pd = Pd::create(Context::of(context).device());
  if (!pd) return fail(to_errno(pd.error().code)), -1;
  const auto back = way_back(*pd, *wc, *grh);
  if (!back) return fail(to_errno(back.error().code)), -1;
  *attr = address_of<ibv_ah_attr>(back->attr());
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port_num) {
  ibv_ah_attr attr{};
  if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

int ibv_destroy_ah(ibv_ah* ah) {
  if (is_here(*ah)) delete &cast<AddressHandle>(ah);
  return 0;
}

}  // extern "C"
