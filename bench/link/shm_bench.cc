/// The bare shm link between two processes, one core each, through the Port interface.
///
/// Includes one copy into the ring and one out of it for the rows that say so; no headers, no CRC, no
/// protocol. RTT: per ping, clock reading included (about 20 ns). Rates: median and 10th percentile of 1-ms
/// windows.
///
/// Usage: shm_bench [CORE CORE [SECONDS_PER_ROW]]
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "drivers/shm/open.h"

namespace {

using namespace uroce;
using Clock = std::chrono::steady_clock;
using PortPtr = std::unique_ptr<port::Port>;

constexpr std::uint32_t kStop = 14;  // a frame of this length ends a row

struct Row {
  std::uint32_t frame_bytes;
  bool copies;
  bool is_ping;
};
constexpr Row kRows[] = {{64, true, true},    {122, true, true},   {128, true, true},   {1086, true, true},
                         {4158, true, true},  {64, false, false},  {64, true, false},   {128, true, false},
                         {1086, true, false}, {4158, true, false}, {4158, false, false}};

PortPtr open_end(const std::string& name) {
  drivers::PortOptions options;
  options.spec = "shm:" + name;
  auto ports = drivers::open_shm(options);
  if (ports) return std::move(ports->front());
  std::fprintf(stderr, "%s\n", ports.error().text.c_str());
  std::exit(exit_code(ports.error().code));
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) std::perror("sched_setaffinity");
}

std::int64_t ns_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

/// Two cache lines, one written by each process.
struct Floor {
  alignas(64) std::atomic<std::uint32_t> ping{0};
  alignas(64) std::atomic<std::uint32_t> pong{0};
};
constexpr std::uint32_t kFloorRounds = 200'000;

void serve_floor(Floor& floor) {
  for (std::uint32_t round = 1; round <= kFloorRounds; ++round) {
    while (floor.ping.load(std::memory_order_acquire) != round) {
    }
    floor.pong.store(round, std::memory_order_release);
  }
}

void print_rtt(std::uint32_t len, std::vector<std::int64_t>& samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return static_cast<long>(
        samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))]);
  };
  std::printf("RTT  %5u B  p50 %5ld ns  p99 %6ld  p99.9 %6ld%s\n", len, at(0.5), at(0.99), at(0.999),
              len == 0 ? "  (floor)" : "");
}

void measure_floor(Floor& floor) {
  std::vector<std::int64_t> samples;
  for (std::uint32_t round = 1; round <= kFloorRounds; ++round) {
    const auto sent = Clock::now();
    floor.ping.store(round, std::memory_order_release);
    while (floor.pong.load(std::memory_order_acquire) != round) {
    }
    samples.push_back(ns_since(sent));
  }
  print_rtt(0, samples);
}

/// Waits for room.
void send(port::Port& port, std::uint32_t len, const std::byte* source) {
  std::byte* room = nullptr;
  while ((room = port.tx_claim(len)) == nullptr) {
  }
  if (source != nullptr) std::memcpy(room, source, len);
  port.tx_commit();
  port.tx_flush();
}

/// Answers pings, or only takes frames, until told to stop.
void serve(port::Port& port, const Row& row, std::vector<std::byte>& memory) {
  port::RxFrame frames[port::kBurst];
  for (std::size_t at = 0;;) {
    const unsigned count = port.rx_burst(frames);
    bool stop = false;
    for (unsigned i = 0; i < count; ++i) {
      stop = stop || frames[i].len == kStop;
      if (row.copies) std::memcpy(memory.data() + at, frames[i].data, frames[i].len);
      if (row.is_ping && frames[i].len != kStop) send(port, frames[i].len, memory.data() + at);
      at = at + 2UL * frames[i].len + 9600 > memory.size() ? 0 : at + frames[i].len;
    }
    if (count > 0) port.rx_release();
    if (stop) return send(port, kStop, memory.data());
  }
}

void await_frame(port::Port& port, std::byte* target) {
  port::RxFrame frame[1];
  while (port.rx_burst(frame) == 0) {
  }
  std::memcpy(target, frame[0].data, frame[0].len);
  port.rx_release();
}

void ping(port::Port& port, const Row& row, std::vector<std::byte>& memory, double seconds) {
  std::vector<std::int64_t> samples;
  samples.reserve(20'000'000);
  const auto start = Clock::now();
  while (samples.size() < samples.capacity() && static_cast<double>(ns_since(start)) < seconds * 1e9) {
    const auto sent = Clock::now();
    send(port, row.frame_bytes, memory.data());
    await_frame(port, memory.data() + 16384);
    samples.push_back(ns_since(sent));
  }
  print_rtt(row.frame_bytes, samples);
}

void stream(port::Port& port, const Row& row, std::vector<std::byte>& memory, double seconds) {
  std::vector<double> rates;  // frames per second
  std::size_t at = 0;
  const auto start = Clock::now();
  auto window = start;
  for (std::uint64_t frames = 0; static_cast<double>(ns_since(start)) < seconds * 1e9;) {
    for (int i = 0; i < 64; ++i, ++frames) {
      send(port, row.frame_bytes, row.copies ? memory.data() + at : nullptr);
      at = at + 2UL * row.frame_bytes > memory.size() ? 0 : at + row.frame_bytes;
    }
    const auto elapsed = ns_since(window);
    if (elapsed < 1'000'000) continue;
    rates.push_back(static_cast<double>(frames) * 1e9 / static_cast<double>(elapsed));
    frames = 0;
    window = Clock::now();
  }
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  std::printf("rate %5u B  %-12s w50 %6.2f M/s  w90 %6.2f  %7.1f Gb/s\n", row.frame_bytes,
              row.copies ? "two copies" : "frames only", median / 1e6, rates[rates.size() * 9 / 10] / 1e6,
              median * row.frame_bytes * 8 / 1e9);
}

/// Frames are dropped until the other end is there; the first row's server answers the first that is not.
void meet(port::Port& port, std::vector<std::byte>& memory) {
  std::uint64_t dropped = 0;
  do {
    dropped = port.counters().tx_dropped;
    send(port, kRows[0].frame_bytes, memory.data());
  } while (port.counters().tx_dropped != dropped);
  await_frame(port, memory.data());
}

/// Nobody waits for a child that has failed: the rows would never end.
void end_with_child(int /*signal*/) {
  int status = 0;
  if (::waitpid(-1, &status, WNOHANG) > 0 && status != 0) ::_exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int cores[2] = {argc > 2 ? std::atoi(argv[1]) : 0, argc > 2 ? std::atoi(argv[2]) : 1};
  const double seconds = argc > 3 ? std::atof(argv[3]) : 0.3;
  const std::string name = "bench-" + std::to_string(::getpid());
  void* shared = ::mmap(nullptr, sizeof(Floor), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  Floor& floor = *new (shared) Floor();
  std::signal(SIGCHLD, end_with_child);
  const pid_t child = ::fork();
  if (child < 0) return std::perror("fork"), 1;
  if (child == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin(cores[child == 0 ? 1 : 0]);
  const PortPtr port = open_end(name);
  std::vector<std::byte> memory(1U << 20, std::byte{0x5a});
  if (child == 0) {
    serve_floor(floor);
    for (const Row& row : kRows) serve(*port, row, memory);
    return 0;
  }
  measure_floor(floor);
  meet(*port, memory);
  for (const Row& row : kRows) {
    row.is_ping ? ping(*port, row, memory, seconds) : stream(*port, row, memory, seconds);
    send(*port, kStop, memory.data());
    for (std::uint32_t len = 0; len != kStop;) {
      port::RxFrame frame[1];
      if (port->rx_burst(frame) == 0) continue;
      len = frame[0].len;
      port->rx_release();
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);  // if it has not been heard of yet
  return status == 0 ? 0 : 1;
}
