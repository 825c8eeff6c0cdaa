// Counters that a device shows other processes, as its writer and `uroce stat` see them.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "api/side.h"
#include "apps/stat/report.h"
#include "verbs/stat_page.h"

namespace uroce::apps {
namespace {

using stat_layout::Header;

std::unique_ptr<uroce::StatPage> two_loops() {
  auto page = uroce::StatPage::make(2, 3,
                                    {.port = "shm:x\x1b[2J",
                                     .addresses = "10.0.0.1/24 fd00::1/64",
                                     .names = "rx_roce tx_roce",
                                     .qp_names = "cnps naks"});
  REQUIRE(page != nullptr);
  return page;
}

DeviceFigures must_read(const uroce::StatPage& page) {
  auto read = read_page(page.fd());
  REQUIRE(read.has_value());
  return *read;
}

/// The bytes of a sound page, in a file that may be changed.
class Forged {
 public:
  Forged() : fd_(memfd_create("forged", MFD_CLOEXEC)) {
    const auto page = two_loops();
    bytes_.resize(static_cast<std::size_t>(lseek(page->fd(), 0, SEEK_END)));
    REQUIRE(pread(page->fd(), bytes_.data(), bytes_.size(), 0) == static_cast<ssize_t>(bytes_.size()));
    std::memcpy(&header, bytes_.data(), sizeof header);
  }
  ~Forged() { close(fd_); }
  Forged(const Forged&) = delete;
  Forged& operator=(const Forged&) = delete;

  /// @param bytes  of the file
  bool is_read(std::size_t bytes = SIZE_MAX) {
    std::memcpy(bytes_.data(), &header, sizeof header);
    bytes = std::min(bytes, bytes_.size());
    REQUIRE(ftruncate(fd_, 0) == 0);
    REQUIRE(pwrite(fd_, bytes_.data(), bytes, 0) == static_cast<ssize_t>(bytes));
    return read_page(fd_).has_value();
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  char& at(std::size_t index) { return bytes_.at(index); }

  Header header;

 private:
  int fd_;
  std::vector<char> bytes_;
};

TEST_CASE("what a page holds is read as it was written", "[apps][stat]") {
  const auto page = two_loops();
  CHECK(must_read(*page).loops[0].time_ns == 0);
  page->write(1, 77, std::array<std::uint64_t, 2>{5, UINT64_MAX});
  const DeviceFigures read = must_read(*page);
  CHECK(read.pid == static_cast<std::uint32_t>(getpid()));
  CHECK(read.port == "shm:x?[2J");  // nothing that moves a terminal's cursor
  CHECK(read.addresses == std::vector<std::string>{"10.0.0.1/24", "fd00::1/64"});
  CHECK(read.names == std::vector<std::string>{"rx_roce", "tx_roce"});
  REQUIRE(read.loops.size() == 2);
  CHECK(read.loops[0].values == std::vector<std::uint64_t>{0, 0});
  CHECK(read.loops[1].time_ns == 77);
  CHECK(read.loops[1].values == std::vector<std::uint64_t>{5, UINT64_MAX});
  CHECK(must_read(*two_loops()).device != read.device);
}

TEST_CASE("pages that make no sense are refused", "[apps][stat]") {
  Forged forged;
  REQUIRE(forged.is_read());
  const Header sound = forged.header;
  const auto refused = [&](auto Header::*field, std::initializer_list<std::uint64_t> values) {
    for (const std::uint64_t value : values) {
      forged.header = sound;
      forged.header.*field = static_cast<std::remove_reference_t<decltype(sound.*field)>>(value);
      CAPTURE(value);
      CHECK_FALSE(forged.is_read());
    }
    forged.header = sound;
  };
  refused(&Header::magic, {0, sound.magic + 1});
  refused(&Header::version, {0, 1, 3});
  refused(&Header::loops, {0, 200, 257, UINT32_MAX});
  refused(&Header::counters, {0, 1, 3, 1025, UINT32_MAX});
  refused(&Header::port_bytes, {0, 1000, 65'537, UINT32_MAX});
  refused(&Header::addresses_bytes, {1000, 65'537, UINT32_MAX});
  refused(&Header::names_bytes, {0, 3, 1000, 65'537, UINT32_MAX});
  refused(&Header::rows, {4, 1U << 24U, UINT32_MAX});
  refused(&Header::qp_counters, {0, 1, 3, 1025, UINT32_MAX});
  refused(&Header::qp_names_bytes, {0, 3, 1000, 65'537, UINT32_MAX});
  for (std::size_t bytes = 0; bytes < forged.size(); bytes += 8) CHECK_FALSE(forged.is_read(bytes));
  for (const char c : {'\0', '\n', '\x1b', '\x7f', '\xff'}) {
    const char before = std::exchange(forged.at(sizeof(Header)), c);
    CHECK_FALSE(forged.is_read());
    forged.at(sizeof(Header)) = before;
  }
  const std::size_t names = sizeof(Header) + sound.port_bytes + sound.addresses_bytes;
  for (const char c : {'"', '{', 'A', ' '}) {
    const char before = std::exchange(forged.at(names), c);
    CHECK_FALSE(forged.is_read());
    forged.at(names) = before;
  }
  CHECK(forged.is_read());
  CHECK_FALSE(read_page(-1).has_value());
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  CHECK_FALSE(read_page(ends[0]).has_value());
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a page whose writer stands still amid a change is refused", "[apps][stat]") {
  Forged forged;
  forged.at(block_at(forged.header, 1)) = 1;  // of the sequence
  CHECK_FALSE(forged.is_read());
}

TEST_CASE("a reader never sees a half of a change", "[apps][stat]") {
  constexpr int kReads = 2000;
  const auto page = two_loops();
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !done; ++i) {
      for (int rest = 0; rest < 100 && !done; ++rest) std::this_thread::yield();  // it is ten times a second
      page->write(0, i, std::array<std::uint64_t, 2>{i, 3 * i});
    }
  });
  int torn = 0;
  for (int i = 0; i < kReads; ++i) {
    const auto read = read_page(page->fd());
    if (!read) continue;
    const LoopFigures& loop = read->loops[0];
    torn += static_cast<int>(loop.values[0] != loop.time_ns || loop.values[1] != 3 * loop.time_ns);
  }
  done = true;
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("nobody can make the page smaller than its device believes", "[apps][stat]") {
  const auto page = two_loops();
  CHECK(ftruncate(page->fd(), 0) != 0);
}

TEST_CASE("a child that was forked leaves its parent's page alone, and has none", "[apps][stat]") {
  const auto page = two_loops();
  page->write(0, 1, std::array<std::uint64_t, 2>{1, 1});
  int told[2] = {};
  REQUIRE(pipe(told) == 0);
  const pid_t child = fork();
  if (child == 0) {
    page->write(0, 2, std::array<std::uint64_t, 2>{2, 2});
    const bool sees_any = !find_pages(static_cast<unsigned>(getpid())).empty();
    const char answer = sees_any ? 'y' : 'n';
    _exit(::write(told[1], &answer, 1) == 1 ? 0 : 1);
  }
  REQUIRE(child > 0);
  char answer = 0;
  CHECK(read(told[0], &answer, 1) == 1);
  CHECK(answer == 'n');
  REQUIRE(waitpid(child, nullptr, 0) == child);
  close(told[0]);
  close(told[1]);
  CHECK(must_read(*page).loops[0].values == std::vector<std::uint64_t>{1, 1});
}

TEST_CASE("the page of a device follows its counters", "[apps][stat]") {
  using namespace uroce::api;
  const auto own = [] { return find_pages(static_cast<unsigned>(getpid())); };
  {
    Joined pair(Mode::kApp);
    Side from(pair.a, QpType::kRc);
    Side to(pair.b, QpType::kRc);
    REQUIRE(join(pair.a, from.qp, pair.b, to.qp));
    REQUIRE(own().size() == 2);
    CHECK(own()[0].page.port == pair.port);
    const Sge sge = from.memory.sge(0, 64);
    REQUIRE(from.qp.post_send({.sges = {&sge, 1},
                               .opcode = WrOpcode::kRdmaWrite,
                               .flags = send_flag::kSignaled,
                               .remote_addr = to.memory.addr(),
                               .rkey = to.memory.rkey()}));
    // Nothing moves any more once it has been answered, and the loop shows that when it is next due.
    REQUIRE(within(20s, [&] {
      pair.b.device.progress();
      pair.a.device.progress();
      return counter(pair.a.device, "completions") == 1;
    }));
    DeviceFigures page;
    CHECK(within(20s, [&] {
      pair.b.device.progress();
      pair.a.device.progress();
      page = own()[0].page;
      const auto counters = pair.a.device.counters();
      if (counters.size() != page.names.size()) return false;
      for (std::size_t i = 0; i < counters.size(); ++i) {
        if (counters[i].name != page.names[i] || counters[i].value != page.loops[0].values[i]) return false;
      }
      return true;
    }));
    CHECK(page.loops[0].time_ns > 0);
  }
  CHECK(own().empty());
}

StatSample sample() {
  DeviceFigures page{.pid = 1,
                     .device = 0,
                     .port = R"(a"b\c)",
                     .addresses = {"10.0.0.1/24"},
                     .names = {"rx_roce", "tx_roce", "flushed"},
                     .loops = {{.time_ns = 1'000'000'000, .values = {10, 5, 0}},
                               {.time_ns = 1'000'000'000, .values = {0, 1, 0}}},
                     .qp_names = {},
                     .qps = {}};
  StatSample all{.before = {{.pid = 7, .program = "p", .page = page}}, .now = {}, .now_ns = 3'500'000'000};
  page.loops[0] = {.time_ns = 3'000'000'000, .values = {30, 5, 0}};
  all.now = {{.pid = 7, .program = "p", .page = page}};
  page.device = 1;  // a new one
  all.now.push_back({.pid = 7, .program = "p", .page = page});
  return all;
}

TEST_CASE("rates are those between two changes of the figures", "[apps][stat]") {
  const std::string text = stat_text(sample(), false);
  CHECK(text.find("pid 7 p, a\"b\\c, 10.0.0.1/24, 2 loops, figures 2.5 s old") != std::string::npos);
  const std::string json = stat_json(sample(), true);
  CHECK(json.find(R"("rx_roce":{"total":30,"per_second":10.0})") != std::string::npos);
  CHECK(json.find(R"("tx_roce":{"total":6,"per_second":0.0})") != std::string::npos);
  CHECK(json.find(R"("rx_roce":{"total":30,"per_second":null})") != std::string::npos);
  CHECK(json.find(R"("flushed":{"total":0,)") != std::string::npos);
  CHECK(stat_json(sample(), false).find("flushed") == std::string::npos);
}

TEST_CASE("Prometheus gets the lines of a metric together, and labels that it can read", "[apps][stat]") {
  const std::string text = stat_prometheus(sample().now, 3'500'000'000);
  CHECK(text.find("# HELP uroce_rx_roce_total RoCE packets taken\n"
                  "# TYPE uroce_rx_roce_total counter\n"
                  R"(uroce_rx_roce_total{pid="7",program="p",device="0",port="a\"b\\c",loop="0"} 30)"
                  "\n"
                  R"(uroce_rx_roce_total{pid="7",program="p",device="0",port="a\"b\\c",loop="1"} 0)"
                  "\n"
                  R"(uroce_rx_roce_total{pid="7",program="p",device="1",port="a\"b\\c",loop="0"} 30)") !=
        std::string::npos);
  CHECK(text.find(R"(port="a\"b\\c",loop="0"} 0.500)") != std::string::npos);
  CHECK(text.find("# TYPE uroce_devices gauge\nuroce_devices 2\n") != std::string::npos);
}

}  // namespace
}  // namespace uroce::apps
