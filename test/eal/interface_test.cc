#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include "drivers/dpdk/interface.h"
#include "drivers/dpdk/packet_sockets.h"
#include "drivers/registry.h"
#include "eal/frames.h"
#include "eal/requirement.h"
#include "support/cancelled.h"
#include "support/no_descriptors.h"
#include "wire/frame_template.h"

namespace uroce::test {

/// A network namespace of this process's own, with a veth pair of MTU 4200 and one of MTU 1500.
std::string missing_requirement() {
  if (unshare(CLONE_NEWNET) != 0)
    return std::string("needs root for a network namespace: ") + std::strerror(errno);
  const char* commands =
      "for mtu in 4200 1500; do"
      " ip link add a$mtu mtu $mtu type veth peer name b$mtu mtu $mtu &&"
      " ip link set a$mtu up && ip link set b$mtu up || exit 1; done";
  return std::system(commands) == 0 ? "" : "cannot make veth pairs; are iproute2 and the veth module there?";
}

namespace {

/// By threads that are cancelled as soon as they have done their part.
void check_echo(const std::string& near, const std::string& far, std::uint32_t longest) {
  Child mirror([&](const Report& report) {
    auto port = open_port(far);
    report.line(port ? "open" : port.error().text);
    return port && echo_and_be_cancelled(**port, in_seconds(60)) ? 0 : 1;
  });
  REQUIRE(mirror.next_line(in_seconds(20)) == "open");
  Child pinger([&](const Report& report) {
    auto port = open_port(near);
    if (!port) {
      report.line(port.error().text);
      return 1;
    }
    const auto len = [longest](std::uint64_t number) {
      return number < 4 ? longest : 60 + static_cast<std::uint32_t>(number * 37 % (longest - 59));
    };
    const std::string wrong =
        ping_and_be_cancelled(**port, {.frames = 5000, .window = 16, .len = len}, in_seconds(50));
    report.line(wrong.empty() ? "good, mtu " + std::to_string((*port)->info().link_mtu) : wrong);
    return 0;
  });
  CHECK(pinger.next_line(in_seconds(60)) == "good, mtu " + std::to_string(longest - 14));
  CHECK(pinger.wait(in_seconds(20)) == 0);  // one that is killed now may leave its XDP program half detached
}

}  // namespace

TEST_CASE("af_packet carries frames of every size up to MTU 4200 both ways", "[eal][af_packet]") {
  check_echo("af_packet:a4200", "af_packet:b4200", 4214);
}

TEST_CASE("af_packet carries frames on an ordinary interface", "[eal][af_packet]") {
  check_echo("af_packet:a1500", "af_packet:b1500", 1514);
  check_echo("af_packet:a1500,ring=on", "af_packet:b1500,ring=on", 1514);
}

TEST_CASE("the sockets of an af_packet port are a fanout group of their own", "[eal][af_packet]") {
  using drivers::dpdk::PacketSockets;
  const unsigned wanted = PACKET_FANOUT_HASH << 16 | 0x1234U;  // by two processes that draw the same number
  constexpr unsigned kNumber = 0xffff;
  std::vector<int> fds;
  std::vector<unsigned> numbers;
  for (int port = 0; port < 2; ++port) {
    const PacketSockets sockets(2);
    for (int queue = 0; queue < 2; ++queue) {
      fds.push_back(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
      sockaddr_ll address{};
      address.sll_family = AF_PACKET;
      address.sll_protocol = htons(ETH_P_ALL);
      address.sll_ifindex = static_cast<int>(if_nametoindex("a1500"));
      REQUIRE(bind(fds.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
      REQUIRE(PacketSockets::set(fds.back(), SOL_PACKET, PACKET_FANOUT, &wanted, sizeof wanted) == 0);
      unsigned made = 0;
      socklen_t size = sizeof made;
      REQUIRE(getsockopt(fds.back(), SOL_PACKET, PACKET_FANOUT, &made, &size) == 0);
      numbers.push_back(made & kNumber);
    }
  }
  CHECK(numbers[0] == numbers[1]);
  CHECK(numbers[2] == numbers[3]);
  CHECK(numbers[0] != numbers[2]);
  for (const int fd : fds) close(fd);
}

TEST_CASE("af_xdp carries frames up to MTU 1500 both ways", "[eal][af_xdp]") {
  check_echo("af_xdp:a1500", "af_xdp:b1500", 1514);
}

TEST_CASE("af_xdp uses all of its buffers, whichever thread polls", "[eal][af_xdp]") {
  // One that DPDK does not know comes round to each of them; there are 8191 at an end.
  constexpr std::uint64_t kFrames = 12'000;
  Child mirror([](const Report& report) {
    auto port = open_port("af_xdp:b1500");
    report.line(port ? "open" : port.error().text);
    if (port) std::thread(echo, std::ref(**port), in_seconds(60)).join();
    return 0;
  });
  REQUIRE(mirror.next_line(in_seconds(20)) == "open");
  Child pinger([](const Report& report) {
    auto port = open_port("af_xdp:a1500");
    std::string wrong = port ? "" : port.error().text;
    const PingPlan plan{.frames = kFrames, .len = [](std::uint64_t) { return 64U; }};
    if (port) std::thread([&] { wrong = ping(**port, plan, in_seconds(50)); }).join();
    report.line(wrong.empty() ? "good" : wrong);
    return 0;
  });
  CHECK(pinger.next_line(in_seconds(60)) == "good");
}

TEST_CASE("ports on an interface that cannot do what is asked say the command that helps", "[eal][errors]") {
  REQUIRE(
      std::system("ip link add down0 type veth peer name down1 &&"
                  " ip link add many0 numrxqueues 4 type veth peer name many1 && ip link set many0 up &&"
                  " ip link add few0 numrxqueues 1 numtxqueues 4 type veth peer name few1 numtxqueues 4 &&"
                  " ip link set few0 up && ip link set few1 up") == 0);
  struct Row {
    std::string spec;
    Errc errc;
    std::string text;
  };
  const std::vector<Row> rows = {
      {"af_packet:down0", Errc::kBadState, "run: sudo ip link set down0 up"},
      {"af_packet:a1500,mtu=4200", Errc::kConfig, "run: sudo ip link set a1500 mtu 4200"},
      {"af_packet:a4200,framesz=4096", Errc::kConfig, "power of two from 8192 for MTU 4200"},
      {"af_xdp:a4200", Errc::kUnsupported, "use af_packet:a4200"},
      {"af_xdp:many0", Errc::kConfig,
       "run: sudo ethtool -L many0 rx 1   or steer flows and add start_queue=0"},
      {"af_xdp:few0", Errc::kSystem, "if so, run there: sudo ethtool -L PEER tx 1"},
      {"tap:utap1,mtu=4200", Errc::kUnsupported, "use af_packet on a veth pair"},
      {"tap:a1500", Errc::kNameInUse, "run: sudo ip link del a1500"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.spec);
    Child child([&](const Report& report) {
      std::string text;
      const std::string printed = printed_by([&] {
        const auto port = open_port(row.spec);
        text = port ? "open" : std::to_string(raw(port.error().code)) + ' ' + port.error().text;
      });
      report.line(text + printed);
      return 0;
    });
    const std::string said = child.next_line(in_seconds(20));
    CHECK_THAT(said, Catch::StartsWith(std::to_string(raw(row.errc)) + ' ') && Catch::EndsWith(row.text));
  }
}

TEST_CASE("af_xdp takes a port on one of several queues from who says which, and one queue of a veth",
          "[eal][af_xdp]") {
  REQUIRE(std::system("ip link add some0 numrxqueues 2 type veth peer name some1 &&"
                      " ip link set some0 up && ip link set some1 up") == 0);
  Child child([](const Report& report) {
    drivers::PortOptions options;
    options.spec = "af_xdp:some0,start_queue=0";
    options.queues = 2;
    options.no_huge = true;
    const auto ports = drivers::open_ports(options);
    report.line(ports ? std::to_string(ports->size()) : ports.error().text);
    return 0;
  });
  CHECK(child.next_line(in_seconds(20)) == "1");
}

TEST_CASE("what af_xdp says of queues that it would not hear fits the kinds that the interface has",
          "[eal][errors]") {
  using drivers::dpdk::Interface;
  struct Row {
    Interface interface;
    unsigned bound;
    std::string text;  ///< empty: good
  };
  const Interface pairs{.rx_queues = 8, .xdp_queues = 8, .has_combined_queues = true};
  const Interface mixed{.rx_queues = 6, .xdp_queues = 4, .has_combined_queues = true};
  const Interface apart{.rx_queues = 8, .xdp_queues = 1};
  const std::string other = "   or steer flows and add start_queue=0";
  const std::vector<Row> rows = {
      {pairs, 8, ""},
      {pairs, 2, "2 of the 8 receive queues of eth7; run: sudo ethtool -L eth7 combined 2" + other},
      {mixed, 4, "4 of the 6 receive queues of eth7; run: sudo ethtool -L eth7 rx 0 combined 4" + other},
      {apart, 1, "1 of the 8 receive queues of eth7; run: sudo ethtool -L eth7 rx 1" + other},
      {Interface{}, 1, ""},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const Status status = require_all_queues("eth7", row.interface, row.bound);
    CHECK(static_cast<bool>(status) == row.text.empty());
    if (!status) CHECK_THAT(status.error().text, Catch::EndsWith(row.text));
  }
}

TEST_CASE("a port tells when its interface goes down, comes up and goes away", "[eal][link]") {
  Child child([](const Report& report) {
    const auto run = [](const char* command) { return std::system(command) == 0; };
    if (!run("ip link add la type veth peer name lb && ip link set la up && ip link set lb up")) return 1;
    auto port = open_port("af_packet:la");
    if (!port) {
      report.line(port.error().text);
      return 1;
    }
    std::string states;
    // The kernel tells of a carrier a little later than it has it.
    const auto becomes = [&](const char* command, port::LinkState wanted) {
      if (!run(command)) return;
      const Deadline deadline = in_seconds(5);
      while ((*port)->link_state() != wanted && !is_past(deadline)) sched_yield();
      states += std::to_string(static_cast<int>((*port)->link_state()));
    };
    using enum port::LinkState;
    becomes("true", kUp);
    becomes("ip link set lb down", kDown);  // no carrier
    becomes("ip link set lb up", kUp);
    becomes("ip link set la down", kDown);
    becomes("ip link set la up", kUp);
    becomes("ip link set la down && ip link set la name lc && ip link set lc up", kUp);
    becomes("ip link del lb", kGone);
    becomes("ip link add la type veth peer name lb && ip link set la up && ip link set lb up", kGone);
    report.line(states);
    return 0;
  });
  CHECK(child.next_line(in_seconds(20)) == "10101122");
}

TEST_CASE("a lack of descriptors changes nothing about an interface", "[eal][link]") {
  using enum port::LinkState;
  const auto run = [](const char* command) { return std::system(command) == 0; };
  REQUIRE(run("ip link add ka type veth peer name kb && ip link set ka up && ip link set kb up"));
  std::optional<drivers::dpdk::InterfaceWatch> watch;
  (void)errno_without_descriptors([&] {
    watch.emplace("ka");
    return watch->state() == kUp;
  });
  CHECK(errno_without_descriptors([&] { return watch->state() == kUp; }) == 0);
  CHECK(run("ip link set ka down"));
  CHECK(watch->state() == kDown);
  CHECK(errno_without_descriptors([&] { return watch->state() == kDown; }) == 0);
  CHECK(run("ip link set ka name kc && ip link set kc up"));
  const Deadline deadline = in_seconds(5);
  while (watch->state() != kUp && !is_past(deadline)) sched_yield();
  CHECK(watch->state() == kUp);
  CHECK(run("ip link del kb"));
  CHECK(watch->state() == kGone);
}

namespace {

/// Which of some group addresses the kernel lets into an interface. @param groups  as the kernel writes them
std::string heard_on(const std::string& interface, const std::vector<std::string>& groups) {
  std::ifstream in("/proc/net/dev_mcast");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::string heard;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string index, name, users, ours, group;
    words >> index >> name >> users >> ours >> group;
    for (std::size_t i = 0; name == interface && i < groups.size(); ++i)
      heard += group == groups[i] ? std::to_string(i) : "";
  }
  std::ranges::sort(heard);
  return heard;
}

/// What af_packet:ga hears, step by step, where nothing can be opened but at first.
std::string join_and_leave_without_descriptors() {
  if (std::system("ip link add ga type veth peer name gb && ip link set ga up && ip link set gb up") != 0)
    return "no interfaces";
  const std::vector<std::string> names{"01005e010101", "01005e010102", "01005e010103"};
  const std::array<MacAddress, 3> macs{
      {{{1, 0, 0x5e, 1, 1, 1}}, {{1, 0, 0x5e, 1, 1, 2}}, {{1, 0, 0x5e, 1, 1, 3}}}};
  auto port = open_port("af_packet:ga");
  if (!port) return port.error().text;
  const auto listen_to = [&](std::span<const MacAddress> groups) {
    (*port)->listen(groups);
    return true;
  };
  listen_to(std::array{macs[0], macs[2]});
  std::string heard = heard_on("ga", names);
  (void)errno_without_descriptors([&] { return listen_to(macs); });
  heard += ' ' + heard_on("ga", names);
  (void)errno_without_descriptors([&] { return listen_to(std::array{macs[2], macs[1]}); });
  heard += ' ' + heard_on("ga", names);
  (void)errno_without_descriptors([&] { return listen_to({}); });
  heard += ' ' + heard_on("ga", names);
  listen_to(macs);
  port->reset();
  return heard + ' ' + heard_on("ga", names) + '.';
}

}  // namespace

TEST_CASE("a port without descriptors goes on hearing its groups, joins and leaves others",
          "[eal][af_packet]") {
  Child child([](const Report& report) {
    report.line(join_and_leave_without_descriptors());
    return 0;
  });
  CHECK(child.next_line(in_seconds(30)) == "02 012 12  .");
}

namespace {

bool is_readable(int fd, int timeout_ms) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, timeout_ms) > 0;
}

/// Takes what has arrived. @return how many frames
unsigned drain(port::Port& port) {
  std::array<port::RxFrame, port::kBurst> frames;
  unsigned all = 0;
  while (const unsigned count = port.rx_burst(frames)) {
    all += count;
    port.rx_release();
  }
  return all;
}

/// Two interfaces that are up, on which the kernel has nothing to say, where it can be told so.
bool add_quiet_veth(const std::string& near, const std::string& far) {
  const std::string commands =
      "{ echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; } 2> /dev/null;"
      " ip link add " +
      near + " type veth peer name " + far + " && ip link set " + near + " up && ip link set " + far + " up";
  return std::system(commands.c_str()) == 0;
}

/// What becomes of a sleeper on af_packet:wa, while wb sends.
std::string sleep_and_wake() {
  const auto run = [](const char* command) { return std::system(command) == 0; };
  if (!add_quiet_veth("wa", "wb")) return "no interfaces";
  auto port = open_port("af_packet:wa");
  auto peer = open_port("af_packet:wb");
  if (!port || !peer) return "not open";
  const int fd = (*port)->rx_fd();
  if (fd < 0) return "nothing to wait for";
  drain(**port);
  if (!(*port)->arm_rx() || is_readable(fd, 0)) return "readable without a frame";
  std::byte* const room = (*peer)->tx_claim(100);
  if (room == nullptr) return "no room";
  write_frame(room, 100, 1, false);
  (*peer)->tx_commit();
  (*peer)->tx_flush();
  if (!is_readable(fd, 10'000)) return "not woken";
  (*port)->disarm_rx();
  if (!is_readable(fd, 0) || drain(**port) != 1) return "not the frame";
  if (is_readable(fd, 0)) return "readable after the frame";
  if (!run("ip link set wa down")) return "does not go down";
  is_readable(fd, 1000);
  (*port)->disarm_rx();
  return is_readable(fd, 0) ? "readable for ever" : "good";
}

/// What arm_rx() says on af_packet:qa, which takes frames faster than they leave.
std::string sleep_beside_what_waits() {
  const auto run = [](const char* command) { return std::system(command) == 0; };
  if (!run("ip link add qa type veth peer name qb && ip link set qa up && ip link set qb up &&"
           " tc qdisc replace dev qa root tbf rate 80mbit burst 10kb limit 40mb"))
    return "no interfaces";
  auto port = open_port("af_packet:qa,qdisc_bypass=0");
  if (!port) return "not open";
  unsigned sent = 0;
  for (; (*port)->arm_rx() && sent < 10'000; ++sent) {
    std::byte* const room = (*port)->tx_claim(1500);
    if (room == nullptr) return "no room";
    write_frame(room, 1500, sent, false);
    (*port)->tx_commit();
    (*port)->tx_flush();
  }
  if (sent == 10'000) return "no frame waits";
  const auto until = in_seconds(10);
  while (!(*port)->arm_rx() && Deadline::clock::now() < until) (*port)->tx_flush();
  return (*port)->arm_rx() ? "good" : "waits for ever";
}

}  // namespace

TEST_CASE("who polls an af_packet port does not sleep while frames wait for room", "[eal][af_packet]") {
  Child child([](const Report& report) {
    report.line(sleep_beside_what_waits());
    return 0;
  });
  CHECK(child.next_line(in_seconds(30)) == "good");
}

namespace {

/// Sends one frame. @return whether the port had room for it
bool send_one(port::Port& port, std::uint32_t len, std::uint64_t number) {
  std::byte* const room = port.tx_claim(len);
  if (room == nullptr) return false;
  write_frame(room, len, number, false);
  port.tx_commit();
  port.tx_flush();
  return true;
}

/// One after the other on af_packet:sa: a frame; one that is lost, as the interface is down; another frame.
std::string send_through_an_interruption(const std::string& options) {
  const auto run = [](const char* command) { return std::system(command) == 0; };
  if (!add_quiet_veth("sa", "sb")) return "no interfaces";
  auto port = open_port("af_packet:sa" + options);
  auto peer = open_port("af_packet:sb");
  if (!port || !peer) return "not open";
  std::string lens;
  const auto take = [&lens](port::Port& from) {  // but for what the kernel may have to say, as MLD reports
    std::array<port::RxFrame, port::kBurst> frames;
    const unsigned count = from.rx_burst(frames);
    bool any = false;
    for (unsigned i = 0; i < count; ++i) {
      const std::uint32_t len = frames[i].len;
      if (len < 100 || !is_frame(frames[i], len, len / 100, false)) continue;
      lens += ' ' + std::to_string(len);
      any = true;
    }
    from.rx_release();
    return any;
  };
  const auto wait_for_one = [&](port::Port& from) {
    while (!take(from)) (void)is_readable(from.rx_fd(), 10'000);
  };
  if (!send_one(**port, 100, 1)) return "no room";
  wait_for_one(**peer);
  if (!run("ip link set sa down") || !send_one(**port, 200, 2)) return "no room while it is down";
  if (!run("ip link set sa up") || !send_one(**port, 300, 3)) return "no room behind it";
  wait_for_one(**peer);
  lens += ", itself";
  take(**port);
  const port::PortCounters counters = (*port)->counters();
  return lens + ", sent " + std::to_string(counters.tx_frames) + " of " + std::to_string(counters.tx_bytes) +
         " B, dropped " + std::to_string(counters.tx_dropped);
}

}  // namespace

TEST_CASE(
    "af_packet drops and counts what an interface that is down does not send, and hears nothing of its own",
    "[eal][af_packet]") {
  const std::string options = GENERATE("", ",qdisc_bypass=off");
  CAPTURE(options);
  Child child([&options](const Report& report) {
    std::system("ip link del sa 2>/dev/null");
    report.line(send_through_an_interruption(options));
    return 0;
  });
  CHECK(child.next_line(in_seconds(40)) == " 100 300, itself, sent 2 of 400 B, dropped 1");
}

TEST_CASE("a sleeping af_packet port is woken by a frame, and only then", "[eal][af_packet][sleep]") {
  Child child([](const Report& report) {
    report.line(sleep_and_wake());
    return 0;
  });
  CHECK(child.next_line(in_seconds(40)) == "good");
}

namespace {

/// Sends up to `count` frames of one flow, which the kernel puts into one queue while that has room.
/// @return how many the port had room for
unsigned send_flow(port::Port& port, unsigned flow, unsigned count) {
  constexpr std::uint32_t kData = 40;
  Gid from = *Gid::parse("10.78.0.0");
  from.raw.back() = static_cast<std::uint8_t>(flow);
  const wire::FrameTemplate head(
      {.src_mac = port.info().mac, .dst_mac = {{2, 0x99}}, .sgid = from, .dgid = *Gid::parse("10.78.1.1")});
  unsigned sent = 0;
  for (; sent < count; ++sent) {
    std::byte* const frame = port.tx_claim(head.overhead() + kData);
    if (frame == nullptr) break;
    std::memset(head.emit_head(frame, kData), 0, kData);
    port.tx_commit();
  }
  port.tx_flush();
  return sent;
}

/// What is told of the frames that find no room in the queues of af_packet:va, while nobody takes any.
std::string lose_frames(unsigned queues) {
  constexpr unsigned kFlows = 8;  // with two queues one may have them all once in 128 times
  constexpr unsigned kFrames = 500;
  if (!add_quiet_veth("va", "vb")) return "no interfaces";
  auto ports = drivers::open_ports({.spec = "af_packet:va",
                                    .link_mtu = 0,
                                    .queues = queues,
                                    .no_huge = true,
                                    .fault = {},
                                    .seed = 1,
                                    .pcap = {}});
  auto peer = open_port("af_packet:vb");
  if (!ports || ports->size() != queues || !peer) return "not open";
  port::Port& first = *ports->front();
  std::uint64_t taken = 0;
  std::uint64_t missed = 0;
  for (unsigned flow = 0; flow < kFlows; ++flow) {
    const Deadline deadline = in_seconds(10);
    bool is_told = false;
    // The kernel may lose some on their way, or take no more for now.
    while (!is_told && !is_past(deadline)) {
      const unsigned more = send_flow(**peer, flow, kFrames);
      if (more < kFrames) sched_yield();
      if (first.known_counters().rx_missed != missed) return "the system is asked in between";
      (void)first.link_state();
      is_told = first.known_counters().rx_missed > missed;
    }
    if (!is_told) return "a look at the link does not tell";
    const std::uint64_t told = first.known_counters().rx_missed;
    for (const auto& port : *ports) taken += drain(*port);
    missed = first.counters().rx_missed;
    if (missed < told) return "what was told is forgotten";
    if (first.known_counters().rx_missed != missed) return "told, and not known";
  }
  const std::uint64_t last = ports->back()->counters().rx_missed;
  if (last != (queues == 1 ? missed : 0)) return "told twice";
  if (first.counters().rx_missed != missed) return "not the same without a frame";
  return taken > 0 ? "good" : "none is taken";
}

}  // namespace

TEST_CASE("frames that find no room in the rings of an af_packet port are counted", "[eal][af_packet]") {
  const unsigned queues = GENERATE(1U, 2U);
  CAPTURE(queues);
  Child child([queues](const Report& report) {
    std::system("ip link del va 2>/dev/null");
    report.line(lose_frames(queues));
    return 0;
  });
  CHECK(child.next_line(in_seconds(100)) == "good");
}

TEST_CASE("a tap port is the other end of a kernel interface, with another address", "[eal][tap]") {
  Child child([](const Report& report) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // programs may: a port needs none
    auto port = open_port("tap:utap0");
    if (!port) {
      report.line(port.error().text);
      return 1;
    }
    const int fd = socket(AF_PACKET, SOCK_RAW, 0);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_ifindex = static_cast<int>(if_nametoindex("utap0"));
    if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      report.line("there is no utap0");
      return 1;
    }
    std::array<std::byte, 1514> frame;
    write_frame(frame.data(), frame.size(), 7, false);
    if (send(fd, frame.data(), frame.size(), 0) < 0) report.line(std::strerror(errno));
    std::array<port::RxFrame, port::kBurst> frames;
    bool is_seen = false;
    const bool is_whole = is_cancelled_after([&] {
      std::byte* const room = (*port)->tx_claim(60);
      write_frame(room, 60, 8, false);
      (*port)->tx_commit();
      (*port)->tx_flush();
      for (const Deadline deadline = in_seconds(5); !is_seen && !is_past(deadline);) {
        const unsigned count = (*port)->rx_burst(frames);
        for (unsigned i = 0; i < count; ++i) is_seen = is_seen || is_frame(frames[i], frame.size(), 7, false);
        if (count > 0) (*port)->rx_release();
      }
    });
    close(fd);
    sigset_t waiting;
    sigpending(&waiting);
    for (int number = 1; number < NSIG; ++number) {
      if (sigismember(&waiting, number) == 1) report.line("signal " + std::to_string(number));
    }
    report.line(!is_whole ? "cancelled" : is_seen ? "seen" : "lost");
    return 0;
  });
  CHECK(child.next_line(in_seconds(20)) == "seen");
}

}  // namespace uroce::test
