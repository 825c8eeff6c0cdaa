// Datagrams: udaddy, which asks for a service, and mckey.
#include <arpa/inet.h>

#include "peer.h"

namespace uroce::interop {
namespace {

/// What udaddy and mckey send: their QPN as immediate data.
SendWr to_peer(const Node& node, const Ah& ah, Qpn qpn) {
  return {.opcode = WrOpcode::kSendWithImm,
          .imm_data = htonl(raw(node.qp.qpn())),
          .ah = ah.id(),
          .remote_qpn = qpn,
          .remote_qkey = kCmQkey};
}

void udaddy_client(Port& port, const Options& options) {
  Node node(port, QpType::kUd, options);
  node.id = need(port.channel.create_id(PortSpace::kUdp));
  need_ok(port.channel.resolve_service(node.id, {.to = options.to}));
  const CmEvent reply = port.next(CmEventType::kServiceReply);
  need_true(reply.service_status == 0, "the service is refused");
  need_true(reply.peer.qkey == kCmQkey, "the Q_Key is another one");
  const Ah ah = need(Ah::create(port.pd, reply.path));
  node.post_sends(to_peer(node, ah, reply.peer.qpn));
  node.wait(node.send_cq, options.messages);
  const Wc wc = node.wait(node.recv_cq, options.messages);
  need_true(wc.src_qpn == reply.peer.qpn, "the answers come from another QP");
  need_true(ntohl(wc.imm_data) == raw(reply.peer.qpn), "the immediate data are not the peer's QPN");
  port.channel.close(node.id);
}

void udaddy_server(Port& port, const Options& options) {
  Node node(port, QpType::kUd, options);
  const CmId listener = need(port.channel.create_id(PortSpace::kUdp));
  need_ok(port.channel.bind(listener, {.port = options.port}));
  need_ok(port.channel.listen(listener, 1));
  say_ready();
  const CmEvent request = port.next(CmEventType::kServiceRequest);
  need_ok(port.channel.reply_service(request.id, {.qpn = node.qp.qpn()}));
  const Wc wc = node.wait(node.recv_cq, options.messages);
  const Ah ah = need(Ah::from_wc(port.pd, wc, node.memory.memory().first<kGrhBytes>()));
  need_true(ntohl(wc.imm_data) == raw(wc.src_qpn), "the immediate data are not the peer's QPN");
  node.post_sends(to_peer(node, ah, wc.src_qpn));
  node.wait(node.send_cq, options.messages);
  port.channel.close(request.id);
  port.channel.close(listener);
}

}  // namespace

void run_udaddy(Port& port, const Options& options) {
  options.to == CmAddress{} ? udaddy_server(port, options) : udaddy_client(port, options);
}

void run_mckey(Port& port, const Options& options) {
  constexpr Qpn kMulticast{0xff'ffff};
  Node node(port, QpType::kUd, options);
  if (!options.sender) {
    need_ok(node.qp.attach_multicast(options.to.ip));
    say_ready();
    const Wc wc = node.wait(node.recv_cq, options.messages);
    need_true(ntohl(wc.imm_data) == raw(wc.src_qpn), "the immediate data are not the sender's QPN");
    return;
  }
  const AhAttr path = need(port.cm.route(options.to.ip));
  const Ah ah = need(Ah::create(port.pd, path));
  node.post_sends(to_peer(node, ah, kMulticast));
  node.wait(node.send_cq, options.messages);
}

}  // namespace uroce::interop
