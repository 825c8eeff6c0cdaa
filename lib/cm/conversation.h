/// What the communication manager remembers of one id.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "base/time.h"
#include "cm/bindings.h"
#include "uroce/cm_types.h"
#include "wire/cm_mad.h"

namespace uroce::cm {

/// In the options of a REP: a uroce engine answers. The vendor id alone says nothing there: the kernel sends
/// back whatever it was asked with.
inline constexpr std::uint32_t kAnsweredByUroce = 1U << 31;

/// IBA 12.9.5 to 12.9.8, 12.11.
enum class State : std::uint8_t {
  kIdle,
  kListen,
  kReqSent,
  kReqRcvd,
  kRepSent,
  kRepRcvd,
  kEstablished,
  kDreqSent,
  kTimewait,  ///< also of whoever was refused: repeats what was said last
  kSidrReqSent,
  kSidrReqRcvd,
  kDone,
};

/// Both ends' QPs are known, and no end is in sight.
[[nodiscard]] constexpr bool is_connected(State state) noexcept {
  return state == State::kRepSent || state == State::kRepRcvd || state == State::kEstablished;
}

/// What is due when.
using DueTimes = std::set<std::pair<Ticks, CmId>>;

/// One id.
struct Conversation {
  CmId id{};
  State state = State::kIdle;
  bool closed = false;  ///< the application has let go: it hears nothing more
  PortSpace space = PortSpace::kTcp;
  CmAddress local;
  CmAddress remote;
  bool is_bound = false;  ///< holds local.port
  PortUse port_use{};
  bool ended = false;          ///< the event that says so has been told
  bool refused = false;        ///< `last` is the REJ, for those who ask again
  bool is_remembered = false;  ///< in timewait, of a request that has led to no connection

  unsigned backlog = 0;  ///< listener: requests that may wait
  unsigned waiting = 0;  ///< listener: those that do
  CmId listener{};       ///< of a request that waits

  std::uint64_t transaction = 0;
  std::uint32_t remote_id = 0;
  std::uint64_t remote_guid = 0;  ///< 0: not known yet
  AhAttr path;
  CmTerms mine;
  CmTerms theirs;
  bool is_active = false;
  bool has_rtu = false;   ///< the peer has said that it has our REP
  bool is_uroce = false;  ///< the peer
  PathMtu path_mtu = PathMtu::k1024;
  std::uint8_t ack_timeout = 0;

  wire::Mad last{};             ///< what is repeated
  Ticks due;                    ///< repetition, or the end of the state
  DueTimes::node_type timer{};  ///< while nothing is due: time is set without memory
  Ticks give_up;
  std::uint64_t interval_ns = 0;
  Ticks patience;  ///< until then "nobody listens" is not believed
  Ticks left;      ///< when the peer ended it, before its reply was taken; unset: it has not
};

}  // namespace uroce::cm
