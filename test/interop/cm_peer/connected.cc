// Connections: ucmatose and cmtime.
#include "peer.h"

namespace uroce::interop {
namespace {

using Nodes = std::vector<std::unique_ptr<Node>>;

CmId listen(Port& port, const Options& options) {
  const CmId listener = need(port.channel.create_id(PortSpace::kTcp));
  need_ok(port.channel.bind(listener, {.port = options.port}));
  need_ok(port.channel.listen(listener, static_cast<unsigned>(options.connections)));
  say_ready();
  return listener;
}

/// As rdma_accept() without parameters.
CmAccept mirrored(const CmTerms& asked) {
  return {
      .terms = {.responder_resources = asked.initiator_depth, .initiator_depth = asked.responder_resources}};
}

Nodes connect_all(Port& port, const Options& options) {
  Nodes nodes;
  for (std::size_t i = 0; i < options.connections; ++i) {
    nodes.push_back(std::make_unique<Node>(port, QpType::kRc, options));
    nodes.back()->id = need(port.channel.create_id(PortSpace::kTcp));
    const CmConnect ask{.to = options.to, .terms = {.retry_cnt = 5}, .timeout = 20s};
    need_ok(port.channel.connect(nodes.back()->id, ask, &nodes.back()->qp));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) port.next(CmEventType::kEstablished);
  return nodes;
}

/// Takes so many requests. @return once all are established
Nodes accept_all(Port& port, const Options& options) {
  Nodes nodes;
  std::size_t established = 0;
  while (established < options.connections) {
    CmEvent event;
    need_true(port.channel.wait(event, 30s), "no request in time");
    if (event.type == CmEventType::kEstablished) {
      ++established;
      continue;
    }
    need_true(event.type == CmEventType::kConnectRequest,
              "no request, but " + std::string(to_string(event.type)));
    nodes.push_back(std::make_unique<Node>(port, QpType::kRc, options));
    nodes.back()->id = event.id;
    need_ok(port.channel.accept(event.id, mirrored(event.peer), &nodes.back()->qp));
  }
  return nodes;
}

void end_all(Port& port, const Nodes& nodes, bool by_us) {
  if (by_us) {
    for (const auto& node : nodes) need_ok(port.channel.disconnect(node->id));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) port.next(CmEventType::kDisconnected);
  for (const auto& node : nodes) port.channel.close(node->id);
}

}  // namespace

void run_cmatose(Port& port, const Options& options) {
  const bool is_client = options.to != CmAddress{};
  const CmId listener = is_client ? CmId{} : listen(port, options);
  const Nodes nodes = is_client ? connect_all(port, options) : accept_all(port, options);
  const auto send = [&] {
    for (const auto& node : nodes) node->post_sends({});
    for (const auto& node : nodes) node->wait(node->send_cq, options.messages);
  };
  if (!is_client) send();
  for (const auto& node : nodes) node->wait(node->recv_cq, options.messages);
  if (is_client) send();
  end_all(port, nodes, options.ends_first);
  if (!is_client) port.channel.close(listener);
}

void run_cmtime(Port& port, const Options& options) {
  const bool is_client = options.to != CmAddress{};
  const CmId listener = is_client ? CmId{} : listen(port, options);
  // One more stays until the end: cmtime fails when it has none at all between two.
  const Nodes kept = is_client && options.rounds > 1 ? connect_all(port, options) : Nodes{};
  for (unsigned round = 0; round < options.rounds; ++round) {
    if (is_client) {
      end_all(port, connect_all(port, options), true);
      continue;
    }
    std::map<CmId, std::unique_ptr<Node>> nodes;
    for (std::size_t ended = 0; ended < options.connections;) {
      CmEvent event;
      need_true(port.channel.wait(event, 60s), std::to_string(ended) + " connections have ended in time");
      if (event.type == CmEventType::kConnectRequest) {
        auto node = std::make_unique<Node>(port, QpType::kRc, options);
        need_ok(port.channel.accept(event.id, mirrored(event.peer), &node->qp));
        nodes[event.id] = std::move(node);
      } else if (event.type == CmEventType::kDisconnected) {
        ++ended;
        port.channel.close(event.id);
        nodes.erase(event.id);
      } else {
        need_true(event.type == CmEventType::kEstablished,
                  std::string(to_string(event.type)) + ": " + event.text);
      }
    }
  }
  end_all(port, kept, true);
  if (!is_client) port.channel.close(listener);
}

}  // namespace uroce::interop
