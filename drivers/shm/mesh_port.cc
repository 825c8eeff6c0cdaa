#include "drivers/shm/mesh_port.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace uroce::drivers {
namespace {

/// How long a frame waits for an end that has no room: one that reads has some long before.
constexpr std::chrono::milliseconds kPatience{1};

constexpr std::uint32_t kSilent = 1U << 16U;  // looks that show nothing, some milliseconds

MacAddress destination_of(const std::byte* frame) noexcept {
  MacAddress mac;
  std::memcpy(mac.raw.data(), frame, mac.raw.size());
  return mac;
}

}  // namespace

MeshPort::MeshPort(std::vector<std::unique_ptr<ShmPort>> others, port::PortInfo info)
    : info_(std::move(info)),
      room_((info_.link_mtu + shm::kFrameOverhead + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t)) {
  for (auto& way : others) others_.push_back({.port = std::move(way)});
}

MeshPort::~MeshPort() {
  if (bells_ >= 0) ::close(bells_);
}

Status MeshPort::watch_bells() {
  bells_ = ::epoll_create1(EPOLL_CLOEXEC);
  bool is_good = bells_ >= 0;
  for (const Way& way : others_) {
    epoll_event event{.events = EPOLLIN, .data = {}};
    is_good = is_good && ::epoll_ctl(bells_, EPOLL_CTL_ADD, way.port->rx_fd(), &event) == 0;
  }
  if (is_good) return {};
  return Error{Errc::kSystem, std::string("shm: cannot watch the bells of a mesh: ") + std::strerror(errno)};
}

/// Those that talk are looked at in each burst, of the others one: a look costs some 15 ns.
unsigned MeshPort::rx_burst(std::span<port::RxFrame> frames) noexcept {
  if (++turn_ >= others_.size()) turn_ = 0;
  const std::uint64_t first = std::uint64_t{1} << turn_;
  const std::uint64_t all = talking_ | first;
  unsigned count = 0;
  for (const std::uint64_t part : {all & ~(first - 1), all & (first - 1)}) {
    for (std::uint64_t left = part; left != 0 && count < frames.size(); left &= left - 1) {
      count += look(static_cast<std::size_t>(std::countr_zero(left)), frames.subspan(count));
    }
  }
  return count;
}

unsigned MeshPort::look(std::size_t at, std::span<port::RxFrame> frames) noexcept {
  Way& way = others_[at];
  const unsigned shown = way.port->rx_burst(frames);
  const std::uint64_t bit = std::uint64_t{1} << at;
  if (shown > 0) {
    shown_ |= bit;
    last_ = at;
    talking_ |= bit;
    way.idle = 0;
  } else if (++way.idle >= kSilent) {
    talking_ &= ~bit;
  }
  return shown;
}

void MeshPort::rx_release() noexcept {
  for (; shown_ != 0; shown_ &= shown_ - 1)
    others_[static_cast<std::size_t>(std::countr_zero(shown_))].port->rx_release();
}

bool MeshPort::shows_more() const noexcept {
  return std::any_of(others_.begin(), others_.end(), [](const Way& way) { return way.port->shows_more(); });
}

/// The turn comes to those that talk, too.
unsigned MeshPort::bursts_to_see_all() const noexcept {
  const std::size_t ends = others_.size();
  return static_cast<std::size_t>(std::popcount(talking_)) == ends ? 1 : static_cast<unsigned>(ends);
}

std::span<const std::byte> MeshPort::next_frame() const noexcept {
  return others_[last_].port->next_frame();
}

void MeshPort::leave_fetching_to(FetchAhead* ahead) noexcept {
  for (const Way& way : others_) way.port->leave_fetching_to(ahead);
}

void MeshPort::leave_ringing_to(DueBell* bell) noexcept {
  for (const Way& way : others_) way.port->leave_ringing_to(bell);
}

void MeshPort::spare_others(bool yes) noexcept {
  for (const Way& way : others_) way.port->spare_others(yes);
}

/// Of whose address that is, or of all: bits of others_. Ends differ in the last byte, which counts from 1.
std::uint64_t MeshPort::ways_to(const MacAddress& mac) const noexcept {
  if ((mac.raw[0] & 1) != 0) return (std::uint64_t{1} << others_.size()) - 1;
  const unsigned end = mac.raw.back() - 1U;
  const bool is_here = std::equal(mac.raw.begin(), mac.raw.end() - 1, info_.mac.raw.begin());
  if (!is_here || end >= info_.ends || end == info_.side) return 0;
  return std::uint64_t{1} << (end < info_.side ? end : end - 1);
}

port::Port& MeshPort::way_to(const MacAddress& mac) noexcept {
  const std::uint64_t way = ways_to(mac);
  if (!std::has_single_bit(way)) return *this;
  return *others_[static_cast<std::size_t>(std::countr_zero(way))].port;
}

std::byte* MeshPort::tx_claim(std::uint32_t len) noexcept {
  if (waits_ != 0) pass_on();
  if (waits_ != 0 || len > info_.link_mtu + shm::kFrameOverhead) {
    counters_.tx_no_room.add();
    return nullptr;
  }
  len_ = len;
  return room();
}

void MeshPort::tx_commit() noexcept {
  waits_ = ways_to(destination_of(room()));
  if (waits_ == 0) counters_.tx_dropped.add();
  deadline_ = {};
  if (waits_ != 0) pass_on();
}

/// @return false: there is no room
bool MeshPort::put(port::Port& way) noexcept {
  std::byte* const there = way.tx_claim(len_);
  if (there == nullptr) return false;
  std::memcpy(there, room(), len_);
  way.tx_commit();
  return true;
}

/// The frame goes to whom there is room for it.
void MeshPort::pass_on() noexcept {
  for (std::uint64_t left = waits_; left != 0; left &= left - 1) {
    const std::uint64_t way = left & (~left + 1);
    if (!put(*others_[static_cast<std::size_t>(std::countr_zero(way))].port)) continue;
    waits_ &= ~way;
    stuck_ &= ~way;
  }
  give_up(waits_ & stuck_);
  if (waits_ == 0) return;
  const Clock::time_point now = Clock::now();
  if (deadline_ == Clock::time_point{}) deadline_ = now + kPatience;
  if (now >= deadline_) give_up(waits_);
}

void MeshPort::give_up(std::uint64_t ways) noexcept {
  waits_ &= ~ways;
  stuck_ |= ways;
  counters_.tx_dropped.add(static_cast<std::uint64_t>(std::popcount(ways)));
}

void MeshPort::tx_flush() noexcept {
  if (waits_ != 0) [[unlikely]]
    pass_on();
  for (const Way& way : others_) way.port->tx_flush();
}

bool MeshPort::arm_rx() noexcept {
  if (holds_back()) return false;
  lie_down(&ShmPort::fall_asleep);
  if (std::none_of(others_.begin(), others_.end(), [](const Way& way) { return way.port->has_work(); }))
    return true;
  disarm_rx();
  return false;
}

bool MeshPort::arm_rx_beside() noexcept {
  lie_down(&ShmPort::doze);
  return true;
}

void MeshPort::lie_down(bool (ShmPort::*go)() noexcept) noexcept {
  bool were_drowsy = true;
  for (const Way& way : others_) were_drowsy = (way.port.get()->*go)() && were_drowsy;
  if (!were_drowsy) shm::expose_to_producers();
}

void MeshPort::disarm_rx() noexcept {
  for (const Way& way : others_) way.port->disarm_rx();
}

void MeshPort::keep_awake() noexcept {
  for (const Way& way : others_) way.port->keep_awake();
}

port::LinkState MeshPort::link_state() noexcept {
  const bool is_up = std::any_of(others_.begin(), others_.end(), [](const Way& way) {
    return way.port->link_state() == port::LinkState::kUp;
  });
  return is_up ? port::LinkState::kUp : port::LinkState::kDown;
}

port::PortCounters MeshPort::counters() const noexcept {
  port::PortCounters sum = counters_.snapshot();
  for (const Way& way : others_) {
    const port::PortCounters one = way.port->counters();
    for (const port::PortCounterName& counter : port::kPortCounterNames)
      sum.*counter.value += one.*counter.value;
  }
  return sum;
}

}  // namespace uroce::drivers
