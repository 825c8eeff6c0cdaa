#include "drivers/shm/shm_port.h"

#include <algorithm>

namespace uroce::drivers {
namespace {

shm::RingWriter::Place writer_place(const shm::Link& link, std::uint32_t queue, shm::Lane lane) {
  return {.control = &link.control(queue, link.side(), lane),
          .ring = link.ring(queue, link.side(), lane),
          .ring_bytes = link.geometry().ring_bytes,
          .max_frame = link.geometry().max_frame(),
          .fence_free = link.is_fence_free()};
}

shm::RingReader::Place reader_place(const shm::Link& link, std::uint32_t queue, shm::Lane lane) {
  return {.control = &link.control(queue, 1 - link.side(), lane),
          .ring = link.ring(queue, 1 - link.side(), lane),
          .ring_bytes = link.geometry().ring_bytes,
          .max_frame = link.geometry().max_frame()};
}

}  // namespace

ShmPort::ShmPort(std::shared_ptr<shm::Link> link, std::uint32_t queue, port::PortInfo info)
    : Port(true),
      link_(std::move(link)),
      queue_(queue),
      info_(std::move(info)),
      watch_(*link_, counters_),
      writer_(writer_place(*link_, queue, shm::Lane::kPrompt), watch_, link_->peer_bell(queue), counters_),
      bulk_(writer_place(*link_, queue, shm::Lane::kBulk), watch_, link_->peer_bell(queue), counters_),
      reader_(reader_place(*link_, queue, shm::Lane::kPrompt), watch_, counters_),
      bulk_reader_(reader_place(*link_, queue, shm::Lane::kBulk), watch_, counters_) {}

ShmPort::~ShmPort() {
  if (!link_->is_owned_here()) return;
  reader_.detach();
  bulk_reader_.detach();
}

unsigned ShmPort::rx_burst(std::span<port::RxFrame> frames) noexcept {
  // Bursts in a row that show no bulk because there is something else. There is one bulk frame in a burst at
  // most: others wait for no more than that.
  constexpr unsigned kBulkWaits = 2;
  const std::size_t most = std::min<std::size_t>(frames.size(), port::kBurst);
  // Looked at first: what was sent before it is shown before it, unless there is too much of that.
  const bool has_bulk = bulk_reader_.has_some();
  if (has_bulk) reader_.hurry();
  const bool insists = has_bulk && bulk_waits_ >= kBulkWaits && most > 1;
  const unsigned prompt = reader_.read(frames.first(insists ? most - 1 : most), insists);
  // Others wait for a bulk frame less long if its lines are fetched between looks at their lane.
  const bool prepares =
      bulk_reader_.leaves_to_prepare() && has_bulk && prompt == 0 && !bulk_reader_.prepare();
  shows_bulk_ = insists || (has_bulk && prompt == 0 && !prepares);
  leaves_bulk_ = has_bulk && !shows_bulk_;
  if (shows_bulk_) {
    bulk_waits_ = 0;
    return prompt + bulk_reader_.read(frames.subspan(prompt, 1));
  }
  if (has_bulk) {
    if (prompt != 0) ++bulk_waits_;
    return prompt;
  }
  bulk_waits_ = 0;
  // A peer that never pauses may want to begin a stream, too.
  constexpr unsigned kKeepUpWaits = 64;
  if (prompt == 0 || ++busy_ % kKeepUpWaits == 0) bulk_reader_.keep_up();
  return prompt;
}

bool ShmPort::arm_rx() noexcept {
  if (!fall_asleep()) shm::expose_to_producers();
  if (!has_work()) return true;
  disarm_rx();
  return false;
}

bool ShmPort::arm_rx_beside() noexcept {
  if (!doze()) shm::expose_to_producers();
  return true;
}

bool ShmPort::doze() noexcept {
  const bool is_drowsy = reader_.fall_asleep();
  return bulk_reader_.fall_asleep() && is_drowsy;
}

bool ShmPort::fall_asleep() noexcept {
  link_->own_bell(queue_).silence();  // what it was rung for while awake has_work() sees
  return doze();
}

bool ShmPort::has_work() const noexcept {
  return reader_.has_work() || bulk_reader_.has_work();
}

void ShmPort::disarm_rx() noexcept {
  reader_.wake_up();
  bulk_reader_.wake_up();
  link_->own_bell(queue_).silence();
}

void ShmPort::keep_awake() noexcept {
  reader_.keep_awake();
  bulk_reader_.keep_awake();
}

}  // namespace uroce::drivers
