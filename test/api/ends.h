/// Devices of one process that are joined by a link, and what the tests of this folder do with them.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "uroce/cm.h"
#include "uroce/mr.h"
#include "uroce/qp.h"

namespace uroce::api {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A busy machine may stop a thread for longer than any sensible keepalive.
inline constexpr CmOptions kPatient{.keepalive = std::chrono::milliseconds(0)};

template <typename T>
T must(Result<T> result) {
  if (!result) FAIL(result.error().text);
  return std::move(*result);
}

/// A device and a protection domain.
struct End {
  Device device;
  Pd pd;

  static End open(const std::string& port, Mode mode, std::uint32_t max_qp = 65536,
                  const std::string& fault = "", std::uint32_t probe_us = 100, bool credits = false) {
    Config config;
    config.port = port;
    config.mode = mode;
    config.max_qp = max_qp;
    config.fault = fault;
    config.probe_us = probe_us;
    config.credits = credits;
    return open(std::move(config));
  }
  static End open(Config config) {
    config.no_huge = true;
    Device device = must(Device::open(config));
    Pd pd = must(Pd::create(device));
    return {std::move(device), std::move(pd)};
  }
  [[nodiscard]] Gid gid() const { return device.gids().at(1).gid; }
};

/// An end whose other one is there only if it is called once more.
inline End lone(Mode mode, const std::string& lcores = "") {
  Config config;
  config.port = "shm:lone" + std::to_string(getpid());
  config.mode = mode;
  config.lcores = lcores;
  return End::open(std::move(config));
}

/// Both ends of a link of this process.
struct Joined {
  /// @param fault_b  of the second end
  explicit Joined(Mode mode, const std::string& options = "", std::uint32_t probe_us = 100,
                  const std::string& fault_b = "")
      : port("shm:api" + std::to_string(getpid()) + options),
        a(End::open(port, mode, 65536, "", probe_us)),
        b(End::open(port, mode, 65536, fault_b, probe_us)) {}
  std::string port;
  End a;
  End b;
};

/// Attributes of a connection to `peer` at `end`; no ack timeout that a busy machine uses up.
inline QpAttr towards(const End& end, const Qp& peer) {
  return {.path_mtu = PathMtu::k1024,
          .dest_qpn = peer.qpn(),
          .rq_psn = Psn{7},
          .sq_psn = Psn{7},
          .access_flags = access::kAll,
          .dgid = end.gid(),
          .max_rd_atomic = 8,
          .max_dest_rd_atomic = 8,
          .min_rnr_timer = 1,
          .timeout = 16,
          .retry_cnt = 7,
          .rnr_retry = 7};
}

inline Status join(const End& a, Qp& qp_a, const End& b, Qp& qp_b) {
  if (Status status = qp_a.connect(towards(b, qp_b)); !status) return status;
  return qp_b.connect(towards(a, qp_a));
}

/// Runs `step` until it answers true or the time is over.
template <typename Step>
bool within(std::chrono::milliseconds time, Step step) {
  const auto end = Clock::now() + time;
  while (!step()) {
    if (Clock::now() > end) return false;
  }
  return true;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text});
}

inline bool is_readable(int fd, int timeout_ms = 0) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, timeout_ms) == 1;
}

}  // namespace uroce::api
