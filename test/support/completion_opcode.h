/// What completions say of work requests.
#pragma once

#include <map>

#include "uroce/wc.h"
#include "uroce/wr.h"

namespace uroce::test {

/// The opcode of a send's completion, as ibv_poll_cq(3) has it. A table, so that a test does not believe what
/// the library says of itself. What is no operation ends in an error, as a SEND.
[[nodiscard]] inline WcOpcode completion_opcode(WrOpcode opcode) {
  static const std::map<WrOpcode, WcOpcode> kAll = {
      {WrOpcode::kRdmaWrite, WcOpcode::kRdmaWrite},
      {WrOpcode::kRdmaWriteWithImm, WcOpcode::kRdmaWrite},
      {WrOpcode::kSend, WcOpcode::kSend},
      {WrOpcode::kSendWithImm, WcOpcode::kSend},
      {WrOpcode::kSendWithInv, WcOpcode::kSend},
      {WrOpcode::kRdmaRead, WcOpcode::kRdmaRead},
      {WrOpcode::kAtomicCmpAndSwp, WcOpcode::kCompSwap},
      {WrOpcode::kAtomicFetchAndAdd, WcOpcode::kFetchAdd},
      {WrOpcode::kMaskedCmpAndSwp, WcOpcode::kMaskedCompSwap},
      {WrOpcode::kMaskedFetchAndAdd, WcOpcode::kMaskedFetchAdd},
      {WrOpcode::kLocalInv, WcOpcode::kLocalInv},
      {WrOpcode::kBindMw, WcOpcode::kBindMw},
      {WrOpcode::kFlush, WcOpcode::kFlush},
      {WrOpcode::kAtomicWrite, WcOpcode::kAtomicWrite},
  };
  const auto found = kAll.find(opcode);
  return found == kAll.end() ? WcOpcode::kSend : found->second;
}

}  // namespace uroce::test
