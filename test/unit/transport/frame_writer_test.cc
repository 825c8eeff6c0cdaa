// Packets as they leave: however long the payload is and of however many pieces, ICRC and pad are right.
#include "transport/frame_writer.h"

#include <catch2/catch.hpp>
#include <random>

#include "support/reference_icrc.h"
#include "wire/packet.h"

using namespace uroce;
using namespace uroce::transport;

namespace {

constexpr std::uint64_t kSeed = 0x5eed'0010;
constexpr std::uint32_t kMostPayload = 4096;

/// How the room that a port lends is best written.
enum class Room { kAtOnce, kInPieces, kByLines };

/// Keeps the last frame, which begins as far into a cache line as a test wants.
class LastFrame final : public port::FrameSink {
 public:
  LastFrame(std::size_t into_line, Room kind)
      : FrameSink(kind == Room::kByLines), into_line_(into_line), takes_pieces_(kind == Room::kInPieces) {}

  std::byte* tx_claim_lines(std::uint32_t len) noexcept override {
    std::byte* const room = tx_claim(len);
    is_by_lines_ = true;
    return room;
  }
  std::byte* tx_claim(std::uint32_t len) noexcept override {
    is_by_lines_ = false;
    len_ = len;
    std::fill(room_.begin(), room_.end(), kUntouched);
    return room_.data() + into_line_;
  }
  void tx_commit() noexcept override { ++frames_; }
  [[nodiscard]] bool takes_pieces() const noexcept override { return takes_pieces_; }

  [[nodiscard]] std::span<const std::byte> frame() const {
    return std::span{room_}.subspan(into_line_, len_);
  }
  /// And zeros up to the borders of its lines, if it was written by whole lines.
  [[nodiscard]] bool wrote_only_the_frame() const {
    const bool is_whole = is_by_lines_ && wire::computes_wide_crc32();
    const std::size_t end = into_line_ + len_;
    const std::size_t end_of_line = is_whole ? (end + 63) / 64 * 64 : end;
    const auto are = [this](std::size_t from, std::size_t to, std::byte value) {
      return std::all_of(room_.data() + from, room_.data() + to, [&](std::byte b) { return b == value; });
    };
    return are(0, into_line_, is_whole ? std::byte{0} : kUntouched) && are(end, end_of_line, std::byte{0}) &&
           are(end_of_line, room_.size(), kUntouched);
  }
  [[nodiscard]] unsigned frames() const noexcept { return frames_; }
  [[nodiscard]] bool is_by_lines() const noexcept { return is_by_lines_; }

 private:
  static constexpr std::byte kUntouched{0xa5};

  std::size_t into_line_;
  bool takes_pieces_;
  bool is_by_lines_ = false;
  std::uint32_t len_ = 0;
  unsigned frames_ = 0;
  alignas(64) std::array<std::byte, kMostPayload + 512> room_{};
};

struct Sender {
  explicit Sender(const wire::FrameAddress& address) {
    path.head = wire::FrameTemplate{address};
    qp.path = &path;
    qp.dest_qpn = Qpn{0x11};
  }

  mem::KeyTable keys{1, [] {}};
  Counters counters;
  CqRing cq{16};
  Path path;
  QpContext qp{Qpn{0x12}, 1, {}, keys, counters, cq, cq};
};

std::vector<wire::FrameAddress> addresses() {
  const Gid v4 = Gid::from_v4({10, 0, 0, 1});
  const Gid v6 = *Gid::parse("fd99::1");
  return {{.sgid = v4, .dgid = v4},
          {.vlan_tci = 5, .sgid = v4, .dgid = v4},
          {.sgid = v6, .dgid = v6},
          {.vlan_tci = 5, .sgid = v6, .dgid = v6},
          {.type = GidType::kRoceV1, .sgid = v6, .dgid = v6}};
}

test::Underlay underlay_of(const wire::FrameAddress& address) {
  if (address.type == GidType::kRoceV1) return test::Underlay::kGrh;
  return address.dgid.is_v4() ? test::Underlay::kIpv4 : test::Underlay::kIpv6;
}

/// Appends `payload` in pieces, at least one, at times an empty one besides.
void append_pieces(FrameWriter& frame, std::span<const std::byte> payload, std::mt19937_64& random) {
  const std::size_t longest = random() % 4 == 0 ? 80 : kMostPayload;
  do {
    const std::size_t piece = std::min(payload.size(), 1 + random() % longest);
    frame.append(payload.data(), piece);
    payload = payload.subspan(piece);
  } while (!payload.empty());
  if (random() % 8 == 0) frame.append(payload.data(), 0);
}

void check_frame(const LastFrame& sink, const wire::FrameAddress& address,
                 std::span<const std::byte> payload) {
  wire::PacketView packet;
  REQUIRE(wire::parse_packet(sink.frame(), packet) == wire::ParseResult::kRoce);
  REQUIRE(std::equal(packet.payload.begin(), packet.payload.end(), payload.begin(), payload.end()));
  const std::size_t l3 = address.vlan_tci ? 18 : 14;
  const auto covered = sink.frame().subspan(l3).first(sink.frame().size() - l3 - wire::kIcrcSize);
  const auto carried = wire::load_icrc(sink.frame().last<wire::kIcrcSize>());
  REQUIRE(carried == test::reference_icrc(covered, underlay_of(address)));
  const std::uint32_t pad = (4 - payload.size() % 4) % 4;
  REQUIRE(std::all_of(covered.end() - pad, covered.end(), [](std::byte b) { return b == std::byte{0}; }));
  REQUIRE(sink.wrote_only_the_frame());
}

}  // namespace

TEST_CASE("a packet of any length and of any pieces has its ICRC and its pad", "[transport][icrc][T29]") {
  const auto address = addresses()[GENERATE(0U, 1U, 2U, 3U, 4U)];
  const Room kind = GENERATE(Room::kAtOnce, Room::kInPieces, Room::kByLines);
  std::mt19937_64 random{kSeed};
  std::vector<std::byte> memory(kMostPayload + 64);
  for (auto& byte : memory) byte = static_cast<std::byte>(random());
  Sender sender{address};
  unsigned by_lines = 0;
  for (unsigned i = 0; i < 2000; ++i) {
    const std::uint64_t longest = i % 2 == 0 ? kMostPayload : 700;
    const auto size = static_cast<std::uint32_t>(1 + random() % longest);
    const auto payload = std::span{memory}.subspan(random() % 64, size);
    CAPTURE(kSeed, i, size);
    LastFrame sink{4 * (random() % (kind == Room::kByLines ? 2 : 16)), kind};
    TxContext tx{.port = sink, .bulk = sink, .now = {}, .budget = 1};
    FrameWriter frame{sink};
    REQUIRE(frame.begin(sender.qp, tx, wire::Opcode::kRcWriteOnly, Psn{i}, size));
    frame.put(wire::Reth{.va = 0x7f00'0000'0000, .rkey = Rkey{0xab'cd01}, .length = size});
    REQUIRE(frame.payload_len() == size);
    append_pieces(frame, payload, random);
    frame.send(sender.qp, tx);
    REQUIRE(sink.frames() == 1);
    check_frame(sink, address, payload);
    by_lines += sink.is_by_lines() ? 1 : 0;
  }
  CHECK((by_lines > 500) == (kind == Room::kByLines && wire::computes_crc32_of_parts()));
}

namespace {

/// Writes random headers of that kind if the opcode has them.
template <typename Header>
void put_random(bool has_it, FrameWriter& frame, std::vector<std::byte>& expected, std::mt19937_64& random) {
  if (!has_it) return;
  std::array<std::byte, Header::kSize> bytes;
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  const auto header = Header::parse(bytes);
  frame.put(header);
  wire::emit_at(bytes.data(), header);
  expected.insert(expected.end(), bytes.begin(), bytes.end());
}

/// All headers behind the BTH, in the order of IBA 5.2.
std::vector<std::byte> put_headers(const wire::OpcodeInfo& info, FrameWriter& frame,
                                   std::mt19937_64& random) {
  std::vector<std::byte> expected;
  put_random<wire::Xrceth>(info.has_xrceth(), frame, expected, random);
  put_random<wire::Deth>(info.has_deth, frame, expected, random);
  put_random<wire::Reth>(info.has_reth, frame, expected, random);
  put_random<wire::Aeth>(info.has_aeth, frame, expected, random);
  put_random<wire::ImmDt>(info.has_imm, frame, expected, random);
  put_random<wire::Ieth>(info.has_ieth, frame, expected, random);
  return expected;
}

/// Memory that something else was in before.
struct Dirty {
  Dirty() {
    bytes.fill(std::byte{0xa5});
    asm volatile("" : : "r"(bytes.data()) : "memory");  // or it would be left out
  }
  alignas(FrameWriter) std::array<std::byte, sizeof(FrameWriter)> bytes;
};

}  // namespace

TEST_CASE("the headers of every opcode leave as they were put, whatever the last packet had",
          "[transport][icrc]") {
  const auto address = addresses()[GENERATE(0U, 1U, 2U, 3U, 4U)];
  const Room kind = GENERATE(Room::kAtOnce, Room::kInPieces, Room::kByLines);
  std::mt19937_64 random{kSeed + 1};
  std::vector<std::byte> memory(600);
  for (auto& byte : memory) byte = static_cast<std::byte>(random());
  Sender sender{address};
  unsigned frames = 0;
  for (unsigned i = 0; i < 256 * 8; ++i) {
    const wire::Opcode opcode{static_cast<std::uint8_t>(i)};
    const wire::OpcodeInfo& info = wire::info(opcode);
    if (!info.known || info.is_atomic_request || info.is_flush || info.is_selective_nak() ||
        info.is_atomic_ack || info.transport == wire::Transport::kCnp)
      continue;
    CAPTURE(kSeed, i, info.name);
    const auto size = info.has_payload ? static_cast<std::uint32_t>(1 + random() % 599) : 0U;
    const auto payload = std::span{memory}.first(size);
    LastFrame sink{4 * (random() % 2), kind};
    TxContext tx{.port = sink, .bulk = sink, .now = {}, .budget = 1};
    Dirty dirty;
    auto& frame = *new (dirty.bytes.data()) FrameWriter{sink};
    const wire::Bth bth{.opcode = opcode, .dest_qpn = sender.qp.dest_qpn, .psn = Psn{i}};
    REQUIRE(frame.begin(sender.path.head, bth, size, tx));
    const auto expected = put_headers(info, frame, random);
    if (size > 0) frame.append(payload.data(), size);
    frame.send(sender.qp, tx);
    check_frame(sink, address, payload);
    const auto headers =
        sink.frame().subspan(sender.path.head.overhead() + wire::Bth::kSize, expected.size());
    REQUIRE(expected.size() + wire::Bth::kSize == info.header_bytes);
    REQUIRE(std::equal(headers.begin(), headers.end(), expected.begin()));
    ++frames;
  }
  CHECK(frames > 8 * 40);
}
