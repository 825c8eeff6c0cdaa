// The list of devices, which has one, and its contexts.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "abi/ibverbs/context.h"
#include "abi/ibverbs/errors.h"
#include "abi/ibverbs/verbs.h"

namespace uroce::abi {

namespace {

/// Providers of other devices look behind the base for what is theirs: it is zero.
struct ListedDevice {
  ibv_device device;
  std::byte tail[1024];
};

ibv_device& the_device() {
  static ListedDevice* const listed = [] {
    auto* made = new ListedDevice{};
    made->device.node_type = IBV_NODE_CA;
    made->device.transport_type = IBV_TRANSPORT_IB;
    std::strcpy(made->device.name, "uroce0");
    std::strcpy(made->device.dev_name, "uverbs0");
    std::strcpy(made->device.dev_path, "/sys/class/infiniband_verbs/uverbs0");
    std::strcpy(made->device.ibdev_path, "/sys/class/infiniband/uroce0");
    return made;
  }();
  return listed->device;
}

}  // namespace

Context::Context(ibv_device& of_device) : verbs_context{} {
  sz = sizeof(verbs_context);
  verbs_context::query_device_ex = abi::query_device_ex;
  verbs_context::query_port = abi::query_port;
  verbs_context::query_rt_values = abi::query_rt_values;
  verbs_context::alloc_td = abi::alloc_td;
  verbs_context::dealloc_td = abi::dealloc_td;
  verbs_context::alloc_parent_domain = abi::alloc_parent_domain;
  verbs_context::create_cq_ex = abi::create_cq_ex;
  verbs_context::modify_cq = abi::modify_cq;
  verbs_context::create_qp_ex = abi::create_qp_ex;
  verbs_context::create_srq_ex = abi::create_srq_ex;
  verbs_context::get_srq_num = abi::get_srq_num;
  verbs_context::open_xrcd = abi::open_xrcd;
  verbs_context::close_xrcd = abi::close_xrcd;
  context.device = &of_device;
  context.ops.alloc_mw = abi::alloc_mw;
  context.ops.bind_mw = abi::bind_mw;
  context.ops.dealloc_mw = abi::dealloc_mw;
  context.ops.poll_cq = abi::poll_cq;
  context.ops.req_notify_cq = abi::req_notify_cq;
  context.ops.post_srq_recv = abi::post_srq_recv;
  context.ops.post_send = abi::post_send;
  context.ops.post_recv = abi::post_recv;
  context.cmd_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);  // programs pass it on
  context.async_fd = events.fd();
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
}

Context::~Context() {
  if (device_ != nullptr) Engine::instance().leave(*this);
  if (context.cmd_fd >= 0) close(context.cmd_fd);
  pthread_mutex_destroy(&context.mutex);
}

Status Context::open() {
  if (events.fd() < 0) return Error{Errc::kSystem, "no descriptor is left for another eventfd"};
  auto device = Engine::instance().enter(*this);
  if (!device) return device.error();
  device_ = *device;
  context.num_comp_vectors = static_cast<int>(device_->loops());
  return {};
}

std::nullptr_t Context::refuse(const Error& error) {
  if (error.code == Errc::kOtherLoop) {
    std::fprintf(stderr, "uroce: %s (comp_vector is the loop of a CQ)\n", error.text.c_str());
  }
  return fail_null(to_errno(error.code));
}

void Context::die() noexcept {
  is_here_ = false;
  context.ops.bind_mw = [](ibv_qp*, ibv_mw*, ibv_mw_bind*) { return EIO; };
  context.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return -EIO; };
  context.ops.req_notify_cq = [](ibv_cq*, int) { return EIO; };
  context.ops.post_send = [](ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
    *bad_wr = wr;
    return EIO;
  };
  context.ops.post_recv = [](ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    *bad_wr = wr;
    return EIO;
  };
  context.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    *bad_wr = wr;
    return EIO;
  };
}

}  // namespace uroce::abi

using namespace uroce;
using namespace uroce::abi;

extern "C" {

ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  auto** list = static_cast<ibv_device**>(std::calloc(2, sizeof(ibv_device*)));
  if (list == nullptr) return fail_null(ENOMEM);
  list[0] = &the_device();
  if (num_devices != nullptr) *num_devices = 1;
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

int ibv_get_device_index(ibv_device*) {
  return 1;
}

__be64 ibv_get_device_guid(ibv_device*) {
  const NotCancelled here;
  const auto config = read_config();
  return guid_of(config ? *config : Config{});
}

ibv_context* ibv_open_device(ibv_device* device) {
  return guarded([device]() -> ibv_context* {
    errno = 0;
    auto context = std::make_unique<Context>(*device);
    if (Status opened = context->open(); !opened) {
      const int error = to_errno(opened.error());
      std::fprintf(stderr, "uroce: %s\n", opened.error().text.c_str());
      return fail_null(error);
    }
    return &context.release()->context;
  });
}

int ibv_close_device(ibv_context* context) {
  if (!Context::of(context).is_here()) return 0;
  const NotCancelled here;
  delete &Context::of(context);
  return 0;
}

ibv_context* ibv_import_device(int) {
  return fail_null(EOPNOTSUPP);
}

int ibv_fork_init() {
  return 0;
}

/// The engine copies with the processor: there are no pages that a child's write could take away.
ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void*, std::size_t) {
  return 0;
}

int ibv_dofork_range(void*, std::size_t) {
  return 0;
}

}  // extern "C"
