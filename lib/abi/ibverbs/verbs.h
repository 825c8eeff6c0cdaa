/// <infiniband/verbs.h> for those who define what it declares: all of it is exported, and none of its macros
/// stands in the way of a definition.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

extern "C" {

// Not in the header, but imported by programs and by other libraries of rdma-core.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port_num, unsigned index, unsigned* type);
const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* folder, const char* file, char* text, std::size_t size);
int ibv_read_ibdev_sysfs_file(char* text, std::size_t size, ibv_device* device, const char* format, ...);
int ibv_dontfork_range(void* base, std::size_t size);
int ibv_dofork_range(void* base, std::size_t size);
void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from);

}  // extern "C"
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
