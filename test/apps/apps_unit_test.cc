#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "apps/common/clock.h"
#include "apps/common/cores.h"
#include "apps/common/exchange.h"
#include "apps/common/histogram.h"
#include "apps/common/machine.h"
#include "apps/common/pattern.h"
#include "apps/common/percentiles.h"
#include "apps/common/port_spec.h"
#include "apps/common/rate_meter.h"
#include "apps/common/samples.h"
#include "apps/common/stop.h"
#include "apps/common/table.h"
#include "apps/common/tcp.h"
#include "apps/common/worker.h"
#include "apps/pingpong/payload.h"

namespace uroce::apps {
namespace {

TEST_CASE("two clocks are read again when something comes in between", "[apps][clock]") {
  std::uint64_t time = 0;
  std::vector<std::uint64_t> pauses;  // before each reading; none: 20
  std::size_t readings = 0;
  const auto read = [&] { return time += readings < pauses.size() ? pauses[readings++] : (++readings, 20); };
  const auto twice = [&] { return 2 * read(); };
  CHECK(read_together(read, twice).ticks == 2 * 40);
  CHECK(readings == 3);
  for (const std::size_t at : {1U, 2U}) {  // before the ticks, and behind them
    pauses.assign(9, 20);
    pauses[at] = pauses[at + 3] = 5'000'000;
    time = readings = 0;
    const ClockPair both = read_together(read, twice);
    CHECK(readings == 9);
    CHECK(both.ticks == 2 * both.ns);
  }
  pauses.assign(1000, 4000);  // always
  pauses[31] = 2000;
  time = readings = 0;
  const ClockPair both = read_together(read, twice);
  CHECK(readings == 300);
  CHECK(both.ticks == 2 * (31 * 4000 + 2000));
}

TEST_CASE("a histogram tells percentiles within half a percent over twelve decades", "[apps][histogram]") {
  auto histogram = std::make_unique<Histogram>();
  for (std::uint64_t value = 1; value <= 100'000; ++value) histogram->add(value * 10'000'000);
  for (const double percent : {1.0, 50.0, 90.0, 99.0, 99.9}) {
    const double exact = percent / 100 * 1e12;
    CHECK(histogram->percentile(percent) == Approx(exact).epsilon(0.005));
  }
  CHECK(histogram->min() == 10'000'000);
  CHECK(histogram->max() == 1'000'000'000'000);
  CHECK(histogram->mean() == Approx(1e12 / 2).epsilon(0.001));
}

TEST_CASE("a histogram holds small values exactly", "[apps][histogram]") {
  auto histogram = std::make_unique<Histogram>();
  for (const std::uint64_t value : {0U, 5U, 5U, 5U, 127U}) histogram->add(value);
  CHECK(histogram->percentile(0) == 0);
  CHECK(histogram->percentile(50) == 5);
  CHECK(histogram->percentile(100) == 127);
  CHECK(histogram->stdev() == Approx(55.3).epsilon(0.01));
}

TEST_CASE("a histogram tells percentiles between the steps of a clock", "[apps][histogram]") {
  constexpr std::uint64_t kStep = 26;  // units that the clock moves by
  auto histogram = std::make_unique<Histogram>();
  for (std::uint64_t value = 900; value < 1100; ++value) {
    for (std::uint64_t phase = 0; phase < kStep; ++phase) histogram->add((value + phase) / kStep * kStep);
  }
  for (const double percent : {10.0, 50.0, 90.0}) {
    INFO(percent);
    CHECK(histogram->interpolated(percent) == Approx(900 + 2 * percent).margin(2.5));
  }
  CHECK(std::abs(histogram->percentile(50) - 1000) > 10);

  auto same = std::make_unique<Histogram>();
  CHECK(same->interpolated(50) == 0);
  for (int i = 0; i < 10; ++i) same->add(100);
  CHECK(same->interpolated(50) == 100);
  CHECK(same->interpolated(99) == 100);
  same->add(90);
  same->add(10'000);  // far away, so no step
  CHECK(same->interpolated(50) == Approx(100).margin(5));
  CHECK(same->interpolated(100) == Approx(10'000).epsilon(0.005));
}

TEST_CASE("a histogram refuses percentiles with fewer than ten samples above", "[apps][histogram]") {
  auto histogram = std::make_unique<Histogram>();
  for (int i = 0; i < 1000; ++i) histogram->add(1000);
  CHECK(histogram->sound_percentile(99).has_value());
  CHECK_FALSE(histogram->sound_percentile(99.9).has_value());
}

TEST_CASE("a distribution is written as HdrHistogram writes it", "[apps][histogram]") {
  auto histogram = std::make_unique<Histogram>();
  for (std::uint64_t value = 1; value <= 100; ++value) histogram->add(value);
  std::istringstream lines(percentiles_text(*histogram, 0.5));
  std::string line;
  std::getline(lines, line);
  CHECK(line == "       Value     Percentile TotalCount 1/(1-Percentile)");
  std::getline(lines, line);
  CHECK(line.empty());
  double last = -1;
  double value = 0;
  double part = 0;
  std::uint64_t count = 0;
  std::size_t rows = 0;
  while (lines.peek() != '#' && lines >> value >> part >> count) {
    if (part < 1) {
      double inverse = 0;
      lines >> inverse;
      CHECK(inverse == Approx(1 / (1 - part)).epsilon(0.01));
      CHECK(static_cast<double>(count) >= 100 * part - 1e-9);
    }
    CHECK(value == static_cast<double>(count) / 2);  // of values 1 to 100
    CHECK(part > last);
    last = part;
    std::getline(lines, line);
    ++rows;
  }
  CHECK(last == 1);
  CHECK(value == 50);
  CHECK(rows > 5 * 6);
  std::getline(lines, line);
  CHECK(line == "#[Mean    =       25.250, StdDeviation   =       14.506]");
  std::getline(lines, line);
  CHECK(line == "#[Max     =       50.000, Total count    =          100]");
}

TEST_CASE("a distribution of nothing has no lines", "[apps][histogram]") {
  const auto text = percentiles_text(*std::make_unique<Histogram>(), 1);
  CHECK(std::ranges::count(text, '\n') == 4);
}

namespace {

/// A folder with files as a kernel has them; gone at the end.
class FakeRoot {
 public:
  FakeRoot() : path_(std::filesystem::temp_directory_path() / ("uroce-root-" + std::to_string(getpid()))) {}
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text << '\n';
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

const Finding& finding(const std::vector<Finding>& all, const std::string& what) {
  const auto found = std::ranges::find(all, what, &Finding::what);
  REQUIRE(found != all.end());
  return *found;
}

}  // namespace

TEST_CASE("a machine is read from its files", "[apps][doctor]") {
  const FakeRoot root;
  root.write("proc/cpuinfo",
             "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu hypervisor nonstop_tsc\n\nprocessor\t: 1");
  root.write("proc/sys/kernel/osrelease", "6.1.0");
  root.write("sys/devices/system/cpu/isolated", "2-3,5");
  root.write("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,10");
  root.write("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave");
  root.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc");
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  root.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100");
  root.write("sys/devices/system/node/node0/x", "");
  root.write("sys/devices/system/node/node1/x", "");
  root.write("sys/class/net/lo/mtu", "65536");
  root.write("sys/class/net/eth7/mtu", "1500");
  root.write("sys/class/net/eth7/operstate", "up");
  const Machine machine = read_machine(root.path(), {2, 4});
  CHECK(machine.cpu == "A CPU");
  CHECK(machine.kernel == "6.1.0");
  CHECK(machine.isolated == std::vector{2, 3, 5});
  CHECK(machine.siblings == std::vector<std::string>{"2,10", ""});
  CHECK(machine.governor == "powersave");
  CHECK(machine.clock_source == "tsc");
  CHECK(machine.transparent_hugepages == "madvise");
  CHECK(machine.is_virtual);
  CHECK(machine.has_invariant_tsc);
  CHECK_FALSE(machine.has_wide_crc);
  CHECK(machine.numa_nodes == 2);
  CHECK(machine.free_hugepages == 100);
  REQUIRE(machine.interfaces.size() == 1);
  CHECK(machine.interfaces[0].name == "eth7");
  CHECK(machine.interfaces[0].mtu == 1500);
  CHECK(machine.interfaces[0].is_up);

  const auto findings = judge(machine, false);
  CHECK(finding(findings, "isolation").grade == Grade::kGood);
  CHECK(finding(findings, "governor").mend == "cpupower frequency-set -g performance");
  CHECK(finding(findings, "hugepages").grade == Grade::kGood);
  CHECK(finding(findings, "interface eth7").grade == Grade::kCouldBeBetter);
}

TEST_CASE("what a machine lacks is told with what mends it", "[apps][doctor]") {
  Machine machine{.cores = {0, 1, 2, 3}, .siblings = {"0,1", "0,1", "2,3", "2,3"}};
  CHECK(finding(judge(machine, false), "cores").grade == Grade::kGood);
  CHECK(finding(judge(machine, false), "isolation").mend ==
        "boot with isolcpus=2,3 nohz_full=2,3 rcu_nocbs=2,3");
  CHECK(finding(judge(machine, false), "hugepages").mend.starts_with("config/hugepages"));
  CHECK(finding(judge(machine, true), "hugepages").grade == Grade::kGood);
  machine.isolated = {7};
  CHECK(finding(judge(machine, false), "isolation").mend == "taskset -c 7 uroce ...");
  machine.siblings = {"0,1", "0,1", "0,1", "0,1"};
  CHECK(finding(judge(machine, false), "cores").grade == Grade::kCouldBeBetter);
  const auto without = judge(machine, false).size();
  machine.interfaces = {{.name = "ifb0", .mtu = 1500}};  // virtual, and not in use
  CHECK(judge(machine, false).size() == without);
  machine.cores = {0};
  CHECK(finding(judge(machine, false), "cores").grade == Grade::kCouldBeBetter);
}

TEST_CASE("a machine without any of the files is judged, too", "[apps][doctor]") {
  const Machine machine = read_machine("/nonesuch", {0, 1});
  CHECK(machine.cpu.empty());
  CHECK_FALSE(machine.free_hugepages.has_value());
  CHECK_FALSE(judge(machine, false).empty());
}

namespace {

/// Answers nothing until it is told to end. Says when it begins to, and when it is gone, which takes it a
/// while.
class Endless final : public Service {
 public:
  explicit Endless(int said, unsigned closing_us = 0) : said_(said), closing_us_(closing_us) {}
  Endless(const Endless&) = delete;
  Endless& operator=(const Endless&) = delete;
  ~Endless() override {
    ::usleep(closing_us_);
    say('e');
  }
  Result<Json> handle(const Json& /*request*/) override {
    say('b');
    while (!is_stopped()) ::usleep(1000);
    return stopped();
  }

 private:
  void say(char what) const { (void)!::write(said_, &what, 1); }

  int said_;
  unsigned closing_us_;
};

/// A worker that is at it.
Worker endless_worker(const std::array<int, 2>& said, unsigned closing_us) {
  auto worker = Worker::spawn("the worker", choose_cores().client,
                              [&] { return std::make_unique<Endless>(said[1], closing_us); });
  if (!worker || !worker->send({{"op", "work"}})) throw std::runtime_error("no worker");
  ::close(said[1]);
  char what = 0;
  if (::read(said[0], &what, 1) != 1 || what != 'b') throw std::runtime_error("no work");
  return std::move(*worker);
}

void check_that_all_was_closed(int said) {
  char what = 0;
  pollfd one{.fd = said, .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&one, 1, 20'000) == 1);
  REQUIRE(::read(said, &what, 1) == 1);
  CHECK(what == 'e');
  ::close(said);
}

}  // namespace

TEST_CASE("a worker leaves its work and closes all when the program is told to end", "[apps][worker]") {
  std::array<int, 2> said{};
  const unsigned closing_us = GENERATE(0U, 1'300'000U);
  REQUIRE(::pipe(said.data()) == 0);
  Worker worker = endless_worker(said, closing_us);
  stop_signal = SIGTERM;
  { const Worker gone = std::move(worker); }
  stop_signal = 0;
  check_that_all_was_closed(said[0]);
}

TEST_CASE("a worker that does not answer leaves its work and closes all when it is given up",
          "[apps][worker]") {
  std::array<int, 2> said{};
  REQUIRE(::pipe(said.data()) == 0);
  { const Worker worker = endless_worker(said, 0); }
  check_that_all_was_closed(said[0]);
}

namespace {

/// Throws when it is asked, or before that.
class Throwing final : public Service {
 public:
  Result<Json> handle(const Json& request) override {
    if (request.at("op") == "work") throw std::bad_alloc();
    throw std::runtime_error("what it throws");
  }
};

}  // namespace

TEST_CASE("what a worker's service throws is its answer, and ends it", "[apps][worker]") {
  const bool is_memory = GENERATE(true, false);
  auto worker =
      Worker::spawn("the worker", choose_cores().client, [] { return std::make_unique<Throwing>(); });
  REQUIRE(worker);
  const auto answer = worker->ask({{"op", is_memory ? "work" : "rest"}}, 20 * kSecond);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == (is_memory ? Errc::kNoMemory : Errc::kSystem));
  CHECK(answer.error().text == (is_memory ? "no memory is left" : "what it throws"));
  const auto next = worker->ask({{"op", "work"}}, 20 * kSecond);
  REQUIRE_FALSE(next);
  CHECK(next.error().text ==
        fmt::format("the worker ended with exit code {}", exit_code(answer.error().code)));
}

TEST_CASE("a worker whose service cannot be made says so", "[apps][worker]") {
  auto worker = Worker::spawn("the worker", choose_cores().client,
                              []() -> std::unique_ptr<Service> { throw std::bad_alloc(); });
  REQUIRE(worker);
  const auto answer = worker->ask({{"op", "work"}}, 20 * kSecond);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == Errc::kNoMemory);
}

TEST_CASE("a worker closes all when the program is killed", "[apps][worker]") {
  std::array<int, 2> said{};
  REQUIRE(::pipe(said.data()) == 0);
  const pid_t program = ::fork();
  REQUIRE(program >= 0);
  if (program == 0) {
    try {
      const Worker worker = endless_worker(said, 0);
      ::raise(SIGKILL);
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  ::close(said[1]);
  int status = 0;
  REQUIRE(::waitpid(program, &status, 0) == program);
  CHECK(WIFSIGNALED(status));
  check_that_all_was_closed(said[0]);
}

TEST_CASE("who may share its core gives way now and then, not each time from then on", "[apps][cores]") {
  // A peer that only answers READs or takes WRITEs sees no completion at all: to yield after each poll left
  // it 2 GB/s of 8, and 2.1 us of 0.5.
  const GiveWay now_and_then{.after = 256};
  std::uint32_t times = 0;
  for (std::uint32_t polls = 0; polls < 2560; ++polls) times += now_and_then.is_due(polls) ? 1 : 0;
  CHECK(times == 9);
  CHECK_FALSE(now_and_then.is_due(0));
  CHECK(now_and_then.is_due(256));

  const auto shared = GiveWay::at_once_if(true);
  CHECK((shared.is_due(0) && shared.is_due(1) && shared.is_due(1000)));
  const auto alone = GiveWay::at_once_if(false);
  CHECK_FALSE((alone.is_due(0) || alone.is_due(1) || alone.is_due(1U << 31U)));
}

TEST_CASE("hiccups are looked for as long as one is told", "[apps][doctor]") {
  const Hiccups hiccups = look_for_hiccups(20'000'000);
  CHECK(hiccups.seconds >= 0.0199);
  CHECK(hiccups.lost_percent <= 100);
  CHECK(judge({.seconds = 1, .count = 10}, 3).grade == Grade::kGood);
  CHECK(judge({.seconds = 1, .count = 11}, 3).grade == Grade::kCouldBeBetter);
}

TEST_CASE("a rate is the median of its windows, not the mean", "[apps][rate]") {
  RateMeter meter(1000);
  std::uint64_t now = 1;
  meter.add(7, now);  // opens the first window; its units took unknown time
  for (int i = 0; i < 9; ++i) meter.add(10, now += 1000);
  meter.add(10, now += 1'000'000);  // a pause
  CHECK(meter.typical() == Approx(1e7));
  CHECK(meter.average() < 1e6);
  CHECK(meter.peak() == Approx(1e7));
}

TEST_CASE("the peak of completions that come in bursts is no more than what was transferred",
          "[apps][rate]") {
  constexpr std::uint64_t kQps = 64;
  constexpr std::uint64_t kGroup = 100;  // operations for which one completion stands
  const auto peak = [](std::uint64_t least_units) {
    RateMeter meter(kMillisecond, 0, least_units);
    std::uint64_t now = 1;
    for (int burst = 0; burst < 40; ++burst) {  // of all QPs within 1.3 ms of 40
      now += 40 * kMillisecond;
      for (std::uint64_t qp = 0; qp < kQps; ++qp) meter.add(kGroup, now += 20'000);
    }
    return meter.peak() / meter.average();
  };
  CHECK(peak(0) > 20);
  CHECK(peak(4 * kQps * kGroup) < 1.5);
  CHECK(peak(30 * kQps * kGroup) == 0);  // one window is none
}

TEST_CASE("a figure beside another is the median of what it is of that round by round", "[apps][samples]") {
  const auto rates = [](std::initializer_list<double> all) {
    Samples samples;
    for (const double rate : all) samples.all.push_back({.rate = rate});
    return samples;
  };
  // The machine is half as fast from the third round on, then from the second.
  CHECK(rates({75, 75, 37.5, 37.5}).beside(rates({100, 100, 50, 50}), &Reached::rate) == 0.75);
  CHECK(rates({75, 75, 37.5}).beside(rates({100, 50, 50}), &Reached::rate) == 0.75);
  CHECK(rates({75, 0}).beside(rates({100, 100, 1}), &Reached::rate) == 0.75);  // one is not measured
  CHECK(rates({0}).beside(rates({100}), &Reached::rate) == 0);
}

TEST_CASE("a pattern shows shifted, stale and torn data", "[apps][pattern]") {
  std::vector<std::byte> data(1000);
  fill_pattern(data, 42);
  CHECK(pattern_errors(data, 42) == 0);
  CHECK(pattern_errors(data, 43) > 950);
  CHECK(pattern_errors(std::span(data).subspan(8), 42) > 950);
  data[999] ^= std::byte{1};
  CHECK(pattern_errors(data, 42) == 1);
  CHECK(pattern_errors(std::span(data).first(3), 42) == 0);
}

TEST_CASE("a QP address has the text of ibv_rc_pingpong", "[apps][exchange]") {
  const QpAddress address{.qpn = Qpn{0x11}, .psn = Psn{0xa5b6c7}, .gid = Gid::from_v4({10, 0, 0, 1})};
  CHECK(to_wire(address) == "0000:000011:a5b6c7:00000000000000000000ffff0a000001");
  CHECK(from_wire(to_wire(address)) == address);
  CHECK(to_string(address) == "LID 0x0000, QPN 0x000011, PSN 0xa5b6c7, GID ::ffff:10.0.0.1");
}

TEST_CASE("text that is no QP address is refused", "[apps][exchange]") {
  for (const char* text : {"", "0000", "0000:000011:a5b6c7", "0000:000011:a5b6c7:0000", "0000:1000000:0:0",
                           "0000:000011:a5b6c7:0000000000000000000000000a00000g", "GET / HTTP/1.1",
                           "0000:0000x1:a5b6c7:00000000000000000000ffff0a000001"}) {
    CHECK_FALSE(from_wire(text).has_value());
  }
}

TEST_CASE("addresses and lines pass over TCP", "[apps][tcp]") {
  auto listener = tcp_listen("127.0.0.1", 0);
  REQUIRE(listener);
  const std::uint64_t until = now_ns() + 5 * kSecond;
  auto client = tcp_connect("127.0.0.1", tcp_local_port(*listener), until);
  REQUIRE(client);
  auto server = tcp_accept(*listener, until);
  REQUIRE(server);

  const QpAddress address{.qpn = Qpn{5}, .psn = Psn{6}, .gid = Gid::from_v4({1, 2, 3, 4})};
  REQUIRE(send_address(*client, address, until));
  CHECK(*receive_address(*server, until) == address);
  REQUIRE(send_done(*client, until));
  CHECK(receive_done(*server, until));
  REQUIRE(tcp_send_line(*server, R"({"a":1})", until));
  CHECK(*tcp_receive_line(*client, until) == R"({"a":1})");

  *client = Socket();
  CHECK(receive_address(*server, until).error().code == Errc::kPeer);
}

TEST_CASE("a silent TCP peer is a timeout", "[apps][tcp]") {
  auto listener = tcp_listen("127.0.0.1", 0);
  REQUIRE(listener);
  CHECK(tcp_accept(*listener, now_ns() + 10 * kMillisecond).error().code == Errc::kTimeout);
  auto client = tcp_connect("127.0.0.1", tcp_local_port(*listener), now_ns() + kSecond);
  REQUIRE(client);
  CHECK(tcp_receive_line(*client, now_ns() + 10 * kMillisecond).error().code == Errc::kTimeout);
}

TEST_CASE("an address without GID names the option that is missing", "[apps][exchange]") {
  auto listener = tcp_listen("127.0.0.1", 0);
  REQUIRE(listener);
  const std::uint64_t until = now_ns() + 5 * kSecond;
  auto client = tcp_connect("127.0.0.1", tcp_local_port(*listener), until);
  REQUIRE(client);
  auto server = tcp_accept(*listener, until);
  REQUIRE(server);
  REQUIRE(send_address(*client, QpAddress{.qpn = Qpn{5}, .psn = Psn{6}, .gid = {}}, until));
  const auto got = receive_address(*server, until);
  REQUIRE_FALSE(got);
  CHECK(got.error().text.find("-g") != std::string::npos);
}

TEST_CASE("the ping-pong server accepts its own kind and the stock tool, nothing else", "[apps][pingpong]") {
  std::vector<std::byte> memory(10'000);
  const auto size = static_cast<std::uint32_t>(memory.size());
  Payload client(size, true);
  const auto errors = [&](std::uint32_t iteration) {
    Payload server(size, false);
    server.check(memory, size, iteration);
    return server.errors();
  };
  client.fill(memory, 3);
  CHECK(errors(3) == 0);
  CHECK(errors(4) > 0);  // a message of another iteration
  memory[5000] ^= std::byte{1};
  CHECK(errors(3) > 0);

  std::memset(memory.data(), 0x7b, memory.size());  // the stock tool
  CHECK(errors(3) == 0);
  memory[0] = memory[4096] = memory[8192] = std::byte{0};  // the stock tool with -c
  CHECK(errors(3) == 0);
  memory[4097] = std::byte{0};
  CHECK(errors(3) > 0);
}

TEST_CASE("a ping-pong client wants back what it sent", "[apps][pingpong]") {
  std::vector<std::byte> memory(5000);
  Payload client(5000, true);
  client.fill(memory, 0);
  client.check(memory, 5000, 0);
  CHECK(client.errors() == 0);
  client.check(memory, 4999, 0);
  CHECK(client.errors() == 1);
  std::memset(memory.data(), 0x7b, memory.size());
  client.check(memory, 5000, 1);
  CHECK(client.errors() > 4000);
}

TEST_CASE("the two ends of a link on this machine have the port that their kind needs", "[apps][endpoint]") {
  const auto ends = [](const std::string& spec) {
    return std::pair{port_spec_for_end(spec, false), port_spec_for_end(spec, true)};
  };
  using Ends = std::pair<std::string, std::string>;
  CHECK(ends("shm:x") == Ends{"shm:x", "shm:x"});
  CHECK(ends("memif:/m") == Ends{"memif:/m,role=client", "memif:/m,role=server"});
  CHECK(ends("memif:/m,role=server") == Ends{"memif:/m,role=server", "memif:/m,role=server"});
  const Ends vhost_user{"virtio_user:/v,mtu=1500", "vhost:/v,mtu=1500"};
  CHECK(ends("vhost:/v,mtu=1500") == vhost_user);
  CHECK(ends("virtio_user:/v,mtu=1500") == vhost_user);
  CHECK(another_link("vhost:/v,mtu=1500", "-raw") == "vhost:/v-raw,mtu=1500");
  CHECK(another_link("virtio_user:/v", "-raw") == "virtio_user:/v-raw");
  CHECK(another_link("af_packet:eth0", "-raw") == "af_packet:eth0");
  for (const char* spec : {"shm:x", "memif:/m,role=server", "vhost:/v", "virtio_user:/v"}) {
    CHECK(makes_links(spec));
    CHECK_FALSE(is_one_end(spec));
  }
  for (const char* spec : {"af_packet:eth0", "af_xdp:x", "tap:t", "pci:0000:00:05.0", "ring:x"}) {
    CHECK_FALSE(makes_links(spec));
    CHECK(is_one_end(spec));
  }
  CHECK_FALSE(is_one_end("af_packet:lo,ring=on"));
  CHECK(is_one_end("af_packet:lo2"));
  CHECK(is_same_interface("af_packet:x,ring=on", "af_packet:x"));
  CHECK_FALSE(is_same_interface("af_packet:x", "af_packet:x2"));
}

TEST_CASE("each end of each link has a capture file of its own", "[apps][endpoint]") {
  CHECK(capture_for_end("/tmp/x", "shm", false) == "/tmp/x.shm.client");
  CHECK(capture_for_end("/tmp/x", "memif", true) == "/tmp/x.memif.server");
  CHECK(capture_for_end("", "shm", true).empty());
}

TEST_CASE("a table aligns its columns", "[apps][table]") {
  Table table({"name", "n"}, 1);
  table.add({"a", "10"});
  table.add({"long", "5"});
  CHECK(table.text() == " name   n\n a     10\n long   5\n");
}

}  // namespace
}  // namespace uroce::apps
