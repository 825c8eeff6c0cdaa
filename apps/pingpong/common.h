/// What the ping-pong programs have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "apps/common/clock.h"
#include "apps/common/exchange.h"
#include "apps/common/worker.h"
#include "uroce/ah_attr.h"
#include "uroce/cq.h"
#include "uroce/device.h"
#include "uroce/qp_attr.h"

namespace uroce::apps {

/// Over four acknowledgement timeouts of the peer.
inline constexpr std::uint64_t kLingerNs = 300 * kMillisecond;
inline constexpr std::uint64_t kConnectNs = 5 * kSecond;

/// Addresses that ibv_srq_pingpong sends, whatever the number of its QPs.
inline constexpr std::uint32_t kSharedQps = 256;

struct PingPongOptions {
  std::string host;  ///< empty: the server
  std::string type_name = "rc";
  std::uint16_t tcp_port = 18515;
  std::uint32_t size = 4096;
  std::uint32_t path_mtu = 1024;
  std::uint32_t iterations = 1000;
  std::uint32_t rx_depth = 500;
  std::uint32_t num_qp = 16;  ///< srq only
  std::optional<std::uint32_t> gid_index;
  unsigned service_level = 0;
  std::uint32_t give_up_ms = 0;  ///< without progress; 0: never
  bool events = false;
  bool check = false;

  [[nodiscard]] bool is_client() const noexcept { return !host.empty(); }
  [[nodiscard]] bool is_shared() const noexcept { return type_name == "srq"; }
  [[nodiscard]] QpType type() const noexcept {
    return type_name == "uc" ? QpType::kUc : type_name == "ud" ? QpType::kUd : QpType::kRc;
  }
  /// Bytes in front of a received message: those of its network header.
  [[nodiscard]] std::uint32_t headroom() const noexcept { return type() == QpType::kUd ? kGrhBytes : 0; }
};

/// @return kInvalid if the options do not fit the device.
Result<PathMtu> checked_path_mtu(const PingPongOptions& options, const Device& device);

/// Tells the peer `local` and learns `remote`, in the order in which the stock programs do. `connect` is
/// called once `remote` is known; the client sends nothing before the server has returned from it. Then a
/// peer that does not leave, as the stock programs do, compares its options with these.
/// @return what the peer keeps open as long as it runs; nothing if it is a stock program.
Result<Socket> exchange_addresses(Device& device, const PingPongOptions& options,
                                  std::span<const QpAddress> local, std::span<QpAddress> remote,
                                  const std::function<Status()>& connect);

/// At least one completion, unless the time is over, or the peer gone.
/// @param peer  of exchange_addresses()
Result<std::size_t> next_completions(Device& device, Cq& cq, const PingPongOptions& options,
                                     const Socket& peer, std::span<Wc> wcs);

/// Prints how it went, as JSON with `more` if asked for. @return the exit code.
int report(const Config& config, const PingPongOptions& options, bool json, double seconds,
           std::uint64_t data_errors, const Json& more);

/// `pingpong --type srq`. @return the exit code.
int run_shared_pingpong(const Config& config, const PingPongOptions& options, bool json);

}  // namespace uroce::apps
