/// What the scripts write again and again.
#pragma once

#include <chrono>

#include "support/rc_script.h"

namespace uroce::test {

using namespace std::chrono_literals;
using enum wire::Opcode;

/// RETH of an RDMA work request that RcScript posts, `at` bytes into its remote memory.
inline wire::Reth remote(std::uint32_t length, std::uint64_t at = 0) {
  return {.va = RcScript::kRemoteVa + at, .rkey = RcScript::kRemoteKey, .length = length};
}

/// RETH of a request by the peer for `length` bytes of the script's target memory.
inline wire::Reth own(RcScript& qp, std::uint32_t length, std::uint64_t at = 0) {
  return {.va = qp.target.addr(0) + at, .rkey = qp.target.rkey(), .length = length};
}

/// The part of a pattern from `at` on.
constexpr Pattern from(Pattern pattern, std::uint64_t at) {
  return {pattern.tag, pattern.offset + at};
}

}  // namespace uroce::test
