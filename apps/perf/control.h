/// How the two sides of a test speak to each other while they agree on it: one JSON object per message.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/endpoint.h"
#include "apps/common/tcp.h"
#include "apps/perf/spec.h"
#include "uroce/connection.h"

namespace uroce::apps::perf {

/// What the QPs of a test are connected with.
struct Connecting {
  PathMtu path_mtu = PathMtu::k1024;
  std::uint8_t depth = 1;  ///< READs and atomics in flight, both ways
  std::uint8_t timeout = 14;
  std::uint32_t gid_index = 0;
  std::uint8_t service_level = 0;  ///< RDMA-CM has none
  std::uint8_t traffic_class = 0;  ///< by RDMA-CM: the client's holds for both
};

/// Threads: one. Lifetime: the Device outlives it, it outlives the QPs' connections.
class Control {
 public:
  virtual ~Control() = default;
  /// Whether the peer has said something, or is gone.
  [[nodiscard]] virtual bool has_news() = 0;
  virtual Status send(const std::string& line, std::uint64_t until_ns) = 0;
  /// Keeps the device going while it waits. @return kPeer if the peer is gone, kTimeout.
  virtual Result<std::string> receive(std::uint64_t until_ns) = 0;
  /// Connects the QPs, which are in Reset, with those of the peer in their order; UD: readies them.
  /// @return addresses of the peer's QPs, unless RDMA-CM keeps them to itself.
  virtual Result<std::vector<QpAddress>> connect(std::vector<Qp>& qps, const Connecting& with,
                                                 std::uint64_t until_ns) = 0;
  /// Messages of the peer that the device has counted among all others.
  [[nodiscard]] virtual std::uint64_t counted_messages() const noexcept = 0;

 protected:
  Control() = default;
  Control(const Control&) = default;
  Control& operator=(const Control&) = default;
};

/// Called once a server can be found, before it waits for its client.
using OnReady = std::function<void(const Device&)>;

/// Over TCP: a line each; a QP as ibv_rc_pingpong tells it.
Result<std::unique_ptr<Control>> meet_over_tcp(Device& device, const LocalOptions& local,
                                               const OnReady& on_ready);
/// By RDMA-CM: a SEND of its own QP each; the private data of a request tell which QP it is for.
Result<std::unique_ptr<Control>> meet_by_cm(Device& device, const LocalOptions& local,
                                            const OnReady& on_ready);

}  // namespace uroce::apps::perf
