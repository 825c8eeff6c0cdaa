// QPs that a device shows other processes, as its writer and `uroce stat --qp` see them.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "api/side.h"
#include "apps/stat/report.h"
#include "support/full_at.h"
#include "verbs/stat_page.h"

namespace uroce::apps {
namespace {

using Values = std::array<std::uint64_t, 2>;

std::unique_ptr<uroce::StatPage> page_of(std::uint32_t qps) {
  auto page = uroce::StatPage::make(
      1, qps, {.port = "shm:x", .addresses = "10.0.0.1/24", .names = "rx_roce", .qp_names = "cnps naks"});
  REQUIRE(page != nullptr);
  return page;
}

std::vector<QpFigures> qps_of(const uroce::StatPage& page) {
  auto read = read_page(page.fd(), Detail::kQps);
  REQUIRE(read.has_value());
  CHECK(read->qp_names == std::vector<std::string>{"cnps", "naks"});
  return read->qps;
}

void write(uroce::StatPage& page, std::uint32_t row, std::uint32_t qpn, const Values& values) {
  page.write(row, {.qpn = Qpn{qpn},
                   .type = QpType::kRc,
                   .state = QpState::kRts,
                   .peer = Gid::from_v4({10, 0, 0, 2}),
                   .peer_qpn = Qpn{qpn + 1},
                   .values = values});
}

/// This process' devices, with their QPs.
std::vector<ProcessPage> own() {
  return find_pages(static_cast<unsigned>(getpid()), Detail::kQps);
}

const QpFigures& row_of(const std::vector<ProcessPage>& pages, const Qp& qp) {
  for (const ProcessPage& one : pages) {
    for (const QpFigures& row : one.page.qps) {
      if (row.qpn == raw(qp.qpn())) return row;
    }
  }
  FAIL("the QP has no row");
  return pages.front().page.qps.front();
}

std::uint64_t counted(const Qp& qp, std::string_view name) {
  for (const Counter& one : qp.counters()) {
    if (one.name == name) return one.value;
  }
  FAIL("no counter " << name);
  return 0;
}

TEST_CASE("rows of QPs are read as they were written", "[apps][stat][qps]") {
  const auto page = page_of(600);
  CHECK(qps_of(*page).empty());
  for (std::uint32_t row = 1; row <= 600; ++row) REQUIRE(page->take_row() == row);
  write(*page, 1, 0x11, {5, UINT64_MAX});
  write(*page, 600, 0xff'fffe, {0, 1});
  const auto qps = qps_of(*page);
  REQUIRE(qps.size() == 2);
  CHECK(qps[0].qpn == 0x11);
  CHECK(qps[0].type == QpType::kRc);
  CHECK(qps[0].state == QpState::kRts);
  CHECK(qps[0].peer == Gid::from_v4({10, 0, 0, 2}));
  CHECK(qps[0].peer_qpn == 0x12);
  CHECK(qps[0].values == std::vector<std::uint64_t>{5, UINT64_MAX});
  CHECK(qps[1].qpn == 0xff'fffe);
  page->write(1, uroce::StatPage::QpRow{});
  CHECK(qps_of(*page).size() == 1);
  CHECK(read_page(page->fd())->qps.empty());  // not asked for
}

TEST_CASE("a page has as many rows as there may be QPs, each for one at a time", "[apps][stat][qps]") {
  const auto page = page_of(2);
  CHECK(page->take_row() == 1);
  CHECK(page->take_row() == 2);
  CHECK(page->take_row() == 0);
  write(*page, 0, 0x11, {1, 1});  // of a QP that has none
  CHECK(qps_of(*page).empty());
  page->give_row(0);
  page->give_row(1);
  CHECK(page->take_row() == 1);
  CHECK(page->take_row() == 0);
}

TEST_CASE("rows without a QP take no memory", "[apps][stat][qps]") {
  const auto bytes = [](const uroce::StatPage& page) {
    struct stat file {};
    REQUIRE(fstat(page.fd(), &file) == 0);
    return file.st_blocks * 512;
  };
  const auto page = page_of(65'536);
  const auto before = bytes(*page);
  CHECK(before <= 16 * 1024);
  for (int i = 0; i < 100; ++i) write(*page, page->take_row(), 0x11, {});
  CHECK(qps_of(*page).size() == 100);
  CHECK(bytes(*page) - before <= 100 * 128 + 2 * 4096);
}

TEST_CASE("a QP that comes, goes and changes is read whole or not at all", "[apps][stat][qps]") {
  constexpr int kReads = 300;
  const auto page = page_of(300);
  const std::uint32_t row = page->take_row();
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint32_t i = 1; !done; ++i) {
      for (int rest = 0; rest < 100 && !done; ++rest) std::this_thread::yield();
      const std::uint32_t qpn = 1 + i % 0xff'fffd;
      write(*page, row, qpn, {qpn, std::uint64_t{3} * qpn});
      if (i % 2 == 0) page->write(row, uroce::StatPage::QpRow{});
    }
  });
  int torn = 0;
  for (int i = 0; i < kReads; ++i) {
    const auto read = read_page(page->fd(), Detail::kQps);
    if (!read) continue;
    for (const QpFigures& qp : read->qps) {
      const bool is_whole = qp.peer_qpn == qp.qpn + 1 &&
                            qp.values == std::vector<std::uint64_t>{qp.qpn, std::uint64_t{3} * qp.qpn};
      torn += static_cast<int>(!is_whole);
    }
  }
  done = true;
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("a device shows its QPs from the first to the last state, with their peers", "[apps][stat][qps]") {
  using namespace uroce::api;
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  Joined pair(mode);
  Side idle(pair.a, QpType::kUd);
  {
    Side from(pair.a, QpType::kRc);
    Side to(pair.b, QpType::kRc);
    CHECK(row_of(own(), from.qp).state == QpState::kReset);
    CHECK(row_of(own(), from.qp).peer.is_zero());
    REQUIRE(join(pair.a, from.qp, pair.b, to.qp));
    const auto pages = own();
    CHECK(row_of(pages, from.qp).type == QpType::kRc);
    CHECK(row_of(pages, from.qp).state == QpState::kRts);
    CHECK(row_of(pages, from.qp).peer_qpn == raw(to.qp.qpn()));
    CHECK(row_of(pages, from.qp).peer == from.qp.query().dgid);
    CHECK(row_of(pages, idle.qp).type == QpType::kUd);
    CHECK(pages[0].page.qps.size() == 2);
    REQUIRE(from.qp.modify({.state = QpState::kError}, qp_attr::kState));
    CHECK(row_of(own(), from.qp).state == QpState::kError);
  }
  CHECK(own()[0].page.qps.size() == 1);
  CHECK(own()[1].page.qps.empty());
}

TEST_CASE("what a QP has counted is shown at once, and is its own", "[apps][stat][qps]") {
  using namespace uroce::api;
  Joined pair(Mode::kApp);
  Side from(pair.a, QpType::kRc);
  Side to(pair.b, QpType::kRc);
  Side other(pair.a, QpType::kRc);
  REQUIRE(join(pair.a, from.qp, pair.b, to.qp));
  const Sge sge = from.memory.sge(0, 64);
  REQUIRE(from.qp.post_send({.sges = {&sge, 1},
                             .opcode = WrOpcode::kRdmaWrite,
                             .flags = send_flag::kSignaled,
                             .remote_addr = to.memory.addr(),
                             .rkey = Rkey{1}}));
  Wc wc;
  REQUIRE(within(20s, [&] {
    pair.b.device.progress();
    return from.cq.poll({&wc, 1}) == 1;
  }));
  CHECK(wc.status == WcStatus::kRemAccessErr);
  CHECK(counted(from.qp, "requester_fatal_naks") == 1);
  CHECK(counted(to.qp, "responder_fatal_naks") == 1);
  const auto pages = own();
  for (const Qp* qp : {&from.qp, &to.qp, &other.qp}) {
    const auto counters = qp->counters();
    REQUIRE(counters.size() == pages[0].page.qp_names.size());
    for (std::size_t i = 0; i < counters.size(); ++i) {
      CHECK(counters[i].name == pages[0].page.qp_names[i]);
      CHECK(counters[i].value == row_of(pages, *qp).values[i]);
      if (qp == &other.qp) CHECK(counters[i].value == 0);
      CHECK(counter(pair.a.device, counters[i].name) + counter(pair.b.device, counters[i].name) >=
            counters[i].value);
    }
  }
  CHECK(row_of(pages, from.qp).state == QpState::kError);
}

std::vector<ProcessPage> sample() {
  const Gid peer = Gid::from_v4({10, 0, 0, 2});
  DeviceFigures page{.pid = 1,
                     .device = 0,
                     .port = R"(a"b)",
                     .addresses = {"10.0.0.1/24"},
                     .names = {},
                     .loops = {},
                     .qp_names = {"timeouts", "naks"},
                     .qps = {}};
  page.qps = {
      {.qpn = 0x11, .type = QpType::kUd, .state = QpState::kRts, .peer = {}, .peer_qpn = 0, .values = {0, 0}},
      {.qpn = 0x12,
       .type = QpType::kRc,
       .state = QpState::kError,
       .peer = peer,
       .peer_qpn = 0x22,
       .values = {0, 7}}};
  return {{.pid = 7, .program = "p", .page = page}};
}

TEST_CASE("QPs are told with their peers, those that have counted most first", "[apps][stat][qps]") {
  CHECK(qps_text(sample(), false) ==
        "pid 7 p, a\"b, 10.0.0.1/24, 2 QPs\n"
        " QP        type  state  peer      its QP    counted\n"
        " 0x000012  RC    ERROR  10.0.0.2  0x000022  naks 7\n"
        " 0x000011  UD    RTS    -         -         -\n");
  CHECK(qps_text(sample(), true).find("timeouts 0, naks 7") != std::string::npos);
  const std::string json = qps_json(sample(), false);
  CHECK(json.find(R"({"qpn":18,"type":"RC","state":"ERROR","peer":"::ffff:10.0.0.2","peer_qpn":34,)"
                  R"("counters":{"naks":7}})") != std::string::npos);
  CHECK(json.find(R"("peer":null,"peer_qpn":null,"counters":{}})") != std::string::npos);
  CHECK(qps_json(sample(), true).find(R"("counters":{"timeouts":0,"naks":0})") != std::string::npos);
  const std::string metrics = qps_prometheus(sample());
  CHECK(metrics.find(
            "# TYPE uroce_qp_naks_total counter\n"
            R"(uroce_qp_naks_total{pid="7",program="p",device="0",port="a\"b",qp="0x000012",type="RC",)"
            R"(peer="10.0.0.2",peer_qp="0x000022"} 7)"
            "\n") != std::string::npos);
  CHECK(metrics.find(R"(qp="0x000011",type="UD",peer="",peer_qp=""} 0)") != std::string::npos);
}

}  // namespace
TEST_CASE("a device that a limit of file sizes leaves no room for its rows opens and shows nothing",
          "[stat]") {
  // 12 MiB for the rows, less than 1 for the link
  constexpr std::uintmax_t kBytes = 4U << 20;
  CHECK(test::end_of_full_at(kBytes, [] {
          return uroce::StatPage::make(
                     1, 65536,
                     {.port = "shm:x", .addresses = "", .names = "rx_roce", .qp_names = "cnps naks"}) ==
                 nullptr;
        }) == "good");
  Config config;
  config.port = "shm:limited" + std::to_string(getpid()) + ",ring=64K";
  config.no_huge = true;
  CHECK(test::end_of_full_at(kBytes, [&] {
          const auto device = Device::open(config);
          return device && own().empty();
        }) == "good");
}

}  // namespace uroce::apps
