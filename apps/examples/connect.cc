// The same in one program that is server or client, connected by address and port, without pipes:
//   build/apps/example_connect             # the server, which says its addresses ...
//   build/apps/example_connect 10.77.0.1   # ... and the client, in another terminal
// Without hugepages: export UROCE_NO_HUGE=1. Over an interface: export UROCE_PORT=af_packet:eth0 UROCE_IP=...
#include "apps/examples/by_address.h"
#include "uroce/mr.h"

using namespace uroce;

constexpr std::uint16_t kPort = 7471;

int main(int argc, char** argv) {
  Device device = must(Device::open(must(load_config())));
  Cm cm = must(Cm::open(device));
  Pd pd = must(Pd::create(device));
  Cq cq = must(Cq::create(device, 16));
  Mr memory = must(Mr::alloc(pd, 5, access::kLocalWrite));
  Qp qp = must(Qp::create(pd, cq, cq, {.sq_sig_all = true}));
  must(qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));  // from now on it takes receives
  const Sge sge = memory.sge(0, 5);
  must(qp.post_recv({.sges = {&sge, 1}}), "no room for a receive");
  const bool is_client = argc > 1;
  Connection connection = is_client ? must(Connection::connect(cm, qp, {.to = address_of(argv[1], kPort)}))
                                    : accept_one(cm, qp, kPort);
  if (!is_client) complete(cq);  // the question
  for (std::size_t i = 0; i < 5; ++i)
    memory.memory()[i] = static_cast<std::byte>((is_client ? "hello" : "jello")[i]);
  must(qp.post_send({.sges = {&sge, 1}, .opcode = WrOpcode::kSend}), "no room for a send");
  complete(cq);  // the send has arrived
  if (!is_client) return connection.wait_end(std::chrono::seconds(10)) ? 0 : 1;
  complete(cq);  // the answer
  for (const auto byte : memory.memory()) std::cout << static_cast<char>(byte);
  std::cout << std::endl;
}
