/// The opcode table against the table of the specification, written out.
#include "wire/opcode.h"

#include <catch2/catch.hpp>

namespace uroce::wire {
namespace {

/// X xrceth, D deth, F feth, R reth, A aeth, T atomic_eth, M its masks, H held_eth, K atomic_ack, I imm,
/// V ieth.
std::string headers(const OpcodeInfo& op) {
  std::string text;
  if (op.has_xrceth()) text += 'X';
  if (op.has_deth) text += 'D';
  if (op.is_flush) text += 'F';
  if (op.has_reth) text += 'R';
  if (op.is_atomic_request) text += 'T';
  if (op.is_masked()) text += 'M';
  if (op.has_aeth) text += 'A';
  if (op.is_selective_nak()) text += 'H';
  if (op.is_atomic_ack) text += 'K';
  if (op.has_imm) text += 'I';
  if (op.has_ieth) text += 'V';
  return text;
}

/// "=" exactly the path MTU, "1" at least a byte, "0" may be empty, "-" none.
char payload(const OpcodeInfo& op) {
  if (!op.has_payload) return '-';
  if (op.payload_is_mtu) return '=';
  return op.payload_may_be_empty() ? '0' : '1';
}

struct Row {
  unsigned opcode;
  const char* name;
  const char* headers;
  char payload;
  bool takes_recv;
};

constexpr Row kConnected[] = {
    {0x00, "SEND_FIRST", "", '=', true},    {0x01, "SEND_MIDDLE", "", '=', false},
    {0x02, "SEND_LAST", "", '1', false},    {0x03, "SEND_LAST_IMM", "I", '1', false},
    {0x04, "SEND_ONLY", "", '0', true},     {0x05, "SEND_ONLY_IMM", "I", '0', true},
    {0x06, "WRITE_FIRST", "R", '=', false}, {0x07, "WRITE_MIDDLE", "", '=', false},
    {0x08, "WRITE_LAST", "", '1', false},   {0x09, "WRITE_LAST_IMM", "I", '1', true},
    {0x0a, "WRITE_ONLY", "R", '0', false},  {0x0b, "WRITE_ONLY_IMM", "RI", '0', true},
};
constexpr Row kReliable[] = {
    {0x0c, "READ_REQUEST", "R", '-', false},        {0x0d, "READ_RESPONSE_FIRST", "A", '=', false},
    {0x0e, "READ_RESPONSE_MIDDLE", "", '=', false}, {0x0f, "READ_RESPONSE_LAST", "A", '1', false},
    {0x10, "READ_RESPONSE_ONLY", "A", '0', false},  {0x11, "ACK", "A", '-', false},
    {0x12, "ATOMIC_ACK", "AK", '-', false},         {0x13, "COMPARE_SWAP", "T", '-', false},
    {0x14, "FETCH_ADD", "T", '-', false},           {0x16, "SEND_LAST_INV", "V", '1', false},
    {0x17, "SEND_ONLY_INV", "V", '0', true},        {0x1c, "FLUSH", "FR", '-', false},
    {0x1d, "ATOMIC_WRITE", "R", '0', false},
};
constexpr Row kExtended[] = {{0xd1, "SELECTIVE_NAK", "AH", '-', false},
                             {0xd2, "JOINT_ACK", "A", '0', false},
                             {0xd3, "MASKED_COMPARE_SWAP", "TM", '-', false},
                             {0xd4, "MASKED_FETCH_ADD", "TM", '-', false}};
constexpr Row kDatagram[] = {{0x64, "SEND_ONLY", "D", '0', true}, {0x65, "SEND_ONLY_IMM", "DI", '0', true}};

void check_row(const Row& row, unsigned base, Transport transport) {
  const OpcodeInfo& op = info(Opcode{static_cast<std::uint8_t>(base + row.opcode)});
  CAPTURE(row.name, base);
  REQUIRE(op.known);
  CHECK(op.name == std::string_view{row.name});
  CHECK(op.transport == transport);
  const bool is_request =
      row.headers[0] != 'A' && std::string_view(row.name).find("RESPONSE") == std::string_view::npos;
  const std::string first = transport == Transport::kXrc && is_request ? "X" : "";
  CHECK(headers(op) == first + row.headers);
  CHECK(payload(op) == row.payload);
  CHECK(op.takes_recv == row.takes_recv);
  CHECK(op.is_request != op.is_response);
}

}  // namespace

TEST_CASE("every opcode has the headers, payload and effect of the specification", "[wire][opcode]") {
  for (const Row& row : kConnected) {
    check_row(row, 0x00, Transport::kRc);
    check_row(row, 0x20, Transport::kUc);
    check_row(row, 0xa0, Transport::kXrc);
  }
  for (const Row& row : kReliable) {
    check_row(row, 0x00, Transport::kRc);
    check_row(row, 0xa0, Transport::kXrc);
  }
  for (const Row& row : kExtended) {
    check_row(row, 0x00, Transport::kRc);
    check_row(row, 0x20, Transport::kXrc);
  }
  for (const Row& row : kDatagram) check_row(row, 0x00, Transport::kUd);
  CHECK(info(Opcode::kCnp).known);
  CHECK(payload(info(Opcode::kCnp)) == '-');
}

TEST_CASE("the names of opcodes say their place in the message", "[wire][opcode]") {
  for (unsigned value = 0; value < 256; ++value) {
    const OpcodeInfo& op = info(Opcode{static_cast<std::uint8_t>(value)});
    if (!op.known) continue;
    const std::string_view text = op.name;
    CAPTURE(text);
    const bool first = text.find("FIRST") != text.npos;
    const bool middle = text.find("MIDDLE") != text.npos;
    const bool last = text.find("LAST") != text.npos;
    CHECK(op.starts_message == !(middle || last));
    CHECK(op.ends_message == !(first || middle));
    CHECK(op.is_only() == !(first || middle || last));
    CHECK(op.has_imm == (text.find("IMM") != text.npos));
  }
}

}  // namespace uroce::wire
