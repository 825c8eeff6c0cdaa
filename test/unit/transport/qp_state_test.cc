// T14: every move of the RC state machine with every attribute missing or too much.
#include <catch2/catch.hpp>

#include "transport/rc_qp.h"

using namespace uroce;
using namespace uroce::qp_attr;

namespace {

/// One row of the RC column of the state table of IBA 10.3.1 as Linux has it; without alternate paths, which
/// RoCE does not have.
struct Row {
  QpState from, to;
  std::uint32_t required, optional;
};

constexpr std::uint32_t kAltPath = 1U << 14;
constexpr std::uint32_t kPathMigState = 1U << 18;
constexpr std::uint32_t kQkey = 1U << 6;
constexpr std::uint32_t kCap = 1U << 19;

constexpr Row kTable[] = {
    {QpState::kReset, QpState::kInit, kPkeyIndex | kPort | kAccessFlags, 0},
    {QpState::kInit, QpState::kInit, 0, kPkeyIndex | kPort | kAccessFlags},
    {QpState::kInit, QpState::kRtr, kAv | kPathMtu | kDestQpn | kRqPsn | kMaxDestRdAtomic | kMinRnrTimer,
     kPkeyIndex | kAccessFlags},
    {QpState::kRtr, QpState::kRts, kSqPsn | kTimeout | kRetryCnt | kRnrRetry | kMaxQpRdAtomic,
     kCurState | kAccessFlags | kMinRnrTimer},
    {QpState::kRts, QpState::kRts, 0, kCurState | kAccessFlags | kMinRnrTimer},
    {QpState::kRts, QpState::kSqd, 0, kEnSqdAsyncNotify},
    {QpState::kSqd, QpState::kRts, 0, kCurState | kAccessFlags | kMinRnrTimer},
    {QpState::kSqd, QpState::kSqd, 0,
     kPort | kAv | kTimeout | kRetryCnt | kRnrRetry | kMaxQpRdAtomic | kMaxDestRdAtomic | kCurState |
         kAccessFlags | kPkeyIndex | kMinRnrTimer},
};

constexpr std::uint32_t kAllBits[] = {kCurState,
                                      kEnSqdAsyncNotify,
                                      kAccessFlags,
                                      kPkeyIndex,
                                      kPort,
                                      kQkey,
                                      kAv,
                                      kPathMtu,
                                      kTimeout,
                                      kRetryCnt,
                                      kRnrRetry,
                                      kRqPsn,
                                      kMaxQpRdAtomic,
                                      kAltPath,
                                      kMinRnrTimer,
                                      kSqPsn,
                                      kMaxDestRdAtomic,
                                      kPathMigState,
                                      kCap,
                                      kDestQpn};

/// The table's answer, or nothing if there is no such move.
std::optional<Row> row_of(QpState from, QpState to) {
  if (to == QpState::kReset || to == QpState::kError) return Row{from, to, 0, 0};
  for (const Row& row : kTable) {
    if (row.from == from && row.to == to) return row;
  }
  return std::nullopt;
}

QpAttr good_attr(QpState to) {
  QpAttr attr;
  attr.state = to;
  attr.dest_qpn = Qpn{5};
  attr.dgid = Gid::from_v4({10, 0, 0, 2});
  return attr;
}

/// A QP on its own.
struct Fixture {
  mem::KeyTable keys{1, [] {}};
  Counters counters;
  transport::CqRing cq{16};
  transport::RcQp qp{Qpn{9}, 1, {.max_send_wr = 1, .max_recv_wr = 1}, keys, counters, cq, cq};
  transport::QpBounds bounds{.gid_count = 2};

  Status move(QpState to, std::uint32_t mask) { return qp.modify(good_attr(to), mask | kState, bounds); }
  explicit Fixture(QpState state) {
    if (state == QpState::kError) {
      REQUIRE(move(QpState::kError, 0));
      return;
    }
    if (state >= QpState::kInit) REQUIRE(move(QpState::kInit, kInitMask));
    if (state >= QpState::kRtr) REQUIRE(move(QpState::kRtr, kRtrMask));
    if (state >= QpState::kRts) REQUIRE(move(QpState::kRts, kRtsMask));
    if (state >= QpState::kSqd) REQUIRE(move(QpState::kSqd, 0));
    REQUIRE(qp.state() == state);
  }
};

constexpr QpState kReachable[] = {QpState::kReset, QpState::kInit, QpState::kRtr,
                                  QpState::kRts,   QpState::kSqd,  QpState::kError};

/// Tries one move from a fresh QP and compares with the table.
void check(QpState from, QpState to, std::uint32_t mask) {
  const auto row = row_of(from, to);
  const bool legal =
      row && (mask & row->required) == row->required && (mask & ~(row->required | row->optional)) == 0;
  CAPTURE(to_string(from), to_string(to), mask);
  Fixture fixture(from);
  const Status moved = fixture.move(to, mask);
  REQUIRE(moved.has_value() == legal);
  REQUIRE(fixture.qp.state() == (legal ? to : from));
  if (!legal) REQUIRE(moved.error().code == Errc::kInvalid);
  if (!legal) REQUIRE(moved.error().text.size() > 10);
}

}  // namespace

TEST_CASE("a QP makes the moves of the state table, with its attributes and no others",
          "[transport][qp-state][T14]") {
  const QpState from = GENERATE(from_range(std::begin(kReachable), std::end(kReachable)));
  const auto to = QpState{GENERATE(range(std::uint8_t{0}, std::uint8_t{7}))};
  const auto row = row_of(from, to);
  const std::uint32_t required = row ? row->required : 0;
  const std::uint32_t optional = row ? row->optional : 0;
  check(from, to, required);
  check(from, to, required | optional);
  for (const std::uint32_t bit : kAllBits) {
    check(from, to, required ^ bit);  // one missing, or one too much
    check(from, to, (required | optional) ^ bit);
  }
}

TEST_CASE("a QP without a state in the mask stays where it is", "[transport][qp-state][T14]") {
  for (const QpState state : kReachable) {
    Fixture fixture(state);
    const bool may = state == QpState::kInit || state == QpState::kRts || state == QpState::kSqd;
    CHECK(fixture.qp.modify(good_attr(QpState::kReset), kAccessFlags, fixture.bounds).has_value() == may);
    CHECK(fixture.qp.state() == state);
  }
}

TEST_CASE("a QP refuses values out of range and changes nothing", "[transport][qp-state][T14]") {
  struct Case {
    QpState from, to;
    std::uint32_t mask;
    void (*spoil)(QpAttr&);
  };
  const auto bad = GENERATE(values<Case>({
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.path_mtu = PathMtu{0}; }},
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.path_mtu = PathMtu{6}; }},
      {QpState::kInit, QpState::kRtr, kRtrMask,
       [](QpAttr& a) { a.path_mtu = PathMtu::k4096; }},  // above the port's
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.sgid_index = 2; }},
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.dgid = Gid{}; }},
      {QpState::kInit, QpState::kRtr, kRtrMask,
       [](QpAttr& a) {
         a.dgid = Gid::from_v4({224, 0, 0, 1});
       }},
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.dgid = Gid::from_v4({}); }},
      {QpState::kInit, QpState::kRtr, kRtrMask,
       [](QpAttr& a) {
         a.dgid = Gid::from_v4({255, 255, 255, 255});
       }},
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.dest_qpn = Qpn{0x100'0000}; }},
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.min_rnr_timer = 32; }},
      {QpState::kInit, QpState::kRtr, kRtrMask, [](QpAttr& a) { a.max_dest_rd_atomic = 129; }},
      {QpState::kRtr, QpState::kRts, kRtsMask, [](QpAttr& a) { a.timeout = 32; }},
      {QpState::kRtr, QpState::kRts, kRtsMask, [](QpAttr& a) { a.retry_cnt = 8; }},
      {QpState::kRtr, QpState::kRts, kRtsMask, [](QpAttr& a) { a.rnr_retry = 8; }},
      {QpState::kRtr, QpState::kRts, kRtsMask, [](QpAttr& a) { a.max_rd_atomic = 129; }},
  }));
  Fixture fixture(bad.from);
  fixture.bounds.active_mtu = PathMtu::k2048;
  QpAttr attr = good_attr(bad.to);
  bad.spoil(attr);
  const Status moved = fixture.qp.modify(attr, bad.mask, fixture.bounds);
  REQUIRE_FALSE(moved.has_value());
  CHECK(moved.error().code == Errc::kInvalid);
  CHECK(fixture.qp.state() == bad.from);
  CHECK(fixture.move(bad.to, bad.mask & ~kState).has_value());  // it can still be done right
}
