// What other libraries of rdma-core import: files of sysfs, and structs as the kernel lays them out.
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/verbs.h"

namespace {

/// Reads all of a small file. @return its bytes without a line break at the end, -1 with errno set.
int read_text(const std::string& path, char* text, std::size_t size) {
  const uroce::NotCancelled here;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t bytes = read(file, text, size);
  close(file);
  if (bytes <= 0) return static_cast<int>(bytes);
  const auto last = static_cast<std::size_t>(bytes) - 1;
  if (text[last] == '\n') {
    text[last] = '\0';
    return static_cast<int>(last);
  }
  if (last + 1 == size) return -1;  // no room for its end
  text[last + 1] = '\0';
  return static_cast<int>(bytes);
}

std::string find_sysfs() {
  const char* path = getuid() == geteuid() ? std::getenv("SYSFS_PATH") : nullptr;
  std::string found = path == nullptr ? "/sys" : path;
  while (found.ends_with('/')) found.pop_back();
  return found;
}

/// Fields that both have under the same name.
template <typename To, typename From>
void copy_path(To& to, const From& from) {
  to.dlid = from.dlid;
  to.slid = from.slid;
  to.raw_traffic = static_cast<decltype(to.raw_traffic)>(from.raw_traffic);
  to.flow_label = from.flow_label;
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  to.reversible = static_cast<decltype(to.reversible)>(from.reversible);
  to.numb_path = from.numb_path;
  to.pkey = from.pkey;
  to.sl = from.sl;
  to.mtu_selector = from.mtu_selector;
  to.mtu = static_cast<decltype(to.mtu)>(from.mtu);
  to.rate_selector = from.rate_selector;
  to.rate = from.rate;
  to.packet_life_time_selector = from.packet_life_time_selector;
  to.packet_life_time = from.packet_life_time;
  to.preference = from.preference;
}

}  // namespace

extern "C" {

const char* ibv_get_sysfs_path() {
  static const auto* path = new std::string(find_sysfs());
  return path->c_str();
}

int ibv_read_sysfs_file(const char* folder, const char* file, char* text, std::size_t size) {
  return read_text(std::string(folder) + "/" + file, text, size);
}

/// The device has no folder there.
int ibv_read_ibdev_sysfs_file(char*, std::size_t, ibv_device*, const char*, ...) {
  errno = ENOENT;
  return -1;
}

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) {
  std::memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof to->grh.dgid.raw);
  to->grh.flow_label = from->grh.flow_label;
  to->grh.sgid_index = from->grh.sgid_index;
  to->grh.hop_limit = from->grh.hop_limit;
  to->grh.traffic_class = from->grh.traffic_class;
  to->dlid = from->dlid;
  to->sl = from->sl;
  to->src_path_bits = from->src_path_bits;
  to->static_rate = from->static_rate;
  to->is_global = from->is_global;
  to->port_num = from->port_num;
}

/// All but qp_state, which the kernel does not say here.
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  to->cur_qp_state = static_cast<ibv_qp_state>(from->cur_qp_state);
  to->path_mtu = static_cast<ibv_mtu>(from->path_mtu);
  to->path_mig_state = static_cast<ibv_mig_state>(from->path_mig_state);
  to->qkey = from->qkey;
  to->rq_psn = from->rq_psn;
  to->sq_psn = from->sq_psn;
  to->dest_qp_num = from->dest_qp_num;
  to->qp_access_flags = from->qp_access_flags;
  to->cap = {.max_send_wr = from->max_send_wr,
             .max_recv_wr = from->max_recv_wr,
             .max_send_sge = from->max_send_sge,
             .max_recv_sge = from->max_recv_sge,
             .max_inline_data = from->max_inline_data};
  ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
  ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
  to->pkey_index = from->pkey_index;
  to->alt_pkey_index = from->alt_pkey_index;
  to->en_sqd_async_notify = from->en_sqd_async_notify;
  to->sq_draining = from->sq_draining;
  to->max_rd_atomic = from->max_rd_atomic;
  to->max_dest_rd_atomic = from->max_dest_rd_atomic;
  to->min_rnr_timer = from->min_rnr_timer;
  to->port_num = from->port_num;
  to->timeout = from->timeout;
  to->retry_cnt = from->retry_cnt;
  to->rnr_retry = from->rnr_retry;
  to->alt_port_num = from->alt_port_num;
  to->alt_timeout = from->alt_timeout;
}

void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) {
  std::memcpy(to->dgid.raw, from->dgid, sizeof to->dgid.raw);
  std::memcpy(to->sgid.raw, from->sgid, sizeof to->sgid.raw);
  copy_path(*to, *from);
}

void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) {
  std::memcpy(to->dgid, from->dgid.raw, sizeof to->dgid);
  std::memcpy(to->sgid, from->sgid.raw, sizeof to->sgid);
  copy_path(*to, *from);
}

}  // extern "C"
