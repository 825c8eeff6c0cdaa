/// Address vectors and QP attributes of verbs and of the C++ API. To a program they go as
/// <infiniband/verbs.h> has them, to librdmacm as the kernel would: the fields have the same names.
#pragma once

#include <cstring>

#include "abi/ibverbs/verbs.h"
#include "uroce/qp_attr.h"

namespace uroce::abi {

[[nodiscard]] AhAttr path_of(const ibv_ah_attr& attr) noexcept;

template <typename To>
[[nodiscard]] To address_of(const AhAttr& path) noexcept {
  To attr{};
  static_assert(sizeof attr.grh.dgid == sizeof path.dgid.raw);
  std::memcpy(&attr.grh.dgid, path.dgid.raw.data(), sizeof attr.grh.dgid);
  attr.grh.flow_label = path.flow_label;
  attr.grh.sgid_index = static_cast<std::uint8_t>(path.sgid_index);
  attr.grh.hop_limit = path.hop_limit;
  attr.grh.traffic_class = path.traffic_class;
  attr.sl = path.sl;
  attr.is_global = 1;
  attr.port_num = 1;
  return attr;
}

/// All but the state.
template <typename To>
[[nodiscard]] To attributes_of(const QpAttr& attr) noexcept {
  To out{};
  out.path_mtu = static_cast<decltype(out.path_mtu)>(attr.path_mtu);
  out.path_mig_state = IBV_MIG_MIGRATED;
  out.qkey = attr.qkey;
  out.rq_psn = attr.rq_psn.value();
  out.sq_psn = attr.sq_psn.value();
  out.dest_qp_num = raw(attr.dest_qpn);
  out.qp_access_flags = attr.access_flags;
  out.ah_attr = address_of<decltype(out.ah_attr)>(attr.path());
  out.max_rd_atomic = attr.max_rd_atomic;
  out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  out.min_rnr_timer = attr.min_rnr_timer;
  out.port_num = 1;
  out.timeout = attr.timeout;
  out.retry_cnt = attr.retry_cnt;
  out.rnr_retry = attr.rnr_retry;
  return out;
}

}  // namespace uroce::abi
