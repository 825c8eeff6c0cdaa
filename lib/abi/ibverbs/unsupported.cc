// Names that other versions and other providers need to be there, for things that this library cannot do.
//
// The system's libmlx5 and libefa, which many programs are linked with, import what providers call; nobody
// calls it here. Programs of newer versions of rdma-core import what came after 1.14.
#include <cerrno>

#pragma GCC visibility push(default)
extern "C" {

/// A call that answers an error number.
#define UROCE_UNSUPPORTED(name) \
  int name() {                  \
    return -EOPNOTSUPP;         \
  }
/// A call of programs that answers errno.
#define UROCE_REFUSED(name) \
  int name() {              \
    return EOPNOTSUPP;      \
  }
/// A call that makes something.
#define UROCE_UNSUPPORTED_POINTER(name) \
  void* name() {                        \
    errno = EOPNOTSUPP;                 \
    return nullptr;                     \
  }
/// A call without an answer, or one that succeeds by doing nothing.
#define UROCE_NOTHING(name) \
  int name() {              \
    return 0;               \
  }

UROCE_NOTHING(__ioctl_final_num_attrs)
UROCE_NOTHING(__verbs_log)
UROCE_UNSUPPORTED_POINTER(_verbs_init_and_alloc_context)
UROCE_UNSUPPORTED(execute_ioctl)
UROCE_UNSUPPORTED(ibv_cmd_advise_mr)
UROCE_UNSUPPORTED(ibv_cmd_alloc_dm)
UROCE_UNSUPPORTED(ibv_cmd_alloc_mw)
UROCE_UNSUPPORTED(ibv_cmd_alloc_pd)
UROCE_UNSUPPORTED(ibv_cmd_attach_mcast)
UROCE_UNSUPPORTED(ibv_cmd_close_xrcd)
UROCE_UNSUPPORTED(ibv_cmd_create_ah)
UROCE_UNSUPPORTED(ibv_cmd_create_counters)
UROCE_UNSUPPORTED(ibv_cmd_create_cq)
UROCE_UNSUPPORTED(ibv_cmd_create_cq_ex)
UROCE_UNSUPPORTED(ibv_cmd_create_flow)
UROCE_UNSUPPORTED(ibv_cmd_create_flow_action_esp)
UROCE_UNSUPPORTED(ibv_cmd_create_qp)
UROCE_UNSUPPORTED(ibv_cmd_create_qp_ex)
UROCE_UNSUPPORTED(ibv_cmd_create_qp_ex2)
UROCE_UNSUPPORTED(ibv_cmd_create_rwq_ind_table)
UROCE_UNSUPPORTED(ibv_cmd_create_srq)
UROCE_UNSUPPORTED(ibv_cmd_create_srq_ex)
UROCE_UNSUPPORTED(ibv_cmd_create_wq)
UROCE_UNSUPPORTED(ibv_cmd_dealloc_mw)
UROCE_UNSUPPORTED(ibv_cmd_dealloc_pd)
UROCE_UNSUPPORTED(ibv_cmd_dereg_mr)
UROCE_UNSUPPORTED(ibv_cmd_destroy_ah)
UROCE_UNSUPPORTED(ibv_cmd_destroy_counters)
UROCE_UNSUPPORTED(ibv_cmd_destroy_cq)
UROCE_UNSUPPORTED(ibv_cmd_destroy_flow)
UROCE_UNSUPPORTED(ibv_cmd_destroy_flow_action)
UROCE_UNSUPPORTED(ibv_cmd_destroy_qp)
UROCE_UNSUPPORTED(ibv_cmd_destroy_rwq_ind_table)
UROCE_UNSUPPORTED(ibv_cmd_destroy_srq)
UROCE_UNSUPPORTED(ibv_cmd_destroy_wq)
UROCE_UNSUPPORTED(ibv_cmd_detach_mcast)
UROCE_UNSUPPORTED(ibv_cmd_free_dm)
UROCE_UNSUPPORTED(ibv_cmd_get_context)
UROCE_UNSUPPORTED(ibv_cmd_modify_cq)
UROCE_UNSUPPORTED(ibv_cmd_modify_flow_action_esp)
UROCE_UNSUPPORTED(ibv_cmd_modify_qp)
UROCE_UNSUPPORTED(ibv_cmd_modify_qp_ex)
UROCE_UNSUPPORTED(ibv_cmd_modify_srq)
UROCE_UNSUPPORTED(ibv_cmd_modify_wq)
UROCE_UNSUPPORTED(ibv_cmd_open_qp)
UROCE_UNSUPPORTED(ibv_cmd_open_xrcd)
UROCE_UNSUPPORTED(ibv_cmd_poll_cq)
UROCE_UNSUPPORTED(ibv_cmd_post_recv)
UROCE_UNSUPPORTED(ibv_cmd_post_send)
UROCE_UNSUPPORTED(ibv_cmd_post_srq_recv)
UROCE_UNSUPPORTED(ibv_cmd_query_context)
UROCE_UNSUPPORTED(ibv_cmd_query_device_any)
UROCE_UNSUPPORTED(ibv_cmd_query_mr)
UROCE_UNSUPPORTED(ibv_cmd_query_port)
UROCE_UNSUPPORTED(ibv_cmd_query_qp)
UROCE_UNSUPPORTED(ibv_cmd_query_srq)
UROCE_UNSUPPORTED(ibv_cmd_read_counters)
UROCE_UNSUPPORTED(ibv_cmd_reg_dm_mr)
UROCE_UNSUPPORTED(ibv_cmd_reg_dmabuf_mr)
UROCE_UNSUPPORTED(ibv_cmd_reg_mr)
UROCE_UNSUPPORTED(ibv_cmd_req_notify_cq)
UROCE_UNSUPPORTED(ibv_cmd_rereg_mr)
UROCE_UNSUPPORTED(ibv_cmd_resize_cq)
UROCE_NOTHING(verbs_allow_disassociate_destroy)
UROCE_NOTHING(verbs_init_cq)
UROCE_UNSUPPORTED_POINTER(verbs_open_device)
UROCE_NOTHING(verbs_register_driver_34)
UROCE_NOTHING(verbs_set_ops)
UROCE_NOTHING(verbs_uninit_context)

// 1.1, for providers older than versions of the private part
UROCE_NOTHING(ibv_register_driver)

// 1.15 to 1.18: handles of placement hints, buffers, counters of completions
UROCE_UNSUPPORTED_POINTER(ibv_alloc_dmah)
UROCE_REFUSED(ibv_dealloc_dmah)
UROCE_UNSUPPORTED_POINTER(ibv_reg_mr_ex)
UROCE_UNSUPPORTED(ibv_dm_export_dmabuf_fd)
UROCE_REFUSED(ibv_query_port_speed)
UROCE_UNSUPPORTED_POINTER(ibv_alloc_buf)
UROCE_NOTHING(ibv_free_buf)
UROCE_UNSUPPORTED_POINTER(ibv_reg_buf_mr)
UROCE_REFUSED(_ibv_query_comp_cntr_caps)
UROCE_UNSUPPORTED_POINTER(ibv_create_comp_cntr)
UROCE_REFUSED(ibv_destroy_comp_cntr)
UROCE_UNSUPPORTED(ibv_export_buf_dmabuf_fd)
UROCE_REFUSED(ibv_inc_comp_cntr)
UROCE_REFUSED(ibv_inc_err_comp_cntr)
UROCE_REFUSED(ibv_qp_attach_comp_cntr)
UROCE_REFUSED(ibv_read_comp_cntr)
UROCE_REFUSED(ibv_read_err_comp_cntr)
UROCE_REFUSED(ibv_set_comp_cntr)
UROCE_REFUSED(ibv_set_err_comp_cntr)

}  // extern "C"
#pragma GCC visibility pop
