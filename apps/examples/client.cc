// Sends "hello" and prints the answer. See server.cc.
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
  for (std::size_t i = 0; i < 5; ++i) memory.memory()[i] = static_cast<std::byte>("hello"[i]);
  if (!qp.connect(peer) || !qp.post_recv({.wr_id = 1, .sges = {&sge, 1}})) return 1;
  if (!qp.post_send({.wr_id = 2, .sges = {&sge, 1}, .opcode = WrOpcode::kSend})) return 1;
  for (Wc wc; cq.wait(std::chrono::seconds(10));) {
    if (cq.poll({&wc, 1}) == 0) continue;
    for (const auto byte : memory.memory()) std::cerr << static_cast<char>(byte);
    (void)cq.wait(std::chrono::milliseconds(100));  // meanwhile the answer is acknowledged
    return wc.ok() ? 0 : 1;
  }
  return 1;
}
