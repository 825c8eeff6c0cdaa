// Sends "hello" and prints the answer. See server.cc.
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
  for (std::size_t i = 0; i < 5; ++i) memory.memory()[i] = static_cast<std::byte>("hello"[i]);
  must(qp.post_send({.sges = {&sge, 1}, .opcode = WrOpcode::kSend}), "no room for a send");
  complete(cq);  // of the receive: the send asked for none
  for (const auto byte : memory.memory()) std::cerr << static_cast<char>(byte);
  (void)cq.wait(std::chrono::milliseconds(100));  // meanwhile the answer is acknowledged
}
