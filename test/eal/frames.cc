#include "eal/frames.h"

#include <sched.h>

#include <array>
#include <cstring>
#include <vector>

#include "drivers/registry.h"
#include "support/cancelled.h"

namespace uroce::test {
namespace {

constexpr std::array kDestination = {std::byte{0x02}, std::byte{0x99}, std::byte{0}, std::byte{0},
                                     std::byte{0}};
constexpr std::size_t kEtherType = 12;
constexpr std::size_t kKind = 14;
constexpr std::size_t kNumber = 16;
constexpr std::size_t kPattern = 24;

std::byte pattern(std::uint64_t number, std::size_t index) {
  return static_cast<std::byte>((number * 131 + index * 7) & 0xff);
}

bool is_ours(const port::RxFrame& frame) {
  return frame.len >= 32 && frame.data[kEtherType] == std::byte{0x88} &&
         frame.data[kEtherType + 1] == std::byte{0xb5};
}

std::uint64_t number_of(const port::RxFrame& frame) {
  std::uint64_t number = 0;
  std::memcpy(&number, frame.data + kNumber, sizeof number);
  return number;
}

bool is_echo_frame(const port::RxFrame& frame) {
  return frame.data[kKind] == std::byte{1};
}

/// Nobody has a core for himself in a test.
void give_way(unsigned frames) {
  if (frames == 0) sched_yield();
}

}  // namespace

Result<std::unique_ptr<port::Port>> open_port(std::string_view spec, bool no_huge) {
  auto ports = drivers::open_ports({.spec = std::string(spec),
                                    .link_mtu = 0,
                                    .queues = 1,
                                    .no_huge = no_huge,
                                    .fault = {},
                                    .seed = 1,
                                    .pcap = {}});
  if (!ports) return ports.error();
  auto port = std::move(ports->front());
  port->enter_thread();
  return port;
}

void write_frame(std::byte* frame, std::uint32_t len, std::uint64_t number, bool is_echo) {
  std::memset(frame, 0, kPattern);
  std::memcpy(frame, kDestination.data(), kDestination.size());
  frame[5] = is_echo ? std::byte{1} : std::byte{2};
  std::memcpy(frame + 6, frame, 6);
  frame[11] = is_echo ? std::byte{2} : std::byte{1};
  frame[kEtherType] = std::byte{0x88};
  frame[kEtherType + 1] = std::byte{0xb5};
  frame[kKind] = is_echo ? std::byte{1} : std::byte{0};
  std::memcpy(frame + kNumber, &number, sizeof number);
  for (std::size_t i = kPattern; i < len; ++i) frame[i] = pattern(number, i);
}

bool is_frame(const port::RxFrame& frame, std::uint32_t len, std::uint64_t number, bool is_echo) {
  std::vector<std::byte> expected(len);
  write_frame(expected.data(), len, number, is_echo);
  return frame.len == len && std::memcmp(frame.data, expected.data(), len) == 0;
}

void echo(port::Port& port, Deadline deadline) {
  std::array<port::RxFrame, port::kBurst> frames;
  for (unsigned idle = 0; idle % 256 != 255 || !is_past(deadline);) {
    const unsigned count = port.rx_burst(frames);
    idle = count > 0 ? 0 : idle + 1;
    for (unsigned i = 0; i < count; ++i) {
      if (!is_ours(frames[i]) || is_echo_frame(frames[i])) continue;
      if (!is_frame(frames[i], frames[i].len, number_of(frames[i]), false))
        continue;  // never sent back: seen
      std::byte* room = port.tx_claim(frames[i].len);
      if (room == nullptr) continue;
      write_frame(room, frames[i].len, number_of(frames[i]), true);
      port.tx_commit();
    }
    if (count > 0) port.rx_release();
    port.tx_flush();
    give_way(count);
  }
}

std::string ping(port::Port& port, const PingPlan& plan, Deadline deadline) {
  std::array<port::RxFrame, port::kBurst> frames;
  std::uint64_t sent = 0;
  std::uint64_t back = 0;
  Deadline first_again = in_seconds(0);
  while (back < plan.frames) {
    if (is_past(deadline))
      return std::to_string(back) + " of " + std::to_string(plan.frames) + " frames came back";
    // Until the first comes back the link may be down: frame 0 is sent again and again.
    const bool is_first = back == 0 && sent > 0;
    if (is_first && is_past(first_again)) sent = 0;
    const unsigned window = back == 0 ? 1 : plan.window;
    for (; sent < plan.frames && sent < back + window; ++sent) {
      std::byte* room = port.tx_claim(plan.len(sent));
      if (room == nullptr) break;
      write_frame(room, plan.len(sent), sent, false);
      port.tx_commit();
      first_again = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    }
    port.tx_flush();
    const unsigned count = port.rx_burst(frames);
    std::string wrong;
    for (unsigned i = 0; i < count && wrong.empty(); ++i) {
      if (!is_ours(frames[i]) || !is_echo_frame(frames[i])) continue;
      if (number_of(frames[i]) == 0 && back > 0) continue;  // an early repetition
      if (!is_frame(frames[i], plan.len(back), back, true)) {
        wrong = "frame " + std::to_string(back) + " came back as " + std::to_string(frames[i].len) +
                " other bytes, number " + std::to_string(number_of(frames[i]));
      }
      ++back;
    }
    if (count > 0) port.rx_release();
    if (!wrong.empty()) return wrong;
    give_way(count);
  }
  return {};
}

bool echo_and_be_cancelled(port::Port& port, Deadline deadline) {
  return is_cancelled_after([&] {
    port.enter_thread();
    echo(port, deadline);
  });
}

std::string ping_and_be_cancelled(port::Port& port, const PingPlan& plan, Deadline deadline) {
  std::string wrong;
  const bool is_whole = is_cancelled_after([&] {
    port.enter_thread();
    wrong = ping(port, plan, deadline);
  });
  return is_whole ? wrong : "cancelled";
}

}  // namespace uroce::test
