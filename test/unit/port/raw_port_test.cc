#include "uroce/raw_port.h"

#include <catch2/catch.hpp>

#include <filesystem>

#include "port_helpers.h"

using namespace uroce;
using namespace uroce::test;

namespace {

RawPort open_raw(const Config& config) {
  auto port = RawPort::open(config);
  if (!port) FAIL(port.error().text);
  return std::move(*port);
}

bool send(RawPort& port, const Bytes& frame) {
  std::byte* room = port.claim(static_cast<std::uint32_t>(frame.size()));
  if (room == nullptr) return false;
  std::memcpy(room, frame.data(), frame.size());
  port.commit();
  port.flush();
  return true;
}

std::vector<Bytes> receive(RawPort& port) {
  std::vector<Bytes> frames;
  port.receive(
      [&frames](std::span<const std::byte> frame) { frames.emplace_back(frame.begin(), frame.end()); });
  return frames;
}

void settle(RawPort& a, RawPort& b) {
  for (int i = 0; i < 4; ++i) {
    for (RawPort* port : {&a, &b}) {
      static_cast<void>(port->claim(64));
      receive(*port);
    }
  }
}

}  // namespace

TEST_CASE("raw ports carry plain frames and answer from within the callback", "[raw-port]") {
  Config config;
  config.port = "shm:" + unique_name("raw");
  config.mtu = 1500;
  RawPort a = open_raw(config);
  RawPort b = open_raw(config);
  CHECK(a.link_mtu() == 1500);
  CHECK_FALSE(a.mac() == b.mac());
  settle(a, b);
  const Bytes frame = random_bytes(1514, 1);
  REQUIRE(send(a, frame));
  CHECK(b.receive([&b](std::span<const std::byte> received) {
    CHECK(send(b, Bytes(received.begin(), received.end())));
  }) == 1);
  CHECK(receive(a) == std::vector<Bytes>{frame});
}

TEST_CASE("a raw port takes faults and captures from the configuration", "[raw-port]") {
  const auto file = std::filesystem::temp_directory_path() / (unique_name("raw") + ".pcapng");
  Config config;
  config.port = "shm:" + unique_name("raw-fault");
  RawPort clean = open_raw(config);
  config.fault = "drop nth=1";
  config.pcap = file;
  {
    RawPort faulty = open_raw(config);
    settle(clean, faulty);
    REQUIRE(send(clean, roce_v4(0x04, 1)));
    REQUIRE(send(clean, roce_v4(0x04, 2)));
    CHECK(receive(faulty).empty());  // the first one comes alone, and is dropped
    CHECK(receive(faulty) == std::vector<Bytes>{roce_v4(0x04, 2)});
  }
  CHECK(std::filesystem::file_size(file) > 28 + roce_v4().size());
  std::filesystem::remove(file);
}

TEST_CASE("a raw port that cannot open says why", "[raw-port]") {
  Config config;
  config.port = "shm:no/such";
  CHECK(RawPort::open(config).error().code == Errc::kConfig);
}
