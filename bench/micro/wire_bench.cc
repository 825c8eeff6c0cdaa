/// What the wire layer costs per packet. No QP, no port, no memory registration; all data is warm in the
/// cache.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/cache_line.h"
#include "bench/cycles.h"
#include "bench/reference.h"
#include "wire/crc32.h"
#include "wire/frame_template.h"
#include "wire/packet.h"

namespace uroce::wire {
namespace {

using bench::BM_Reference;
using bench::measure;

BENCHMARK(BM_Reference);

FrameAddress address(bool v6) {
  return {.src_mac = {{2, 0, 0, 0, 0, 1}},
          .dst_mac = {{2, 0, 0, 0, 0, 2}},
          .sgid = v6 ? *Gid::parse("fd99::1") : Gid::from_v4({10, 0, 0, 1}),
          .dgid = v6 ? *Gid::parse("fd99::2") : Gid::from_v4({10, 0, 0, 2}),
          .udp_src_port = 0xc123};
}

/// Everything but the ICRC and the payload of a WRITE_ONLY. @return bytes of the frame.
std::uint32_t emit_write(std::byte* frame, const FrameTemplate& head, std::uint32_t payload, Psn psn) {
  const std::uint32_t header_bytes = info(Opcode::kRcWriteOnly).header_bytes;
  const std::uint8_t pad = pad_for(payload);
  std::byte* at = head.emit_head(frame, FrameTemplate::roce_len(header_bytes, payload, pad));
  const Bth bth{
      .opcode = Opcode::kRcWriteOnly, .pad = pad, .dest_qpn = Qpn{0x11}, .ack_req = true, .psn = psn};
  at = emit_at(at, bth);
  emit_at(at, Reth{.va = 0x7f00'0000'0000, .rkey = Rkey{0xab'cd01}, .length = payload});
  return head.frame_len(header_bytes, payload, pad);
}

std::vector<std::byte> write_frame(bool v6, std::uint32_t payload) {
  const FrameTemplate head{address(v6)};
  std::vector<std::byte> frame(
      head.frame_len(info(Opcode::kRcWriteOnly).header_bytes, payload, pad_for(payload)));
  head.seal(frame.data(), emit_write(frame.data(), head, payload, Psn{1}));
  return frame;
}

/// Receive: all checks of the headers, without the ICRC. Arg: 0 IPv4, 1 IPv6. Time: per packet.
void BM_Parse(benchmark::State& state) {
  const auto frame = write_frame(state.range(0) == 1, 64);
  measure(state, 1, [&] {
    const std::byte* data = frame.data();
    benchmark::DoNotOptimize(data);
    PacketView packet;
    benchmark::DoNotOptimize(parse_packet({data, frame.size()}, packet));
    benchmark::DoNotOptimize(packet);
  });
}
BENCHMARK(BM_Parse)->Arg(0)->Arg(1);

/// Receive: the ICRC of a parsed packet. Args: payload bytes; 0 IPv4, 1 IPv6. Time: per packet.
void BM_IcrcOk(benchmark::State& state) {
  const auto payload = static_cast<std::uint32_t>(state.range(0));
  const auto frame = write_frame(state.range(1) == 1, payload);
  PacketView packet;
  if (parse_packet(frame, packet) != ParseResult::kRoce || !icrc_ok(packet)) {
    state.SkipWithError("bad frame");
    return;
  }
  measure(state, 1, [&] {
    benchmark::DoNotOptimize(packet);
    benchmark::DoNotOptimize(icrc_ok(packet));
  });
  state.SetBytesProcessed(state.iterations() * payload);
}
BENCHMARK(BM_IcrcOk)->ArgsProduct({{0, 64, 256, 1024, 4096}, {0, 1}});

/// Transmit: all headers of a WRITE_ONLY, no payload copy, no ICRC. Arg: 0 IPv4, 1 IPv6. Time: per packet.
void BM_EmitHeaders(benchmark::State& state) {
  const FrameTemplate head{address(state.range(0) == 1)};
  std::vector<std::byte> frame(256);
  Psn psn;
  measure(state, 1, [&] {
    benchmark::DoNotOptimize(emit_write(frame.data(), head, 64, psn));
    benchmark::ClobberMemory();
    psn = psn + 1;
  });
}
BENCHMARK(BM_EmitHeaders)->Arg(0)->Arg(1);

/// Transmit: all headers of a WRITE_ONLY and the ICRC, without the payload copy.
/// Args: payload bytes; 0 IPv4, 1 IPv6. Time: per packet.
void BM_EmitAndSeal(benchmark::State& state) {
  const auto payload = static_cast<std::uint32_t>(state.range(0));
  const FrameTemplate head{address(state.range(1) == 1)};
  std::vector<std::byte> frame(
      head.frame_len(info(Opcode::kRcWriteOnly).header_bytes, payload, pad_for(payload)));
  Psn psn;
  measure(state, 1, [&] {
    head.seal(frame.data(), emit_write(frame.data(), head, payload, psn));
    benchmark::ClobberMemory();
    psn = psn + 1;
  });
  state.SetBytesProcessed(state.iterations() * payload);
}
BENCHMARK(BM_EmitAndSeal)->ArgsProduct({{0, 64, 256, 1024, 4096}, {0, 1}});

/// Transmit: the payload's copy and its CRC. Args: payload bytes; 0 one after the other, 1 in one pass (on
/// CPUs that multiply vectors). Time: per packet.
void BM_CopyAndCrc(benchmark::State& state) {
  const auto payload = static_cast<std::size_t>(state.range(0));
  const bool in_one = state.range(1) == 1;
  const std::vector<std::byte> from(payload, std::byte{0x5a});
  // Away from the source's place in its page, or loads wait for earlier stores.
  std::vector<std::byte> to(payload + 2048);
  const std::span copy = std::span{to}.subspan(2048);
  measure(state, 1, [&] {
    benchmark::DoNotOptimize(in_one ? copy_crc32(1, copy.data(), from)
                                    : narrow_copy_crc32(1, copy.data(), from));
    benchmark::ClobberMemory();
  });
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_CopyAndCrc)->ArgsProduct({{512, 1024, 4096}, {0, 1}});

/// Transmit: an ACK as the responder sends it, headers and ICRC. Time: per packet.
void BM_EmitAck(benchmark::State& state) {
  const FrameTemplate head{address(false)};
  const std::uint32_t header_bytes = info(Opcode::kRcAck).header_bytes;
  const std::uint32_t size = head.frame_len(header_bytes, 0, 0);
  std::vector<std::byte> frame(size);
  Psn psn;
  measure(state, 1, [&] {
    std::byte* at = head.emit_head(frame.data(), FrameTemplate::roce_len(header_bytes, 0, 0));
    at = emit_at(at, Bth{.opcode = Opcode::kRcAck, .dest_qpn = Qpn{0x11}, .psn = psn});
    emit_at(at, Aeth{.msn = psn.value()});
    head.seal(frame.data(), size);
    benchmark::ClobberMemory();
    psn = psn + 1;
  });
}
BENCHMARK(BM_EmitAck);

/// Transmit: a whole short frame at once. Args: bytes of the headers behind the BTH; payload bytes. Time: per
/// packet.
template <class Write>
void write_at_once(benchmark::State& state, Write write) {
  const FrameTemplate head{address(false)};
  const std::vector<std::byte> payload(FrameParts::kMostPayload, std::byte{0x5a});
  std::array<CacheLine, 10> room;
  if (!computes_crc32_of_parts()) return state.SkipWithError("skipped: this CPU lacks AVX2 or PCLMULQDQ");
  FrameParts parts{
      .bth = {},
      .extension = {1, 2},
      .header_bytes = static_cast<std::uint32_t>(Bth::kSize) + static_cast<std::uint32_t>(state.range(0)),
      .payload_bytes = static_cast<std::uint32_t>(state.range(1)),
      .payload = payload.data(),
      .udp_source_port = 0xc000};
  Psn psn;
  measure(state, 1, [&] {
    parts.bth = Bth{.opcode = Opcode::kRcWriteOnly, .dest_qpn = Qpn{0x11}, .psn = psn}.words();
    write(head, room.front().data() + FrameTemplate::kLead, parts);
    benchmark::ClobberMemory();
    psn = psn + 1;
  });
  state.SetBytesProcessed(state.iterations() * state.range(1));
}

/// As this CPU does for a link that lends lines.
void BM_WriteAtOnce(benchmark::State& state) {
  write_at_once(state, [by_lines = computes_wide_crc32()](const FrameTemplate& head, std::byte* frame,
                                                          const FrameParts& parts) {
    by_lines ? head.write_lines(frame, parts) : head.write_pieces(frame, parts);
  });
}
BENCHMARK(BM_WriteAtOnce)->Args({4, 0})->Args({0, 64})->Args({16, 64})->Args({16, 256});

/// As all do for others.
void BM_WritePieces(benchmark::State& state) {
  write_at_once(state, [](const FrameTemplate& head, std::byte* frame, const FrameParts& parts) {
    head.write_pieces(frame, parts);
  });
}
BENCHMARK(BM_WritePieces)->Args({4, 0})->Args({0, 64})->Args({16, 64})->Args({16, 256});

}  // namespace
}  // namespace uroce::wire

int main(int argc, char** argv) {
  return uroce::bench::run(argc, argv);
}
