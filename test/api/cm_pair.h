/// Two devices of one process that connect by address and port.
#pragma once

#include <string>
#include <utility>

#include "api/ends.h"

namespace uroce::api {

/// Two devices with their managers.
struct Pair {
  explicit Pair(Mode mode, const std::string& fault = "", CmOptions options = kPatient)
      : port("shm:cm" + std::to_string(getpid())),
        a(End::open(port, mode, 65536, fault)),
        b(End::open(port, mode, 65536, fault)),
        cm_a(must(Cm::open(a.device, options))),
        cm_b(must(Cm::open(b.device, options))) {}
  Pair(Config config_a, Config config_b)
      : port(config_a.port),
        a(End::open(std::move(config_a))),
        b(End::open(std::move(config_b))),
        cm_a(must(Cm::open(a.device, kPatient))),
        cm_b(must(Cm::open(b.device, kPatient))) {}

  [[nodiscard]] CmAddress at_b(std::uint16_t port_number) const { return {b.gid(), port_number}; }

  std::string port;
  End a;
  End b;
  Cm cm_a;
  Cm cm_b;
};

/// An id that listens at port 9, whatever the address.
inline CmId listen_at_9(CmChannel& channel, unsigned backlog, PortSpace space = PortSpace::kTcp) {
  const CmId id = must(channel.create_id(space));
  REQUIRE(channel.bind(id, {{}, 9}));
  REQUIRE(channel.listen(id, backlog));
  return id;
}

}  // namespace uroce::api
