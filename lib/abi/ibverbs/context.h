/// An open context, and what stands behind its operations.
#pragma once

#include <cstddef>

#include "abi/ibverbs/engine.h"
#include "abi/ibverbs/event_queue.h"
#include "abi/ibverbs/verbs.h"
#include "uroce/device.h"

namespace uroce::abi {

/// What ibv_open_device() makes. Programs find its operations by their place in the base class.
///
/// Threads: any. Lifetime: outlives what is made from it.
class Context final : public verbs_context {
 public:
  static Context& of(ibv_context* context) noexcept { return static_cast<Context&>(*verbs_get_ctx(context)); }

  explicit Context(ibv_device& of_device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Enters the engine. @return what is wrong otherwise.
  Status open();
  [[nodiscard]] Device& device() noexcept { return *device_; }
  /// An object cannot be made, and errno says so. That not all go together where there are several loops is
  /// told: the program cannot know it.
  static std::nullptr_t refuse(const Error& error);
  /// In a child that was forked: operations that post and poll fail from now on. All others look whether the
  /// context is here.
  void die() noexcept;
  /// Whether this is the process that opened it.
  [[nodiscard]] bool is_here() const noexcept { return is_here_; }

  EventQueue events;

 private:
  Device* device_ = nullptr;
  bool is_here_ = true;
};

/// Whether this is the process that made the object; in its children there is nothing behind it: calls fail
/// with EIO, and what is destroyed stays.
template <typename Object>
[[nodiscard]] bool is_here(const Object& object) noexcept {
  return Context::of(object.context).is_here();
}
/// Whether the object is there, and one that this context made.
template <typename Object>
[[nodiscard]] bool is_of(const ibv_context& context, const Object* object) noexcept {
  return object != nullptr && object->context == &context;
}
[[nodiscard]] inline bool is_here(ibv_context& context) noexcept {
  return Context::of(&context).is_here();
}

// What the headers of rdma-core call through the context. Each stands in the file of its object.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size);
int query_port(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attr, std::size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wcs);
int req_notify_cq(ibv_cq* cq, int solicited_only);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);

}  // namespace uroce::abi
