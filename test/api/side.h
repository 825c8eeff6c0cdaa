/// What a test needs on one side of a transfer.
#pragma once

#include <string_view>

#include "api/ends.h"
#include "uroce/ah.h"

namespace uroce::api {

/// A QP with its CQ and memory.
struct Side {
  Side(End& device_end, QpType type) : Side(device_end, QpInitAttr{.type = type}) {}
  Side(End& device_end, const QpInitAttr& init, unsigned loop = 0)
      : end(device_end),
        cq(must(Cq::create(end.device, 64, loop))),
        qp(must(Qp::create(end.pd, cq, cq, init))),
        memory(must(Mr::alloc(end.pd, 64 * 1024, access::kAll))) {}

  Wc next() {
    Wc wc{.status = WcStatus::kGeneralErr};
    REQUIRE(cq.wait(5s));
    REQUIRE(cq.poll({&wc, 1}) == 1);
    return wc;
  }
  void receive(std::uint64_t wr_id, std::uint32_t at, std::uint32_t bytes) {
    const Sge sge = memory.sge(at, bytes);
    REQUIRE(qp.post_recv({.wr_id = wr_id, .sges = {&sge, 1}}));
  }
  /// The first `bytes` of the memory, signaled.
  void send_datagram(std::uint64_t wr_id, std::uint32_t bytes, const Ah& there, Qpn to, std::uint32_t qkey) {
    const Sge sge = memory.sge(0, bytes);
    REQUIRE(qp.post_send({.wr_id = wr_id,
                          .sges = {&sge, 1},
                          .flags = send_flag::kSignaled,
                          .ah = there.id(),
                          .remote_qpn = to,
                          .remote_qkey = qkey}));
  }

  End& end;
  Cq cq;
  Qp qp;
  Mr memory;
};

inline std::uint64_t counter(const Device& device, std::string_view name) {
  for (const Counter& one : device.counters()) {
    if (one.name == name) return one.value;
  }
  FAIL("no counter " << name);
  return 0;
}

}  // namespace uroce::api
