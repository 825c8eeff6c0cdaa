// What a response says of everything before its PSN: every sequence of four work requests, every response
// that may come first.
#include <catch2/catch.hpp>

#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x3c, 0};
constexpr std::uint32_t kMtu = 256;
constexpr std::uint32_t kOps = 4;

enum class Op : std::uint8_t { kWrite, kSend, kRead, kAtomic };

constexpr bool is_answered_with_data(Op op) {
  return op == Op::kRead || op == Op::kAtomic;
}

/// Four work requests in flight.
class Sequence {
 public:
  /// Two bits of `code` tell each operation.
  explicit Sequence(unsigned code) {
    std::uint32_t psn = 0xff'fffd;  // the wrap is among them
    for (std::uint32_t i = 0; i < kOps; ++i) {
      ops_[i] = Op{static_cast<std::uint8_t>(code >> 2 * i & 3)};
      psns_[i] = psn;
      psn = (psn + (ops_[i] == Op::kRead ? 2 : 1)) & 0xff'ffff;
    }
  }

  [[nodiscard]] Op op(std::uint32_t i) const { return ops_[i]; }
  [[nodiscard]] std::uint32_t psn(std::uint32_t i, std::uint32_t more = 0) const {
    return (psns_[i] + more) & 0xff'ffff;
  }

  void post(RcScript& qp) const {
    qp.together([this](RcScript& script) {
      for (const Op op : ops_) {
        switch (op) {
          case Op::kWrite:
            script.post_write(4);
            break;
          case Op::kSend:
            script.post_send(4);
            break;
          case Op::kRead:
            script.post_read(2 * kMtu);
            break;
          case Op::kAtomic:
            script.post_add(1);
            break;
        }
      }
    });
    leaves(qp, 0);
  }

  /// All requests from number `from` on leave, a READ there without its first `skip` packets.
  void leaves(RcScript& qp, std::uint32_t from, std::uint32_t skip = 0) const {
    for (std::uint32_t i = from; i < kOps; ++i) {
      const std::uint32_t done = i == from ? skip : 0;
      Packet packet{.psn = psn(i, done), .ack_req = true};
      switch (ops_[i]) {
        case Op::kWrite:
          packet.opcode = kRcWriteOnly;
          packet.payload = 4;
          break;
        case Op::kSend:
          packet.opcode = kRcSendOnly;
          packet.payload = 4;
          break;
        case Op::kRead:
          packet.opcode = kRcReadRequest;
          packet.reth = remote((2 - done) * kMtu, done * kMtu);
          break;
        case Op::kAtomic:
          packet.opcode = kRcFetchAdd;
          break;
      }
      qp.out(packet);
    }
    qp.quiet();
  }

  /// Packet `part` of the response to request i.
  [[nodiscard]] Packet response(std::uint32_t i, std::uint32_t part = 0) const {
    switch (ops_[i]) {
      case Op::kRead:
        return {.opcode = part == 0 ? kRcReadResponseFirst : kRcReadResponseLast,
                .psn = psn(i, part),
                .payload = kMtu,
                .data = Pattern{kData.tag, part * std::uint64_t{kMtu}}};
      case Op::kAtomic:
        return {.opcode = kRcAtomicAck, .psn = psn(i), .original = 7};
      default:
        return Ack{psn(i)};
    }
  }

  /// The peer answers everything from request `from` on, and all of it completes in order.
  void finishes(RcScript& qp, std::uint32_t from, std::uint32_t skip = 0) const {
    for (std::uint32_t i = from; i < kOps; ++i) {
      for (std::uint32_t part = i == from ? skip : 0; part < (ops_[i] == Op::kRead ? 2U : 1U); ++part) {
        qp.in(response(i, part));
      }
      qp.completes(i + 1);
    }
    qp.at(qp.now() + 10s).quiet();
  }

 private:
  Op ops_[kOps]{};
  std::uint32_t psns_[kOps]{};
};

RcScript script() {
  return RcScript{{.mtu = kMtu, .first_psn = 0xff'fffd, .area_bytes = 1024}};
}

}  // namespace

TEST_CASE("the first response to come completes what it covers, and what lacks its data is asked for again",
          "[rc][implied-nak][T12]") {
  // IBA 9.7.5.1.4 ?: all 256 sequences of four, each with the response to each of them first
  const unsigned code = GENERATE(range(0U, 256U));
  const std::uint32_t heard = GENERATE(range(0U, kOps));
  const Sequence sequence(code);
  CAPTURE(code, heard);
  RcScript qp = script();
  sequence.post(qp);
  std::uint32_t missing = 0;  // the first request whose response was jumped over
  while (missing < heard && !is_answered_with_data(sequence.op(missing))) ++missing;

  qp.in(sequence.response(heard));
  for (std::uint32_t i = 0; i < missing; ++i) qp.completes(i + 1);
  qp.counted(Count::kRequesterImpliedNaks, missing < heard ? 1 : 0);
  if (missing < heard) {
    sequence.leaves(qp, missing);
    qp.in(sequence.response(heard)).quiet();  // says nothing new: no second go-back
    sequence.finishes(qp, missing);
    return;
  }
  qp.counted(Count::kRequesterGoBacks, 0);
  const bool half = sequence.op(heard) == Op::kRead;
  if (!half) qp.completes(heard + 1);
  sequence.finishes(qp, half ? heard : heard + 1, half ? 1 : 0);
}

TEST_CASE("a READ of which one response came is asked for without it when the next response jumps over it",
          "[rc][implied-nak][T12]") {
  // IBA 9.7.5.1.4 ?: only what is missing is asked for again
  const unsigned code = GENERATE(range(0U, 256U));
  const Sequence sequence(code);
  CAPTURE(code);
  for (std::uint32_t read = 0; read + 1 < kOps; ++read) {
    if (sequence.op(read) != Op::kRead) continue;
    for (std::uint32_t heard = read + 1; heard < kOps; ++heard) {
      RcScript qp = script();
      sequence.post(qp);
      for (std::uint32_t i = 0; i < read; ++i) {  // all is well up to here
        for (std::uint32_t part = 0; part < (sequence.op(i) == Op::kRead ? 2U : 1U); ++part) {
          qp.in(sequence.response(i, part));
        }
        qp.completes(i + 1);
      }
      qp.in(sequence.response(read, 0)).in(sequence.response(heard));
      sequence.leaves(qp, read, 1);
      qp.counted(Count::kRequesterImpliedNaks, 1);
      sequence.finishes(qp, read, 1);
    }
  }
}
