/// Rules that every packet on the wire must keep, whatever was lost before it.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "uroce/types.h"
#include "wire/packet.h"

namespace uroce::sim {

/// Watches one flow: requests that go to `responder`, responses that go to `requester`. Throws Violation.
/// Source: the sender and receiver rules of a go-back-N check over traces, IBA 9.7.
class WireRules {
 public:
  /// @param is_selective  both ends agreed on selective repeat
  WireRules(Psn first_psn, std::uint32_t mtu, std::uint32_t max_unacked, bool is_selective);

  void on_request(const wire::PacketView& packet);
  void on_response(const wire::PacketView& packet);
  /// The responder asks the requester to slow down.
  void on_cnp(const wire::PacketView& packet, std::uint64_t now_ns, std::uint64_t gap_ns);

 private:
  std::uint32_t mtu_;
  std::uint32_t max_unacked_;
  bool is_selective_;
  Psn next_new_;  // PSN of the next request that was never sent
  Psn acked_;     // one past the newest PSN that any response has acknowledged
  std::optional<Psn> last_ack_;
  std::optional<Psn> last_nak_;  // of the newest PSN sequence error
  std::optional<std::uint64_t> last_cnp_ns_;
};

}  // namespace uroce::sim
