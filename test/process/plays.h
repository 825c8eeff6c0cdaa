/// What tests of features between two processes begin with.
#pragma once

#include <cstdlib>

#include "process/two_sides.h"

namespace uroce::test {

/// Over the link that the program was told of; see meson.build.
inline bool played(void (*play)(Side&), bool credits = false) {
  const char* link = std::getenv("FEATURES_LINK");
  const std::string name = std::to_string(::getpid());
  if (link == nullptr || std::string(link) == "shm") {
    const std::string port = "shm:features" + name;
    return in_two_processes(port, port, play, credits);
  }
  const std::string port = "memif:/tmp/uroce-features-" + name + ".sock";
  return in_two_processes(port + ",role=server", port + ",role=client", play, credits);
}

/// Connects a QP to the peer's, which is at the same.
inline void join(Side& side, Qp& qp) {
  side.own().qpns[0] = qp.qpn();
  side.meet();
  must(qp.connect(side.towards_peer()));
  side.meet();
}

inline Qp connected(Side& side, const QpInitAttr& init) {
  Qp qp = must(Qp::create(side.pd, side.cq, side.cq, init));
  join(side, qp);
  return qp;
}

inline void receive(Side& side, Qp& qp, std::uint64_t wr_id, std::size_t at, std::uint32_t bytes) {
  const Sge sge = side.memory.sge(at, bytes);
  require(qp.post_recv({.wr_id = wr_id, .sges = {&sge, 1}}), "a receive was not taken");
}

inline void send(Side& side, Qp& qp, SendWr wr, std::size_t at, std::uint32_t bytes) {
  const Sge sge = side.memory.sge(at, bytes);
  wr.sges = {&sge, 1};
  wr.flags |= send_flag::kSignaled;
  require(qp.post_send(wr), "a send was not taken");
}

}  // namespace uroce::test
