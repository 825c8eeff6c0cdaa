#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "drivers/loopback/loopback.h"
#include "drivers/pcap/pcap_port.h"
#include "port_helpers.h"
#include "support/full_at.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

/// A file name that goes away with this.
struct TemporaryFile {
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string path =
      std::filesystem::temp_directory_path() / ("uroce-" + std::to_string(::getpid()) + ".pcapng");
};

Bytes contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::uint32_t word(const Bytes& bytes, std::size_t at) {
  std::uint32_t value = 0;
  REQUIRE(at + sizeof(value) <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

struct Packet {
  std::uint32_t interface = 0;
  std::uint32_t flags = 0;
  std::uint64_t time_ns = 0;
  Bytes frame;
};

/// Reads the file by the letter of the format: every block whole, lengths twice.
std::vector<Packet> packets_of(const Bytes& file, std::size_t* interfaces = nullptr) {
  std::vector<Packet> packets;
  for (std::size_t at = 0; at < file.size();) {
    const std::uint32_t type = word(file, at);
    const std::uint32_t len = word(file, at + 4);
    REQUIRE(len % 4 == 0);
    REQUIRE(at + len <= file.size());
    REQUIRE(word(file, at + len - 4) == len);
    if (at == 0) REQUIRE(type == 0x0a0d0d0a);
    if (type == 1 && interfaces != nullptr) ++*interfaces;
    if (type == 6) {
      const std::uint32_t captured = word(file, at + 20);
      const std::size_t padded = (captured + 3) & ~3U;
      packets.push_back({.interface = word(file, at + 8),
                         .flags = word(file, at + 28 + padded + 4),
                         .time_ns = std::uint64_t{word(file, at + 12)} << 32 | word(file, at + 16),
                         .frame = Bytes(file.begin() + static_cast<std::ptrdiff_t>(at + 28),
                                        file.begin() + static_cast<std::ptrdiff_t>(at + 28 + captured))});
    }
    at += len;
  }
  return packets;
}

/// A link whose frames go to a file.
struct Recorded {
  Recorded() {
    auto made = pcap::CaptureFile::create(file.path);
    REQUIRE(made);
    capture = *made;
  }
  const TemporaryFile file;
  LoopbackLink link{{.delay_ns = 0}};
  std::shared_ptr<pcap::CaptureFile> capture;
};

}  // namespace

TEST_CASE("a capture holds every frame with its direction, in order", "[pcap]") {
  const TemporaryFile file;
  LoopbackLink link({.delay_ns = 0});
  const auto peer = link.open_end(0);
  {
    auto capture = pcap::CaptureFile::create(file.path);
    REQUIRE(capture);
    PcapPort port(link.open_end(1), *capture);
    for (std::size_t len = 60; len < 70; ++len) {
      REQUIRE(send(port, random_bytes(len, len)));
      REQUIRE(send(*peer, random_bytes(len + 100, len)));
      REQUIRE(receive(port).size() == 1);
    }
    static_cast<void>(port.tx_claim(100));  // never committed: not sent, not captured
    CHECK(port.info().name == "loopback:1");
    CHECK(port.counters().tx_frames == 10);
  }
  std::size_t interfaces = 0;
  const auto packets = packets_of(contents(file.path), &interfaces);
  CHECK(interfaces == 1);
  REQUIRE(packets.size() == 20);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(packets[2 * i].flags == 2);
    CHECK(packets[2 * i].frame == random_bytes(60 + i, 60 + i));
    CHECK(packets[2 * i + 1].flags == 1);
    CHECK(packets[2 * i + 1].frame == random_bytes(160 + i, 60 + i));
    CHECK(packets[2 * i].time_ns <= packets[2 * i + 1].time_ns);
  }
  CHECK(packets[0].time_ns > 1'600'000'000ULL * 1'000'000'000);
}

TEST_CASE("frames reach the file within 100 ms of polling, for whoever is killed afterwards", "[pcap]") {
  Recorded recorded;
  PcapPort port(recorded.link.open_end(1), recorded.capture);
  REQUIRE(send(port, random_bytes(100, 1)));
  const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  bool is_due = false;
  do {  // at the latest when it is polled for the first time after those
    is_due = std::chrono::steady_clock::now() >= due;
    receive(port);
  } while (!is_due && packets_of(contents(recorded.file.path)).empty());
  CHECK(packets_of(contents(recorded.file.path)).size() == 1);

  REQUIRE(send(port, random_bytes(100, 2)));
  static_cast<void>(port.arm_rx());  // about to sleep: nobody polls for long
  CHECK(packets_of(contents(recorded.file.path)).size() == 2);
}

TEST_CASE("the queues of a port share one file as interfaces of their own", "[pcap]") {
  Recorded recorded;
  PcapPort first(recorded.link.open_end(0), recorded.capture);
  PcapPort second(recorded.link.open_end(1), recorded.capture);
  REQUIRE(send(second, random_bytes(100, 1)));
  REQUIRE(receive(first).size() == 1);
  recorded.capture->flush();
  const auto packets = packets_of(contents(recorded.file.path));
  REQUIRE(packets.size() == 2);
  CHECK(packets[0].interface == 1);
  CHECK(packets[1].interface == 0);
}

TEST_CASE("what a full file system has no room for is left out whole, and counted", "[pcap]") {
  Recorded recorded;
  PcapPort port(recorded.link.open_end(1), recorded.capture);
  PcapPort second(recorded.link.open_end(0), recorded.capture);
  REQUIRE(send(port, random_bytes(100, 1)));
  recorded.capture->flush();
  std::array<std::uint64_t, 2> lost{};
  {
    const FullAt full(std::filesystem::file_size(recorded.file.path) + 50);
    REQUIRE(send(port, random_bytes(100, 2)));
    REQUIRE(send(port, random_bytes(100, 3)));
    lost = {port.counters().capture_lost, second.counters().capture_lost};
  }
  CHECK(lost == std::array<std::uint64_t, 2>{2, 0});  // of the file, told once
  REQUIRE(send(port, random_bytes(100, 4)));
  recorded.capture->flush();
  const auto packets = packets_of(contents(recorded.file.path));
  REQUIRE(packets.size() == 2);
  CHECK(packets[0].frame == random_bytes(100, 1));
  CHECK(packets[1].frame == random_bytes(100, 4));
}

TEST_CASE("a pipe that nobody reads any more loses frames and does not end the program", "[pcap]") {
  const TemporaryFile file;
  REQUIRE(::mkfifo(file.path.c_str(), 0600) == 0);
  const int reader = ::open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  auto capture = pcap::CaptureFile::create(file.path);
  REQUIRE(capture);
  LoopbackLink link({});
  PcapPort port(link.open_end(0), *capture);
  REQUIRE(send(port, random_bytes(100, 1)));
  CHECK(port.counters().capture_lost == 0);
  ::close(reader);
  REQUIRE(send(port, random_bytes(100, 2)));
  CHECK(port.counters().capture_lost == 1);
}

TEST_CASE("a capture that begins on a full file system can be read once there is room", "[pcap]") {
  const TemporaryFile file;
  LoopbackLink link({});
  std::shared_ptr<pcap::CaptureFile> capture;
  std::unique_ptr<PcapPort> port;
  std::uint64_t lost = 0;
  {
    const FullAt full(0);
    auto created = pcap::CaptureFile::create(file.path);
    REQUIRE(created);
    capture = *created;
    port = std::make_unique<PcapPort>(link.open_end(0), capture);
    REQUIRE(send(*port, random_bytes(100, 1)));
    lost = port->counters().capture_lost;
  }
  CHECK(lost == 1);
  REQUIRE(send(*port, random_bytes(100, 2)));
  capture->flush();
  const auto packets = packets_of(contents(file.path));
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].frame == random_bytes(100, 2));
}

TEST_CASE("a capture file that another port writes to is left to it", "[pcap]") {
  Recorded recorded;
  {
    PcapPort port(recorded.link.open_end(1), recorded.capture);
    REQUIRE(send(port, random_bytes(100, 1)));
    const auto second = pcap::CaptureFile::create(recorded.file.path);
    REQUIRE_FALSE(second);
    CHECK(second.error().code == Errc::kBusy);
  }
  CHECK(packets_of(contents(recorded.file.path)).size() == 1);
  recorded.capture.reset();
  CHECK(pcap::CaptureFile::create(recorded.file.path));
  CHECK(packets_of(contents(recorded.file.path)).empty());
}

TEST_CASE("a capture file that cannot be written is refused", "[pcap]") {
  const auto capture = pcap::CaptureFile::create("/no/such/folder/x.pcapng");
  REQUIRE_FALSE(capture);
  CHECK(capture.error().code == Errc::kConfig);
}
