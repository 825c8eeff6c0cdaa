// Queues and regions that change while another process sends to them; drains; events; times of completions.
#include <poll.h>

#include <catch2/catch.hpp>
#include <vector>

#include "process/plays.h"
#include "uroce/srq.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kMessageBytes = 500;  // of a message

bool is_readable(int fd) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, 0) == 1;
}

/// Goes on for a while, as an application does that waits for something else.
void linger(Side& side, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) side.device.progress();
}

/// A QP with a CQ for each direction, connected to the peer's.
struct Ends {
  Ends(Side& side, const CqAttr& attr)
      : send_cq(must(Cq::create(side.device, attr))),
        recv_cq(must(Cq::create(side.device, attr))),
        qp(must(Qp::create(side.pd, send_cq, recv_cq, {}))) {
    join(side, qp);
  }
  Cq send_cq;
  Cq recv_cq;
  Qp qp;
};

/// The message with this number: its place among the sender's and its receive among the receiver's slots.
std::size_t slot_of(std::uint64_t number) {
  return number % 32 * 512;
}

/// One sends `messages`, with `each` called after each completion, the other receives them likewise, in
/// order.
template <typename Each>
void stream(Side& side, Ends& ends, std::uint64_t messages, Each&& each) {
  constexpr std::uint64_t kAhead = 24;
  const bool sends = side.is_first();
  Cq& cq = sends ? ends.send_cq : ends.recv_cq;
  std::uint64_t posted = 0;
  for (std::uint64_t done = 0; done < messages; ++done) {
    for (; posted < std::min(messages, done + kAhead); ++posted) {
      if (sends) side.fill(slot_of(posted), kMessageBytes, static_cast<unsigned>(posted));
      if (sends) send(side, ends.qp, {.wr_id = posted}, slot_of(posted), kMessageBytes);
      if (!sends) receive(side, ends.qp, posted, slot_of(posted), kMessageBytes);
    }
    const Wc wc = side.next(cq);
    require(wc.ok() && wc.wr_id == done, "completions come once and in order");
    if (!sends) side.require_filled(slot_of(done), kMessageBytes, static_cast<unsigned>(done));
    each(cq, wc, done);
  }
}

void play_cq_resize(Side& side) {
  Ends ends(side, {.entries = 64});
  stream(side, ends, 3000, [&](Cq& cq, const Wc&, std::uint64_t done) {
    constexpr std::uint32_t kSizes[]{64, 1024, 128, 32, 4096};
    if (done % 20 != 0) return;
    const std::uint32_t entries = kSizes[done / 20 % 5];
    must(cq.resize(entries));
    require(cq.entries() >= entries, "the CQ has the new size");
  });
  side.meet();
}

void play_timestamps(Side& side) {
  Ends ends(side, {.entries = 64, .timestamps = true});
  std::uint64_t last = side.device.now_ns();
  stream(side, ends, 2000, [&](Cq&, const Wc& wc, std::uint64_t) {
    require(wc.timestamp_ns > 0, "a completion has a time");
    if (wc.wr_id > 24) require(wc.timestamp_ns >= last, "completions are not older than those before");
    require(wc.timestamp_ns <= side.device.now_ns(), "completions are not of the future");
    last = wc.timestamp_ns;
  });
  side.meet();
}

void play_moderation(Side& side) {
  constexpr unsigned kCount = 4;
  Ends ends(side, {.entries = 64});
  const auto is_told = [&] {
    side.device.progress();
    return is_readable(ends.recv_cq.fd());
  };
  const auto send_some = [&](unsigned count) {
    for (unsigned i = 0; i < count; ++i) send(side, ends.qp, {}, 0, kMessageBytes);
    for (unsigned i = 0; i < count; ++i) require(side.next(ends.send_cq).ok(), "a message has arrived");
  };
  const auto take_some = [&](unsigned count) {
    for (unsigned i = 0; i < count; ++i) require(side.next(ends.recv_cq).ok(), "a message is there");
    ends.recv_cq.clear_event();
  };
  if (!side.is_first()) {
    for (unsigned i = 0; i < 3 * kCount; ++i) receive(side, ends.qp, i, i * 512, kMessageBytes);
    must(ends.recv_cq.moderate(kCount, 0us));
    ends.recv_cq.arm();
  }
  side.meet();
  if (side.is_first()) send_some(kCount - 1);
  side.meet();
  if (!side.is_first()) {
    linger(side, 20ms);
    require(!is_readable(ends.recv_cq.fd()), "fewer completions than that bring no event");
  }
  side.meet();
  if (side.is_first()) send_some(1);
  if (!side.is_first()) {
    side.await(is_told, "the event of the last one");
    take_some(kCount);
    must(ends.recv_cq.moderate(1000, 50ms));
    ends.recv_cq.arm();
  }
  side.meet();
  if (side.is_first()) send_some(1);
  if (!side.is_first()) {
    side.await(is_told, "the event of the period");
    take_some(1);
  }
  side.meet();
}

void play_srq_limit(Side& side) {
  constexpr unsigned kQps = 2;
  constexpr unsigned kMessages = 400;
  constexpr std::uint32_t kLimit = 4;
  Srq srq = must(Srq::create(side.pd, {.max_wr = 8}));
  std::vector<Qp> qps;
  for (unsigned i = 0; i < kQps; ++i) {
    qps.push_back(must(Qp::create(side.pd, side.cq, side.cq, srq, {})));
    side.own().qpns[i] = qps[i].qpn();
  }
  side.meet();
  for (unsigned i = 0; i < kQps; ++i) must(qps[i].connect(side.towards_peer(i)));
  std::uint32_t posted = 0;
  const auto post = [&](std::uint32_t count) {
    for (; count > 0; --count, ++posted) {
      const Sge sge = side.memory.sge(posted % 128 * 64, 64);
      require(srq.post_recv({.wr_id = posted, .sges = {&sge, 1}}), "a receive was not taken");
    }
  };
  if (!side.is_first()) {
    post(8);
    must(srq.arm_limit(kLimit));
  }
  side.meet();
  if (side.is_first()) {
    for (unsigned done = 0, sent = 0; done < kMessages; ++done) {
      for (; sent < std::min(kMessages, done + 20); ++sent)
        send(side, qps[sent % kQps], {.wr_id = sent}, 0, 64);
      side.succeed();
    }
  } else {
    std::vector<bool> seen(kMessages + 64);
    unsigned rounds = 0;
    for (unsigned done = 0; done < kMessages;) {
      AsyncEvent event;
      while (side.device.next_async_event(event)) {
        if (event.type != AsyncEventType::kSrqLimitReached) continue;
        require(event.srq == srq.number() && srq.limit() == 0,
                "the event is of the queue, which is not armed now");
        const std::uint32_t sizes[]{32, 16, 64};
        must(srq.resize(sizes[rounds++ % 3]));
        post(8);
        must(srq.arm_limit(kLimit));
      }
      Wc wc;
      if (side.cq.poll({&wc, 1}) == 0) continue;
      require(wc.ok() && wc.opcode == WcOpcode::kRecv && !seen[wc.wr_id], "each receive completes once");
      seen[wc.wr_id] = true;
      ++done;
    }
    require(rounds >= kMessages / 8 - 2, "each shortage has its event");
  }
  side.meet();
}

void play_rereg(Side& side) {
  constexpr std::uint32_t kWrite = 4000;
  constexpr std::size_t kAt = 96 * 1024;  // in all extents that the region has
  constexpr unsigned kWrites = 3000;
  Ends ends(side, {.entries = 256});
  Mr region = must(Mr::reg(side.pd, side.memory.memory(), access::kAll));
  side.own().numbers[0] = raw(region.rkey());
  side.own().addr = region.addr();
  side.meet();
  const SendWr to_peer{.opcode = WrOpcode::kRdmaWrite,
                       .remote_addr = side.peer().addr + kAt,
                       .rkey = Rkey{side.peer().numbers[0]}};
  if (side.is_first()) {
    side.fill(0, kWrite, 5);
    for (unsigned done = 0, sent = 0; done < kWrites; ++done) {
      for (; sent < std::min(kWrites, done + 16); ++sent) send(side, ends.qp, to_peer, 0, kWrite);
      require(side.next(ends.send_cq).ok(), "a WRITE to what was in the region all the time");
    }
    side.own().numbers[7] = 1;
  } else {
    std::size_t rounds = 0;
    const auto is_over = [&] {
      const std::size_t from = rounds++ % 8 * 8 * 1024;
      const auto memory = side.memory.memory().subspan(from, 128 * 1024 + from);
      must(region.rereg(mr_change::kTranslation, side.pd, memory, 0));
      require(raw(region.rkey()) == side.own().numbers[0] && region.memory().data() == memory.data(),
              "another extent under the same key");
      return const_cast<volatile const std::uint32_t&>(side.peer().numbers[7]) == 1;
    };
    side.await(is_over, "the WRITEs");
    side.require_filled(kAt, kWrite, 5);
    require(rounds > 10, "it changed meanwhile");
    must(region.rereg(mr_change::kTranslation, side.pd, side.memory.memory().first(kAt), 0));
  }
  side.meet();
  if (side.is_first()) {
    send(side, ends.qp, to_peer, 0, kWrite);
    require(side.next(ends.send_cq).status == WcStatus::kRemAccessErr, "a WRITE behind the region");
  }
  side.meet();
}

void play_drain(Side& side) {
  constexpr unsigned kWrites = 48;
  constexpr std::uint32_t kLong = 60'000;
  Ends ends(side, {.entries = 256});
  if (side.is_first()) {
    for (unsigned i = 0; i < kWrites; ++i) {
      send(side, ends.qp,
           {.wr_id = i,
            .opcode = WrOpcode::kRdmaWrite,
            .remote_addr = side.peer().addr,
            .rkey = side.peer().rkey},
           0, kLong);
    }
    must(ends.qp.modify({.state = QpState::kSqd}, qp_attr::kState | qp_attr::kEnSqdAsyncNotify));
    AsyncEvent event;
    const auto is_drained = [&] {
      while (side.device.next_async_event(event)) {
        if (event.type == AsyncEventType::kSqDrained) return true;
      }
      return false;
    };
    side.await(is_drained, "the end of what had begun");
    require(event.qpn == ends.qp.qpn(), "the event is of the QP");
    unsigned done = 0;
    Wc wc;
    while (ends.send_cq.poll({&wc, 1}) == 1) require(wc.ok() && wc.wr_id == done++, "in order");
    require(done < kWrites, "what had not begun waits");
    linger(side, 20ms);
    require(ends.send_cq.poll({&wc, 1}) == 0 && !is_drained(),
            "nothing begins in SQD, and there is one event");
    must(ends.qp.modify({.state = QpState::kRts}, qp_attr::kState));
    for (; done < kWrites; ++done) {
      wc = side.next(ends.send_cq);
      require(wc.ok() && wc.wr_id == done, "the rest completes afterwards");
    }
  }
  side.meet();
}

}  // namespace

TEST_CASE("CQs of two processes change their size while completions come", "[cq][resize]") {
  CHECK(played(play_cq_resize));
}

TEST_CASE("times of completions do not go back", "[cq][timestamp]") {
  CHECK(played(play_timestamps));
}

TEST_CASE("another process's messages bring an event once there are enough, or after a while",
          "[cq][moderation]") {
  CHECK(played(play_moderation));
}

TEST_CASE("a shared queue that another process empties says so, grows and is filled", "[srq][resize]") {
  CHECK(played(play_srq_limit));
}

TEST_CASE("a region changes while another process writes to it", "[mr][rereg]") {
  CHECK(played(play_rereg));
}

TEST_CASE("a send queue drains, waits and goes on", "[sqd]") {
  CHECK(played(play_drain));
}

}  // namespace uroce::test
