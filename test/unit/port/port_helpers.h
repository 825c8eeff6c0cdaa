/// What the tests of ports share.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "port/port.h"
#include "support/hex.h"

namespace uroce::test {

/// A link name that no other test process uses.
inline std::string unique_name(const std::string& what) {
  return "test-" + std::to_string(::getpid()) + "-" + what;
}

/// `len` bytes that depend on `seed`.
inline Bytes random_bytes(std::size_t len, std::uint64_t seed) {
  Random random(seed);
  Bytes bytes(len);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next32());
  return bytes;
}

/// RoCE v2 over IPv4: SEND_ONLY "hello" to QP 0x11, PSN 0xabcdef, ECT(0); the ICRC is not checked here.
inline Bytes roce_v4(unsigned opcode = 0x04, unsigned psn = 0xabcdef, unsigned qpn = 0x11) {
  Bytes frame =
      hex("020000000202020000000101"
          "0800"
          "4502003412344000401114810a0000010a000002"
          "c00012b700200000"
          "0430ffff0000001180abcdef"
          "68656c6c6f000000"
          "00000000");
  const auto put24 = [&frame](std::size_t at, unsigned value) {
    for (unsigned i = 0; i < 3; ++i) frame[at + i] = static_cast<std::byte>(value >> (16 - 8 * i));
  };
  frame[42] = static_cast<std::byte>(opcode);
  put24(47, qpn);
  put24(51, psn);
  return frame;
}

/// Not RoCE: an ARP request.
inline Bytes arp() {
  Bytes frame = hex("ffffffffffff020000000101080600010800060400010200000001010a0000010000000000000a000002");
  frame.resize(60);
  return frame;
}

/// @return false if the port lends no room.
inline bool send(port::Port& port, std::span<const std::byte> frame) {
  std::byte* room = port.tx_claim(static_cast<std::uint32_t>(frame.size()));
  if (room == nullptr) return false;
  std::memcpy(room, frame.data(), frame.size());
  port.tx_commit();
  port.tx_flush();
  return true;
}

/// Likewise, as bulk.
inline bool send_bulk(port::Port& port, std::span<const std::byte> frame) {
  std::byte* room = port.bulk_sink().tx_claim(static_cast<std::uint32_t>(frame.size()));
  if (room == nullptr) return false;
  std::memcpy(room, frame.data(), frame.size());
  port.bulk_sink().tx_commit();
  port.tx_flush();
  return true;
}

/// Likewise, by whole cache lines, the first one last.
inline bool send_lines(port::Port& port, std::span<const std::byte> frame) {
  constexpr std::size_t kLine = 64;
  std::byte* const room = port.tx_claim_lines(static_cast<std::uint32_t>(frame.size()));
  if (room == nullptr) return false;
  const std::size_t lead = std::bit_cast<std::uintptr_t>(room) % kLine;
  Bytes lines((lead + frame.size() + kLine - 1) / kLine * kLine);
  std::memcpy(lines.data() + lead, frame.data(), frame.size());
  for (std::size_t at = lines.size(); at > 0; at -= kLine)
    std::memcpy(room - lead + at - kLine, lines.data() + at - kLine, kLine);
  port.tx_commit();
  port.tx_flush();
  return true;
}

/// Everything that one burst of up to `limit` frames shows.
inline std::vector<Bytes> receive(port::Port& port, std::size_t limit = port::kBurst) {
  std::array<port::RxFrame, port::kBurst> shown;
  const unsigned count = port.rx_burst(std::span(shown).first(limit));
  std::vector<Bytes> frames;
  for (unsigned i = 0; i < count; ++i) frames.emplace_back(shown[i].data, shown[i].data + shown[i].len);
  if (count > 0) port.rx_release();
  return frames;
}

/// Likewise, of the first burst that shows any: a port may wait a moment between its looks. None after a
/// second.
inline std::vector<Bytes> receive_soon(port::Port& port) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::vector<Bytes> frames = receive(port);
  while (frames.empty() && std::chrono::steady_clock::now() < deadline) frames = receive(port);
  return frames;
}

/// Polls both ends until each has seen the other, in the lane for bulk, too, unless that is to come later.
inline void settle(port::Port& a, port::Port& b, bool with_bulk = true) {
  for (int i = 0; i < 4; ++i) {
    for (port::Port* port : {&a, &b}) {
      static_cast<void>(port->tx_claim(64));  // never committed
      if (with_bulk) static_cast<void>(port->bulk_sink().tx_claim(64));
      receive(*port);
    }
  }
}

}  // namespace uroce::test
