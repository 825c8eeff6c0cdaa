// Waits for a message, changes it and sends it back. The two programs tell each other their QPs over pipes:
//   mkfifo pipe; build/apps/example_server <pipe | build/apps/example_client >pipe
// Without hugepages: export UROCE_NO_HUGE=1
#include <cstdlib>
#include <iostream>
#include <string>

#include "uroce/mr.h"
#include "uroce/qp.h"

using namespace uroce;

template <typename T>
T must(Result<T> result) {
  if (!result) std::exit((std::cerr << result.error().text << '\n', exit_code(result.error().code)));
  return std::move(result).value();
}

int main() {
  Device device = must(Device::open(must(apply_environment({}))));
  Pd pd = must(Pd::create(device));
  Cq cq = must(Cq::create(device, 16));
  Mr memory = must(Mr::alloc(pd, 5, access::kLocalWrite));
  Qp qp = must(Qp::create(pd, cq, cq, {}));
  std::cout << raw(qp.qpn()) << ' ' << to_string(device.gids().at(1).gid) << std::endl;
  std::string qpn, gid;
  std::cin >> qpn >> gid;
  QpAttr peer;
  peer.dest_qpn = Qpn(std::stoul(qpn));
  peer.dgid = Gid::parse(gid).value();
  const Sge sge = memory.sge(0, 5);
  if (!qp.connect(peer) || !qp.post_recv({.wr_id = 1, .sges = {&sge, 1}})) return 1;
  for (Wc wc; cq.wait(std::chrono::seconds(10));) {
    if (cq.poll({&wc, 1}) == 0) continue;
    if (!wc.ok() || wc.wr_id == 2) return wc.ok() ? 0 : 1;  // 2: the client has the answer
    memory.memory()[0] = std::byte{'j'};
    if (!qp.post_send({.wr_id = 2, .sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = 2})) return 1;
  }
  return 1;
}
