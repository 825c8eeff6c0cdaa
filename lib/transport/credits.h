/// What a requester may send while its peer counts receives.
#pragma once

#include <cstdint>

#include "uroce/types.h"
#include "wire/aeth.h"
#include "wire/credit_codes.h"

namespace uroce::transport {

/// End-to-end flow control, the requester's half. IBA 9.7.7.2 ?
///
/// Requests are numbered from 1 (SSN); the AETH of a response names how many the responder has completed
/// (MSN) and how many receives it has left, so that what takes a receive may be sent up to the limit MSN +
/// credits (LSN). What takes none raises the limit by one as it is sent. Beyond the limit one "limited"
/// message may start: its first packet leaves, the rest once that is acknowledged. The first message of a
/// connection is one. A limit never promises too much, however late or often an AETH comes; the highest one
/// counts.
///
/// Threads: loop.
class SendCredits {
 public:
  /// A new connection. @param in_use  the peer is asked for credits; else there is no limit
  void start(bool in_use) noexcept {
    *this = SendCredits{};
    in_use_ = is_limited_allowed_ = in_use;
  }
  void stop() noexcept { *this = SendCredits{}; }

  /// Whether there is a limit at all: not if the peer says that it counts nothing.
  [[nodiscard]] bool in_use() const noexcept { return in_use_; }
  /// A message beyond the limit has started, and its first packet is not acknowledged.
  [[nodiscard]] bool is_limited() const noexcept { return is_limited_; }
  /// Whether the next message that takes a receive may start.
  [[nodiscard]] bool may_start() const noexcept { return before(ssn_, lsn_) || is_limited_allowed_; }
  /// Credits did not come in time: one limited message may start without.
  void allow_limited() noexcept { is_limited_allowed_ = true; }

  /// A message starts. @param requests  of which it consists: a READ is asked for in parts
  void on_start(bool takes_receive, std::uint32_t requests) noexcept {
    if (takes_receive) {
      is_limited_ = !before(ssn_, lsn_);
      if (is_limited_) is_limited_allowed_ = false;
    } else {
      lsn_ = lsn_ + requests;
    }
    ssn_ = ssn_ + requests;
  }
  /// An ACK syndrome, also a late one. @return whether it brings credits.
  bool on_aeth(const wire::Aeth& aeth) noexcept {
    if (aeth.syndrome == wire::syndrome::ack(wire::syndrome::kNoCredits)) {
      stop();
      return true;
    }
    const Psn msn{aeth.msn};
    if (before(ssn_, msn)) return false;  // more than was ever sent
    const Psn limit = msn + wire::credits_of(wire::syndrome::code(aeth.syndrome));
    if (!before(lsn_, limit)) return false;
    lsn_ = limit;
    if (!before(lsn_, ssn_)) is_limited_ = false;
    return true;
  }
  /// The limited message's first packet is acknowledged: the rest may follow.
  void end_limited() noexcept { is_limited_ = false; }

 private:
  Psn ssn_;  // of the newest message that has started
  Psn lsn_;
  bool in_use_ = false;
  bool is_limited_ = false;
  bool is_limited_allowed_ = false;
};

}  // namespace uroce::transport
