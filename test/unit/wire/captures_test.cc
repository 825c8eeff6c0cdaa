/// Every frame of every capture: parsed, checked, and written again from the parsed values.
#include <catch2/catch.hpp>
#include <map>

#include "support/hex.h"
#include "support/pcap_reader.h"
#include "wire/arp.h"
#include "wire/describe.h"
#include "wire/nd.h"

namespace uroce::wire {
namespace {

const std::filesystem::path kCaptures{UROCE_TEST_CAPTURES};

template <typename H>
void append(test::Bytes& out, const H& header) {
  out.resize(out.size() + H::kSize);
  emit_at(out.data() + out.size() - H::kSize, header);
}

void append_extension_headers(test::Bytes& out, const PacketView& packet) {
  const OpcodeInfo& op = *packet.op;
  if (op.has_deth) append(out, packet.deth());
  if (op.is_flush) append(out, packet.feth());
  if (op.has_reth) append(out, packet.reth());
  if (op.is_atomic_request) append(out, packet.atomic_eth());
  if (op.has_aeth) append(out, packet.aeth());
  if (op.is_atomic_ack) append(out, packet.atomic_ack_eth());
  if (op.has_imm) append(out, packet.imm());
  if (op.has_ieth) append(out, packet.ieth());
  if (op.transport == Transport::kCnp) out.resize(out.size() + 16);
}

/// The frame that the parsed values spell.
test::Bytes emitted(const PacketView& packet) {
  test::Bytes out;
  append(out, packet.ether());
  if (packet.is_v6) {
    append(out, packet.ipv6());
  } else {
    append(out, packet.ipv4());
  }
  const bool is_v1 = packet.gid_type == GidType::kRoceV1;
  if (!is_v1) append(out, packet.udp());
  append(out, packet.bth);
  append_extension_headers(out, packet);
  out.insert(out.end(), packet.payload.begin(), packet.payload.end());
  out.resize(out.size() + packet.bth.pad + kIcrcSize);
  const auto covered = std::span{out}.subspan(packet.l3_offset, out.size() - packet.l3_offset - kIcrcSize);
  store_icrc(bytes_at<kIcrcSize>(out.data() + out.size() - kIcrcSize),
             is_v1 ? compute_icrc_v1(covered) : compute_icrc(covered, packet.is_v6));
  return out;
}

void check_roce(const test::Bytes& frame, const PacketView& packet) {
  CHECK(icrc_ok(packet));
  CHECK(packet.icrc_covered().size() + kIcrcSize + packet.l3_offset == frame.size());
  // Compared as a bool: a mismatch is told by the captured description and offset, not by two long dumps.
  const auto again = emitted(packet);
  const auto differs =
      std::mismatch(frame.begin(), frame.end(), again.begin(), again.end()).first - frame.begin();
  CAPTURE(differs);
  CHECK((again == frame));
}

void check_arp(const test::Bytes& frame, const PacketView& packet) {
  const auto arp = parse_arp(frame, packet.l3_offset);
  REQUIRE(arp.has_value());
  test::Bytes again(arp_frame_len(packet.link()));
  emit_arp_frame(again.data(), packet.link(), *arp);
  CHECK(test::to_hex(again) == test::to_hex(frame));
}

/// @return whether it was neighbour discovery.
bool check_neighbour(const test::Bytes& frame, const PacketView& packet) {
  const auto message = parse_neighbour(packet);
  if (!message) return false;
  test::Bytes again(neighbour_frame_len(packet.link(), *message));
  emit_neighbour_frame(again.data(), packet.link(), *message);
  CHECK(test::to_hex(again) == test::to_hex(frame));
  return true;
}

}  // namespace

TEST_CASE("every frame of the Soft-RoCE captures is read, accepted and written again", "[wire][captures]") {
  std::map<ParseResult, unsigned> seen;
  unsigned neighbour_messages = 0;
  for (const auto& file : test::pcap_files(kCaptures / "rxe")) {
    for (const auto& frame : test::read_pcap(file)) {
      CAPTURE(file.filename().string(), describe_frame(frame));
      PacketView packet;
      const ParseResult result = parse_packet(frame, packet);
      ++seen[result];
      if (result == ParseResult::kRoce) check_roce(frame, packet);
      if (result == ParseResult::kArp) check_arp(frame, packet);
      if (result == ParseResult::kIcmp6 && check_neighbour(frame, packet)) ++neighbour_messages;
    }
  }
  CHECK(seen[ParseResult::kRoce] == 2335);
  CHECK(seen[ParseResult::kArp] == 6);
  CHECK(seen[ParseResult::kIcmp6] == 22);  // 4 of them router solicitations
  CHECK(neighbour_messages == 18);
  CHECK(seen[ParseResult::kIgmp] == 8);
  CHECK(seen.size() == 4);
}

TEST_CASE("every frame of the scripted vectors is read and accepted, or of an unspoken kind",
          "[wire][captures]") {
  std::map<ParseResult, unsigned> seen;
  for (const auto& file : test::pcap_files(kCaptures / "vectors")) {
    for (const auto& frame : test::read_pcap(file)) {
      CAPTURE(file.filename().string(), describe_frame(frame));
      PacketView packet;
      const ParseResult result = parse_packet(frame, packet);
      ++seen[result];
      if (result == ParseResult::kRoce) check_roce(frame, packet);
    }
  }
  CHECK(seen[ParseResult::kRoce] == 28);  // one of them RoCE v1
  CHECK(seen.size() == 1);
}

TEST_CASE("the captures hold the opcodes of RC, UC and UD", "[wire][captures]") {
  std::map<Opcode, unsigned> seen;
  for (const auto& file : test::pcap_files(kCaptures / "rxe")) {
    for (const auto& frame : test::read_pcap(file)) {
      PacketView packet;
      if (parse_packet(frame, packet) == ParseResult::kRoce) ++seen[packet.bth.opcode];
    }
  }
  unsigned total = 0;
  for (const auto& [opcode, count] : seen) {
    CAPTURE(info(opcode).name);
    CHECK(info(opcode).known);
    total += count;
  }
  CHECK(total == 2335);
  CHECK(seen.size() == 35);  // all but RC SEND_LAST_INV, UC SEND_LAST_IMM and CNP
  // As tshark counts them.
  CHECK(seen[Opcode::kRcSendOnly] == 284);
  CHECK(seen[Opcode::kRcWriteMiddle] == 378);
  CHECK(seen[Opcode::kRcReadResponseMiddle] == 313);
  CHECK(seen[Opcode::kRcAck] == 534);
  CHECK(seen[Opcode::kRcFetchAdd] == 29);
  CHECK(seen[Opcode::kRcSendOnlyInv] == 19);
  CHECK(seen[Opcode::kUdSendOnly] == 122);
}

}  // namespace uroce::wire
