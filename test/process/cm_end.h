/// What a process has that connects by address.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "uroce/cm.h"
#include "uroce/mr.h"
#include "uroce/rpc.h"

namespace uroce::test {

/// Device and manager of one process.
struct CmEnd {
  Device device;
  Pd pd;
  std::unique_ptr<Cm> cm;

  /// @return nullptr if it cannot
  static std::unique_ptr<CmEnd> open(const std::string& port) {
    Config config;
    config.port = port;
    config.no_huge = true;
    config.mode = Mode::kAuto;
    auto device = Device::open(config);
    if (!device) return nullptr;
    auto pd = Pd::create(*device);
    if (!pd) return nullptr;
    auto end = std::make_unique<CmEnd>(CmEnd{std::move(*device), std::move(*pd), nullptr});
    auto cm = Cm::open(end->device);
    if (!cm) return nullptr;
    end->cm = std::make_unique<Cm>(std::move(*cm));
    return end;
  }
  /// At all addresses.
  [[nodiscard]] Result<RpcServer> serve(std::uint16_t port) {
    return RpcServer::listen(*cm, pd, {.at = {.port = port}, .message_bytes = 64});
  }
};

/// Handles the requests that have come.
template <typename Handle>
void poll_requests(RpcServer& server, Handle&& handle) {
  std::array<RpcRequest, 8> requests;
  for (const RpcRequest& request : std::span(requests).first(server.poll(requests))) handle(request);
}

/// Answers those with the question.
inline void echo(RpcServer& server) {
  poll_requests(server,
                [&](const RpcRequest& request) { (void)server.reply(request, request.message.data); });
}

}  // namespace uroce::test
