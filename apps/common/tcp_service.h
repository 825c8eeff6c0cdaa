/// Worker service: TCP between two processes, the yardstick that users know, and UDP.
#pragma once

#include <optional>
#include <string>

#include "apps/common/sample.h"
#include "apps/common/tcp.h"

namespace uroce::apps {

/// Each sample has a connection of its own, TCP_NODELAY, congestion control cubic.
///
/// Requests: netns -> {"pid"} (moves into a network namespace of its own); veth {"peer_pid"} / address {}
/// (the two ends of the link between two such namespaces); listen {"host"} -> {"port", "congestion"}; connect
/// {"host", "port"}; sample.
class TcpService : public Service {
 public:
  explicit TcpService(bool give_way) : give_way_(give_way) {}

  Result<Json> handle(const Json& request) override;

 private:
  Result<Json> listen(const std::string& host);
  Result<Json> sample(const Sample& sample, bool client);
  Result<Json> rtt_client(const Socket& socket, const Sample& sample);
  Result<Json> rtt_server(const Socket& socket, const Sample& sample);
  Result<Json> stream_client(const Socket& socket, const Sample& sample);
  Result<Json> stream_server(const Socket& socket, const Sample& sample);
  Result<Json> open_client(const Socket& socket, const Sample& sample);
  Result<Json> open_server(const Socket& socket, const Sample& sample);

  bool give_way_;
  TickClock clock_ = TickClock::calibrate();
  std::optional<Socket> listener_;
  std::string host_;
  std::uint16_t port_ = 0;
};

}  // namespace uroce::apps
