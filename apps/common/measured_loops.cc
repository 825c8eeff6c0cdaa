// The loops of MeasuredEnd: what is timed, and nothing else.
#include <algorithm>
#include <array>
#include <optional>

#include "apps/common/measured_end.h"
#include "apps/common/open_loop.h"

namespace uroce::apps {
namespace {

constexpr std::size_t kWindowBytes = 1U << 20U;  // of WRITEs in flight

}  // namespace

/// Time of one message there and back, message by message. Excludes nothing: post, both loops, both copies,
/// poll.
Result<Json> MeasuredEnd::rtt_client(const Sample& sample) {
  Histogram ticks;
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  const std::uint64_t start = clock_.ticks();
  const std::uint64_t warm = start + clock_.from_ns(sample.warm_up_ns());
  const std::uint64_t end = start + clock_.from_ns(sample.run_ns);
  const std::uint64_t at_last = start + clock_.from_ns(sample.patience_ns());
  Wc wc;
  for (std::uint64_t count = 0, begin = start;
       begin < end || (ticks.count() < Sample::kEnough && begin < at_last); ++count) {
    begin = clock_.ticks();
    if (!post_message(kSendAt, sample.bytes, count % kSignalEvery == 0)) return ring_full();
    if (!next_message(wc, patience)) return stopped(wc);
    const std::uint64_t now = clock_.ticks();
    if (begin >= warm) ticks.add(now - begin);
    if (!repost(wc.wr_id, false)) return ring_full();
    if (beside_) beside_();
  }
  if (auto ended = end_client(sample, patience); !ended) return ended.error();
  return rtt_result(ticks, clock_);
}

Status MeasuredEnd::end_client(const Sample& sample, Patience& patience) noexcept {
  Wc wc;
  if (!post_last(sample.bytes)) return ring_full();
  if (!next_message(wc, patience)) return stopped(wc);
  if (!repost(wc.wr_id, true)) return ring_full();
  return finish(patience);
}

/// Answers from the slot that the message came into; that is posted again when the next message shows that
/// the answer has arrived.
Result<Json> MeasuredEnd::rtt_server(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  std::optional<std::uint64_t> answered;
  Wc wc;
  for (std::uint64_t count = 0;; ++count) {
    if (!next_message(wc, patience)) return stopped(wc);
    if (is_last(wc)) break;
    if (!post_message(wc.wr_id * kSlotBytes, sample.bytes, count % kSignalEvery == 0)) return ring_full();
    if (answered && !repost(*answered, false)) return ring_full();
    answered = wc.wr_id;
  }
  if (answered && !repost(*answered, false)) return ring_full();
  if (!repost(wc.wr_id, true) || !post_last(sample.bytes)) return ring_full();
  if (auto finished = finish(patience); !finished) return finished.error();
  return Json::object();
}

/// As many messages as the peer takes, posted in lists of kBatch.
Result<Json> MeasuredEnd::rate_client(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  const std::uint64_t end = clock_.ticks() + clock_.from_ns(sample.run_ns);
  std::array<Wc, kBatch> wcs;
  std::uint32_t in_flight = 0;
  while (clock_.ticks() < end || in_flight > 0) {
    if (in_flight + kBatch < kSends && clock_.ticks() < end) {
      if (!post_messages(sample.bytes)) return ring_full();
      in_flight += kBatch;
    }
    const std::size_t count = link_.cq().poll(wcs);
    for (std::size_t i = 0; i < count; ++i) {
      if (!wcs[i].ok()) return stopped(wcs[i]);
      if (wcs[i].wr_id == kSendId) in_flight -= kBatch;
    }
    if (count == 0 && patience.is_over()) return stopped({});
  }
  if (!post_last(sample.bytes)) return ring_full();
  if (auto finished = finish(patience); !finished) return finished.error();
  return Json::object();
}

/// Counts messages as they are taken from the completion queue; looks at each.
Result<Json> MeasuredEnd::rate_server(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  RateMeter messages(kMillisecond, sample.warm_up_ns());
  std::array<Wc, kBatch> wcs;
  bool ended = false;
  while (!ended) {
    const std::size_t count = link_.cq().poll(wcs);
    if (count == 0) {
      if (patience.is_over()) return stopped({});
      continue;
    }
    std::uint64_t received = 0;
    for (const Wc& wc : std::span(wcs).first(count)) {
      if (!wc.ok()) return stopped(wc);
      if (!is_receive(wc)) continue;
      ended = ended || is_last(wc);
      ++received;
      if (!repost(wc.wr_id, ended)) return ring_full();
    }
    messages.add(received, now_ns());
  }
  return rate_result(messages);
}

/// Payload acknowledged per second: every byte is in the peer's memory by then.
Result<Json> MeasuredEnd::stream_client(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  RateMeter acknowledged(kMillisecond, sample.warm_up_ns());
  const auto depth =
      std::clamp<std::uint32_t>(static_cast<std::uint32_t>(kWindowBytes / sample.bytes), 2, 64);
  const std::uint64_t end = clock_.ticks() + clock_.from_ns(sample.run_ns);
  std::array<Wc, kBatch> wcs;
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  while (clock_.ticks() < end || completed < posted) {
    while (posted - completed < depth && clock_.ticks() < end) {
      if (!post_write(sample.bytes, posted)) return ring_full();
      ++posted;
    }
    const std::size_t count = link_.cq().poll(wcs);
    for (std::size_t i = 0; i < count; ++i) {
      if (!wcs[i].ok()) return stopped(wcs[i]);
      completed += wcs[i].wr_id == kWriteId ? 1 : 0;
    }
    if (count > 0) acknowledged.add(count * sample.bytes, now_ns());
    if (count == 0 && patience.is_over()) return stopped({});
    if (beside_) beside_();
  }
  if (auto ended = end_stream(patience); !ended) return ended.error();
  return rate_result(acknowledged);
}

/// Serves until the message behind the last WRITE.
Result<Json> MeasuredEnd::stream_server(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  Wc wc;
  if (!next_message(wc, patience)) return stopped(wc);
  if (!repost(wc.wr_id, true)) return ring_full();
  return Json::object();
}

/// What is due goes out in one list; the time of an answer is that at which it was taken from the queue.
Result<Json> MeasuredEnd::open_client(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  std::array<std::size_t, kBatch> offsets{};
  offsets.fill(kSendAt);
  std::array<Wc, kBatch> wcs;
  std::uint64_t done = 0;  // sends
  std::uint64_t now = clock_.ticks();
  OpenLoop loop(sample, clock_, now);
  while (!loop.is_over(now)) {
    const std::uint64_t room =
        std::min(kOpenWindow - loop.in_flight(), kSends - 1 - (loop.sent() - done));  // one for the last
    const std::uint64_t count = std::min({loop.due(now), room, std::uint64_t{kBatch}});
    if (count > 0 && !post_list(std::span(offsets).first(count), sample.bytes, loop.sent()))
      return ring_full();
    loop.add_sent(count);
    const std::size_t polled = link_.cq().poll(wcs);
    now = clock_.ticks();
    std::uint64_t answers = 0;
    for (const Wc& wc : std::span(wcs).first(polled)) {
      if (!wc.ok()) return stopped(wc);
      if (!is_receive(wc)) {
        done += kSignalEvery;
        continue;
      }
      ++answers;
      if (!repost(wc.wr_id, false)) return ring_full();
    }
    if (answers > 0) loop.add_answered(answers, now);
    if (count == 0 && polled == 0 && patience.is_over()) return stopped({});
  }
  if (auto ended = end_client(sample, patience); !ended) return ended.error();
  return loop.result();
}

/// Answers what has come in one list, from the slots that it came into; these are posted again when the
/// answers have arrived.
Result<Json> MeasuredEnd::open_server(const Sample& sample) {
  Patience patience(now_ns() + sample.limit_ns(), give_way_);
  std::array<std::uint64_t, kReceives> slots{};  // messages in their order, from `done` on
  std::array<Wc, kBatch> wcs;
  CpuMeter cpu;
  std::optional<std::uint64_t> last;
  std::uint64_t received = 0;
  std::uint64_t answered = 0;
  std::uint64_t done = 0;
  while (!last || answered < received) {
    const std::size_t polled = link_.cq().poll(wcs);
    if (polled == 0 && patience.is_over()) return stopped({});
    for (const Wc& wc : std::span(wcs).first(polled)) {
      if (!wc.ok()) return stopped(wc);
      if (!is_receive(wc)) {
        for (std::uint32_t i = 0; i < kSignalEvery; ++i)
          if (!repost(slots[done++ % kReceives], false)) return ring_full();
      } else if (is_last(wc)) {
        last = wc.wr_id;
      } else {
        slots[received++ % kReceives] = wc.wr_id;
        cpu.add(1);
      }
    }
    std::array<std::size_t, kBatch> offsets;
    const auto count = std::min({received - answered, kSends - 1 - (answered - done), std::uint64_t{kBatch}});
    for (std::uint64_t i = 0; i < count; ++i) offsets[i] = slots[(answered + i) % kReceives] * kSlotBytes;
    if (count > 0 && !post_list(std::span(offsets).first(count), sample.bytes, answered)) return ring_full();
    answered += count;
  }
  const Json result = {{"cpu_ns", cpu.per_unit()}};
  if (!post_last(sample.bytes)) return ring_full();
  if (auto finished = finish(patience); !finished) return finished.error();
  for (; done < received; ++done)
    if (!repost(slots[done % kReceives], false)) return ring_full();
  if (!repost(*last, true)) return ring_full();
  return result;
}

}  // namespace uroce::apps
