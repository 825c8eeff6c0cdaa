// Waits for a message, changes it and sends it back. The two programs tell each other their QPs over pipes:
//   mkfifo pipe; build/apps/example_server <pipe | build/apps/example_client >pipe
// Without hugepages: export UROCE_NO_HUGE=1. How to do without pipes: connect.cc.
#include "apps/examples/meet.h"
#include "apps/examples/must.h"
#include "uroce/mr.h"
#include "uroce/qp.h"

using namespace uroce;

int main() {
  Device device = must(Device::open(must(load_config())));
  Pd pd = must(Pd::create(device));
  Cq cq = must(Cq::create(device, 16));
  Mr memory = must(Mr::alloc(pd, 5, access::kLocalWrite));
  Qp qp = must(Qp::create(pd, cq, cq, {}));
  meet(device, qp);
  const Sge sge = memory.sge(0, 5);
  must(qp.post_recv({.sges = {&sge, 1}}), "no room for a receive");
  complete(cq);
  memory.memory()[0] = std::byte{'j'};
  must(qp.post_send({.sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = send_flag::kSignaled}),
       "no room for a send");
  complete(cq);  // the client has the answer
}
