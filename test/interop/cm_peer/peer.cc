#include "peer.h"

#include <cstdio>

namespace uroce::interop {

CmEvent Port::next(CmEventType type, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  CmEvent event;
  while (channel.wait(event, end - std::chrono::steady_clock::now())) {
    if (event.type == type) return event;
    if (event.type == CmEventType::kTimewaitExit) continue;
    throw std::runtime_error("the event is '" + std::string(to_string(event.type)) + "' (" +
                             std::string(to_string(event.reason)) + "; " + event.text + "), not '" +
                             std::string(to_string(type)) + "'");
  }
  throw std::runtime_error("no event '" + std::string(to_string(type)) + "' in time");
}

Node::Node(Port& its_port, QpType type, const Options& its_options)
    : port(its_port),
      options(its_options),
      headroom(type == QpType::kUd ? kGrhBytes : 0),
      send_cq(need(Cq::create(port.device, options.messages + 1))),
      recv_cq(need(Cq::create(port.device, options.messages + 1))),
      qp(need(Qp::create(port.pd, send_cq, recv_cq,
                         {.type = type,
                          .max_send_wr = options.messages + 1,
                          .max_recv_wr = options.messages + 1,
                          .sq_sig_all = true}))),
      memory(need(Mr::alloc(port.pd, headroom + options.bytes, access::kLocalWrite))) {
  if (type == QpType::kUd) {
    need_ok(qp.connect({.qkey = kCmQkey}));
  } else {
    need_ok(qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
  }
  post_receives();
}

void Node::post_receives() {
  const Sge sge = memory.sge(0, headroom + options.bytes);
  for (std::uint32_t i = 0; i < options.messages; ++i)
    need_true(qp.post_recv({.wr_id = i, .sges = {&sge, 1}}), "receive not taken");
}

void Node::post_sends(const SendWr& pattern) {
  const Sge sge = memory.sge(headroom, options.bytes);
  SendWr wr = pattern;
  wr.sges = {&sge, 1};
  for (std::uint32_t i = 0; i < options.messages; ++i) need_true(qp.post_send(wr), "send not taken");
}

Wc Node::wait(Cq& cq, std::uint32_t count) {
  Wc wc;
  for (std::uint32_t done = 0; done < count;) {
    need_true(cq.wait(20s), std::to_string(done) + " of " + std::to_string(count) + " completions in time");
    if (cq.poll({&wc, 1}) == 0) continue;
    if (!wc.ok()) throw std::runtime_error(std::string(to_string(wc.status)) + ": " + qp.error_text());
    const bool is_receive = wc.opcode == WcOpcode::kRecv;
    need_true(!is_receive || wc.byte_len == headroom + options.bytes,
              "a message of " + std::to_string(wc.byte_len) + " bytes");
    ++done;
  }
  return wc;
}

void say_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

}  // namespace uroce::interop
