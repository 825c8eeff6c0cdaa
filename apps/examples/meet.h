/// How server and client learn of each other's QPs.
#pragma once

#include <iostream>
#include <string>

#include "apps/examples/must.h"
#include "uroce/device.h"
#include "uroce/qp.h"

/// Says on standard output which QP this is, reads the same of the other program, and connects.
inline void meet(const uroce::Device& device, uroce::Qp& qp) {
  const auto gids = device.gids();  // the first is link-local, the others are IP addresses
  must(gids.size() > 1, "the port has no address: export UROCE_IP=10.0.0.1/24, at the other end 10.0.0.2/24");
  std::cout << raw(qp.qpn()) << ' ' << to_string(gids[1].gid) << std::endl;
  unsigned qpn = 0;
  std::string gid;
  must(bool(std::cin >> qpn >> gid), "the other program has ended");
  uroce::QpAttr peer;
  peer.dest_qpn = uroce::Qpn(qpn);
  peer.dgid = uroce::Gid::parse(gid).value();
  must(qp.connect(peer));
}
