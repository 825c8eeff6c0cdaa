/// How server and client meet by address and port.
#pragma once

#include <iostream>

#include "apps/examples/must.h"
#include "uroce/connection.h"

/// For who wants to come.
inline void tell_addresses(const uroce::Device& device) {
  for (const auto& entry : device.gids()) std::cout << to_string(entry.gid) << std::endl;
}

/// Waits for one peer, and connects it.
inline uroce::Connection accept_one(uroce::Cm& cm, uroce::Qp& qp, std::uint16_t port) {
  uroce::Listener listener = must(uroce::Listener::create(cm, {.port = port}));
  tell_addresses(cm.device());
  auto request = listener.wait(std::chrono::hours(1));
  must(request.has_value(), "nobody came");
  return must(request->accept(qp, {}));
}

inline uroce::CmAddress address_of(const char* text, std::uint16_t port) {
  auto to = uroce::CmAddress::parse(text);
  must(to.has_value(), "the address to connect to is none, such as 10.77.0.1");
  to->port = port;
  return *to;
}
