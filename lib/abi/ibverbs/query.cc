// What device and port are.
#include <algorithm>
#include <cstring>

#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"

namespace uroce::abi {

namespace {

constexpr std::uint32_t kVendorId = 0x7572;  // not one of the IEEE's: programs know those of adapters
constexpr int kMany = 1 << 20;               // of what only memory limits
constexpr int kGidTable = 16;                // entries at least: addresses come and go
constexpr std::uint32_t kMaxMessage = 1U << 30;
constexpr std::uint16_t kDefaultPkey = 0xffff;
constexpr std::uint64_t kKhzOfNanoseconds = 1'000'000;

unsigned capabilities() noexcept {
  return IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
         IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_XRC |
         IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
}

void describe(Device& device, ibv_device_attr& attr) {
  const Limits& limits = device.limits();
  const auto number = [](std::uint64_t value) {
    return static_cast<int>(std::min<std::uint64_t>(value, INT32_MAX));
  };
  attr = {};
  std::strcpy(attr.fw_ver, UROCE_VERSION);
  attr.node_guid = attr.sys_image_guid = guid_of(device.config());
  attr.max_mr_size = UINT64_MAX >> 1;
  attr.page_size_cap = ~std::uint64_t{0xfff};
  attr.vendor_id = kVendorId;
  attr.vendor_part_id = 1;
  attr.hw_ver = 1;
  attr.max_qp = number(limits.max_qp);
  attr.max_qp_wr = number(limits.max_qp_wr);
  attr.device_cap_flags = capabilities();
  attr.max_sge = attr.max_sge_rd = attr.max_srq_sge = number(limits.max_sge);
  attr.max_cqe = number(limits.max_cqe);
  attr.max_cq = attr.max_mr = attr.max_pd = attr.max_mw = attr.max_ah = attr.max_srq = kMany;
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = number(limits.max_rd_atomic);
  attr.max_res_rd_atom = number(std::uint64_t{limits.max_rd_atomic} * limits.max_qp);
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_mcast_grp = number(limits.max_mcast_grp);
  attr.max_mcast_qp_attach = number(limits.max_mcast_qp_attach);
  attr.max_total_mcast_qp_attach = number(std::uint64_t{limits.max_mcast_grp} * limits.max_mcast_qp_attach);
  attr.max_srq_wr = number(limits.max_qp_wr);
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = 15;  // 134 ms: a thread that sleeps may answer
  attr.phys_port_cnt = 1;
}

/// A link between processes counts as up before another one is there, as a cable to a switch would.
bool is_active(Device& device) {
  return device.ends() != 0 || device.port_state() == PortState::kActive;
}

bool is_port(std::uint32_t port_num) noexcept {
  return port_num == 1;
}

/// The zero GID where there is none.
GidEntry gid_at(Context& context, std::uint32_t index) {
  const auto gids = context.device().gids();
  return index < gids.size() ? gids[index] : GidEntry{};
}

std::uint32_t gid_table_len(Context& context) {
  return std::max<std::uint32_t>(kGidTable, static_cast<std::uint32_t>(context.device().gids().size()));
}

ibv_gid_entry entry_of(const GidEntry& gid, std::uint32_t index) noexcept {
  ibv_gid_entry entry{};
  std::memcpy(entry.gid.raw, gid.gid.raw.data(), sizeof entry.gid.raw);
  entry.gid_index = index;
  entry.port_num = 1;
  entry.gid_type = raw(gid.type);
  return entry;
}

}  // namespace

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex all{};
  describe(Context::of(context).device(), all.orig_attr);
  all.completion_timestamp_mask = UINT64_MAX;
  all.hca_core_clock = kKhzOfNanoseconds;
  all.device_cap_flags_ex = capabilities();
  all.cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX};
  all.phys_port_cnt_ex = 1;
  std::memset(static_cast<void*>(attr), 0, size);
  std::memcpy(static_cast<void*>(attr), &all, std::min(size, sizeof all));
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attr, std::size_t size) {
  if (!is_here(*context)) return EIO;
  if (!is_port(port_num)) return EINVAL;
  Context& own = Context::of(context);
  ibv_port_attr all{};
  const bool is_up = is_active(own.device());
  all.state = is_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  all.max_mtu = IBV_MTU_4096;
  all.active_mtu = static_cast<ibv_mtu>(raw(own.device().active_mtu()));
  all.gid_tbl_len = static_cast<int>(gid_table_len(own));
  all.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  all.max_msg_sz = kMaxMessage;
  all.pkey_tbl_len = 1;
  all.max_vl_num = 1;
  all.active_width = 2;            // 4 lanes
  all.active_speed = 32;           // of 25 Gb/s
  all.phys_state = is_up ? 5 : 3;  // LinkUp, Disabled
  all.link_layer = IBV_LINK_LAYER_ETHERNET;
  all.flags = IBV_QPF_GRH_REQUIRED;
  std::memset(static_cast<void*>(attr), 0, size);
  std::memcpy(static_cast<void*>(attr), &all, std::min(size, sizeof all));
  return 0;
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if (!is_here(*context)) return EIO;
  if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  const auto now = static_cast<std::int64_t>(Context::of(context).device().now_ns());
  if (values->comp_mask != 0) {
    values->raw_clock = {.tv_sec = 0, .tv_nsec = now};  // in the unit of completions' timestamps, undivided
  }
  return 0;
}

}  // namespace uroce::abi

using namespace uroce;
using namespace uroce::abi;

extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  describe(Context::of(context).device(), *attr);
  return 0;
}

/// For programs older than query_port() of the context: they know the fields up to link_layer and flags.
int ibv_query_port(ibv_context* context, std::uint8_t port_num, _compat_ibv_port_attr* attr) {
  return abi::query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(attr),
                         offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, std::uint8_t port_num, int index, ibv_gid* gid) {
  if (!is_here(*context)) return fail(EIO), -1;
  Context& own = Context::of(context);
  if (!is_port(port_num) || index < 0 || static_cast<std::uint32_t>(index) >= gid_table_len(own)) {
    errno = EINVAL;
    return -1;
  }
  std::memcpy(gid->raw, gid_at(own, static_cast<std::uint32_t>(index)).gid.raw.data(), sizeof gid->raw);
  return 0;
}

int ibv_query_gid_type(ibv_context* context, std::uint8_t port_num, unsigned index, unsigned* type) {
  if (!is_here(*context)) return fail(EIO), -1;
  Context& own = Context::of(context);
  if (!is_port(port_num) || index >= gid_table_len(own)) {
    errno = EINVAL;
    return -1;
  }
  // Here, unlike in enum ibv_gid_type, 0 stands for InfiniBand and RoCE v1, and 1 for RoCE v2.
  const GidEntry gid = gid_at(own, index);
  *type = !gid.gid.is_zero() && gid.type == GidType::kRoceV2 ? 1 : 0;
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port_num, std::uint32_t gid_index,
                      ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_size) {
  if (!is_here(*context)) return EIO;
  Context& own = Context::of(context);
  if (flags != 0) return EOPNOTSUPP;
  if (!is_port(port_num) || gid_index >= gid_table_len(own)) return EINVAL;
  const GidEntry gid = gid_at(own, gid_index);
  if (gid.gid.is_zero()) return ENODATA;
  const ibv_gid_entry found = entry_of(gid, gid_index);
  std::memcpy(static_cast<void*>(entry), &found, std::min(entry_size, sizeof found));
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                             std::uint32_t flags, std::size_t entry_size) {
  if (!is_here(*context)) return -EIO;
  if (flags != 0) return -EOPNOTSUPP;
  if (entry_size < sizeof(ibv_gid_entry)) return -EINVAL;
  std::size_t count = 0;
  std::uint32_t index = 0;
  for (const GidEntry& gid : Context::of(context).device().gids()) {
    const ibv_gid_entry found = entry_of(gid, index++);
    if (gid.gid.is_zero()) continue;
    if (count == max_entries) return -EINVAL;
    auto* const to = reinterpret_cast<std::byte*>(entries) + count++ * entry_size;
    std::memset(to, 0, entry_size);
    std::memcpy(to, &found, sizeof found);
  }
  return static_cast<ssize_t>(count);
}

int ibv_query_pkey(ibv_context*, std::uint8_t port_num, int index, __be16* pkey) {
  if (!is_port(port_num) || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = kDefaultPkey;
  return 0;
}

int ibv_get_pkey_index(ibv_context*, std::uint8_t port_num, __be16 pkey) {
  if (is_port(port_num) && pkey == kDefaultPkey) return 0;
  errno = EINVAL;
  return -1;
}

int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) {
  return 0;  // a packet that comes twice is not written twice, but the copy of one has no order
}

int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, std::uint8_t*, std::uint16_t*) {
  return fail(EOPNOTSUPP);
}

}  // extern "C"
