#include <stdlib.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "eal/frames.h"
#include "eal/requirement.h"

namespace uroce::test {

std::string missing_requirement() {
  return {};
}

namespace {

/// A folder of its own for the sockets of one test.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/uroce-memif-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string socket() const { return path_ + "/link.sock"; }
  [[nodiscard]] std::string spec(const std::string& role = "") const {
    return "memif:" + socket() + (role.empty() ? "" : ",role=" + role);
  }

 private:
  std::string path_;
};

/// By a thread that is cancelled afterwards.
int run_echo(const Report& report, const std::string& spec) {
  auto port = open_port(spec);
  report.line(port ? "open" : port.error().text);
  return port && echo_and_be_cancelled(**port, in_seconds(100)) ? 0 : 1;
}

std::uint32_t mixed_len(std::uint64_t number) {
  return 60 + static_cast<std::uint32_t>(number * 37 % 4155);
}

/// Pings, reports "pinged", and goes on pinging until it is killed.
int run_victim(const Report& report, const std::string& spec) {
  auto port = open_port(spec);
  if (!port) {
    report.line(port.error().text);
    return 1;
  }
  const std::string wrong =
      ping_and_be_cancelled(**port, {.frames = 300, .window = 16, .len = mixed_len}, in_seconds(20));
  report.line(wrong.empty() ? "pinged" : wrong);
  ping(**port, {.frames = 1'000'000'000, .window = 300, .len = mixed_len}, in_seconds(100));
  return 0;
}

}  // namespace

// A program that forks has drawn DPDK's seed before: with it both ends would take the same address, and be
// one node to IPv6.
TEST_CASE("the ends of a memif in processes forked from one have different addresses", "[eal][memif]") {
  const Folder folder;
  const auto run = [&folder](const Report& report, const char* role) {
    auto port = open_port(folder.spec(role));
    report.line(port ? to_string((*port)->info().mac) : port.error().text);
    return 0;
  };
  Child server([&run](const Report& report) { return run(report, "server"); });
  Child client([&run](const Report& report) { return run(report, "client"); });
  const std::string address = server.next_line(in_seconds(20));
  CHECK_THAT(address, Catch::Contains(":"));
  CHECK(client.next_line(in_seconds(20)) != address);
}

TEST_CASE("memif carries 100000 frames between two processes, intact and in order", "[eal][memif]") {
  const Folder folder;
  Child server([&](const Report& report) { return run_echo(report, folder.spec("server")); });
  REQUIRE(server.next_line(in_seconds(20)) == "open");
  Child client([&](const Report& report) {
    auto port = open_port(folder.spec("client"));
    std::string wrong = port ? "" : port.error().text;
    if (port) wrong = ping(**port, {.frames = 100'000, .window = 64, .len = mixed_len}, in_seconds(90));
    const port::PortCounters counters = port ? (*port)->counters() : port::PortCounters{};
    if (wrong.empty() && counters.rx_frames < 100'000) wrong = "the counters say otherwise";
    if (wrong.empty() && (*port)->info().side != 1) wrong = "the client is not side 1";
    report.line(wrong.empty() ? "good" : wrong);
    return 0;
  });
  CHECK(client.next_line(in_seconds(100)) == "good");
  CHECK(server.is_running());
}

TEST_CASE("a thread that polls a memif is not cancelled there, nor while the link comes up",
          "[eal][memif][cancel]") {
  const Folder folder;
  Child server([&](const Report& report) { return run_echo(report, folder.spec("server")); });
  REQUIRE(server.next_line(in_seconds(20)) == "open");
  Child client([&](const Report& report) {
    auto port = open_port(folder.spec("client"));
    const PingPlan plan{.frames = 1000, .window = 16, .len = mixed_len};
    const std::string wrong = port ? ping_and_be_cancelled(**port, plan, in_seconds(30)) : port.error().text;
    report.line(wrong.empty() ? "all came back" : wrong);
    return 0;
  });
  CHECK(client.next_line(in_seconds(50)) == "all came back");
  CHECK(server.is_running());
}

TEST_CASE("memif carries frames in the largest buffers that it takes", "[eal][memif]") {
  const Folder folder;
  const std::string largest = ",rsize=32,bsize=65407";
  Child echoer([&](const Report& report) { return run_echo(report, folder.spec("server") + largest); });
  REQUIRE(echoer.next_line(in_seconds(20)) == "open");
  Child pinger([&](const Report& report) {
    auto port = open_port(folder.spec("client") + largest);
    if (!port) {
      report.line(port.error().text);
      return 1;
    }
    const std::string wrong = ping(**port, {.frames = 1000, .window = 16, .len = mixed_len}, in_seconds(30));
    report.line(wrong.empty() ? "all came back" : wrong);
    return 0;
  });
  CHECK(pinger.next_line(in_seconds(50)) == "all came back");
}

#ifdef UROCE_TEST_COUNTS_FAULTS
TEST_CASE("the rings of a memif have their pages before the first frames do", "[eal][memif]") {
  const Folder folder;
  Child server([&](const Report& report) { return run_echo(report, folder.spec("server")); });
  REQUIRE(server.next_line(in_seconds(20)) == "open");
  Child client([&](const Report& report) {
    auto port = open_port(folder.spec("client"));
    std::string wrong = port ? "" : port.error().text;
    const auto exchange = [&](std::uint32_t frames) {
      if (wrong.empty())
        wrong = ping(**port, {.frames = frames, .window = 1, .len = mixed_len}, in_seconds(20));
    };
    const auto faults = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_minflt;
    };
    exchange(50);  // until they are connected
    const long before = faults();
    exchange(400);
    report.line(wrong.empty() ? std::to_string(faults() - before) : wrong);
    return 0;
  });
  const std::string made = client.next_line(in_seconds(50));
  CAPTURE(made);
  CHECK(std::stol(made) < 200);  // it was two a frame; the kernel may take some pages for others meanwhile
}
#endif

TEST_CASE("either end of a memif outlives ten kills of the other and works with its successor",
          "[eal][memif]") {
  const bool is_victim_server = GENERATE(true, false);
  CAPTURE(is_victim_server);
  const Folder folder;
  const std::string victim_role = is_victim_server ? "server" : "client";
  const std::string survivor_role = is_victim_server ? "client" : "server";
  Child survivor([&](const Report& report) { return run_echo(report, folder.spec(survivor_role)); });
  REQUIRE(survivor.next_line(in_seconds(20)) == "open");
  for (int kill = 0; kill < 10; ++kill) {
    CAPTURE(kill);
    Child victim([&](const Report& report) { return run_victim(report, folder.spec(victim_role)); });
    REQUIRE(victim.next_line(in_seconds(30)) == "pinged");
    victim.kill9();  // with frames in flight both ways
    REQUIRE(survivor.is_running());
  }
}

TEST_CASE("two processes that start a memif without a role settle on one server", "[eal][memif]") {
  const Folder folder;
  const auto body = [&](const Report& report) {
    auto port = open_port(folder.spec());
    report.line(port ? "side " + std::to_string((*port)->info().side) : port.error().text);
    if (!port) return 1;
    const bool pings = (*port)->info().side == 0;
    if (!pings) echo(**port, in_seconds(30));
    if (pings)
      report.line(ping(**port, {.frames = 100, .window = 8, .len = mixed_len}, in_seconds(30)) + "done");
    return 0;
  };
  Child first(body);
  Child second(body);
  const std::string a = first.next_line(in_seconds(20));
  const std::string b = second.next_line(in_seconds(20));
  CHECK(a.substr(0, 5) + b.substr(0, 5) == "side side ");
  CHECK(a != b);
  Child& server = a == "side 0" ? first : second;
  CHECK(server.next_line(in_seconds(30)) == "done");
}

TEST_CASE("a memif survives a peer that leaves in an orderly way while frames are in flight",
          "[eal][memif]") {
  const Folder folder;
  Child survivor([&](const Report& report) { return run_echo(report, folder.spec("server")); });
  REQUIRE(survivor.next_line(in_seconds(20)) == "open");
  // One process opens and closes the link again and again: nothing may be left behind on either side.
  Child guest([&](const Report& report) {
    for (int visit = 0; visit < 5; ++visit) {
      auto port = open_port(folder.spec("client"));
      std::string wrong = port ? "" : port.error().text;
      if (port) wrong = ping(**port, {.frames = 500, .window = 64, .len = mixed_len}, in_seconds(10));
      for (int i = 0; port && i < 20; ++i) {
        if (std::byte* room = (*port)->tx_claim(64)) {
          write_frame(room, 64, 1, false);
          (*port)->tx_commit();
        }
      }
      report.line(wrong.empty() ? "good" : wrong);
    }
    return 0;
  });
  for (int visit = 0; visit < 5; ++visit) CHECK(guest.next_line(in_seconds(20)) == "good");
  CHECK(guest.wait(in_seconds(10)) == 0);
  CHECK(survivor.is_running());
}

TEST_CASE("a vhost port carries frames and outlives kills of its virtio_user peer", "[eal][vhost]") {
  const Folder folder;
  Child survivor([&](const Report& report) { return run_echo(report, "vhost:" + folder.socket()); });
  REQUIRE(survivor.next_line(in_seconds(20)) == "open");
  for (int kill = 0; kill < 4; ++kill) {
    CAPTURE(kill);
    Child victim([&](const Report& report) { return run_victim(report, "virtio_user:" + folder.socket()); });
    REQUIRE(victim.next_line(in_seconds(30)) == "pinged");
    victim.kill9();
    REQUIRE(survivor.is_running());
  }
}

}  // namespace uroce::test
