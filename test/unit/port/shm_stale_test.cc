/// What an earlier lap has left in the ring is never taken for a record.
#include <catch2/catch.hpp>

#include <cstring>
#include <deque>

#include "drivers/shm/layout.h"
#include "drivers/shm/open.h"
#include "port_helpers.h"
#include "shared_bytes.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

constexpr shm::Geometry kGeometry{.queues = 1, .ring_bytes = 1U << 16, .link_mtu = 4200};

/// Both ends of a link whose frames hold headers of its own stream, wherever a line of the ring begins.
class Forger {
 public:
  Forger(std::string name, std::uint64_t seed)
      : name_(std::move(name)), random_(seed), a_(open_end(name_)), b_(open_end(name_)), shared_(name_) {
    meet();
  }

  /// Sends a frame of `len` bytes, in one of the ways that there are, unless there is no room.
  void forge_and_send(std::uint32_t len) {
    const Bytes frame = forged(len);
    const bool by_lines = len <= 640 && random_.below(2) == 0;
    const bool sent = is_bulk_ ? send_bulk(*a_, frame) : by_lines ? send_lines(*a_, frame) : send(*a_, frame);
    if (sent) under_way_.push_back(frame);
  }
  /// Writes to a frame's room without sending it.
  void forge_and_forget(std::uint32_t len) {
    const Bytes frame = forged(len);
    std::byte* const room = len <= 640 ? a_->tx_claim_lines(len) : a_->tx_claim(len);
    if (room != nullptr) std::memcpy(room, frame.data(), len);
  }
  /// Sends `count` frames, of as many bytes as `length` says when it is called with their number, and takes
  /// them now and then; then the rest.
  template <typename Length>
  void exchange(int count, Length&& length) {
    for (int i = 0; i < count; ++i) {
      forge_and_send(static_cast<std::uint32_t>(length(i)));
      if (random_.below(4) == 0) check_received();
    }
    for (int i = 0; i < 100'000 && !under_way_.empty(); ++i) check_received();
    REQUIRE(under_way_.empty());
    check_received();
  }
  void check_received() {
    for (const Bytes& frame : receive(*b_)) {
      REQUIRE_FALSE(under_way_.empty());
      REQUIRE(frame == under_way_.front());
      under_way_.pop_front();
    }
    REQUIRE(b_->counters().rx_malformed == 0);
  }
  /// One end is another one from now on; what is read next is the stream that has been forged with the
  /// others.
  void restart(bool receiver) {
    const std::uint32_t forged = next_stream();
    auto& end = receiver ? b_ : a_;
    end.reset();
    end = open_end(name_);
    meet();
    REQUIRE(stream_ == forged);
  }
  /// From now on by the lane for bulk.
  void use_bulk() {
    is_bulk_ = true;
    REQUIRE(send_bulk(*a_, random_bytes(14, random_.next())));
    REQUIRE(receive_soon(*b_).size() == 1);
    stream_ = stream_in(shm::Lane::kBulk);
  }
  Random& random() { return random_; }

 private:
  void meet() {
    settle(*a_, *b_);
    REQUIRE(send(*a_, random_bytes(14, random_.next())));
    REQUIRE(receive_soon(*b_).size() == 1);
    stream_ = stream_in(shm::Lane::kPrompt);
  }
  [[nodiscard]] std::uint32_t stream_in(shm::Lane lane) const {
    return shared_.load32(kGeometry.ring_at(0, 0, lane)) & shm::kTagMask & ~shm::kLapBit;
  }
  [[nodiscard]] std::uint32_t next_stream() const { return stream_ + 2 * shm::kLapBit; }
  static std::unique_ptr<port::Port> open_end(const std::string& name) {
    PortOptions options;
    options.spec = "shm:" + name + ",ring=64K";
    auto ports = open_shm(options);
    if (!ports) FAIL(ports.error().text);
    return std::move(ports->front());
  }
  Bytes forged(std::uint32_t len) {
    Bytes frame = random_bytes(len, random_.next());
    for (std::size_t at = 64 - shm::kHeaderBytes; at + sizeof(std::uint32_t) <= len; at += 64) {
      const std::uint32_t stream = random_.below(2) == 0 ? stream_ : next_stream();
      const std::uint32_t lap = random_.below(2) == 0 ? shm::kLapBit : 0;
      const std::uint32_t skip = random_.below(8) == 0 ? shm::kSkip : 0;
      const auto length = 14 + static_cast<std::uint32_t>(random_.below(1000));
      const std::uint32_t header = stream | lap | (skip != 0 ? skip : length);
      std::memcpy(frame.data() + at, &header, sizeof(header));
    }
    return frame;
  }

  std::string name_;
  Random random_;
  std::unique_ptr<port::Port> a_;
  std::unique_ptr<port::Port> b_;
  SharedBytes shared_;
  std::uint32_t stream_ = 0;
  bool is_bulk_ = false;
  std::deque<Bytes> under_way_;
};

}  // namespace

TEST_CASE("frames that hold record headers cross the link, and nothing else does", "[shm][stale]") {
  const std::uint64_t seed = Catch::rngSeed() + 1;
  // Of 16 frames so many are longer than the consumer looks through; in the last case few, so that for whole
  // laps there is none.
  const auto long_ones = GENERATE(0U, 8U, 1U);
  const bool by_bulk = GENERATE(false, true);
  INFO("seed " << seed << ", long ones " << long_ones << (by_bulk ? ", bulk" : ""));
  Forger link(unique_name("stale"), seed + long_ones);
  if (by_bulk) link.use_bulk();
  Random& random = link.random();
  link.exchange(60'000, [&](int i) {
    const bool is_long = random.below(16) < long_ones && (long_ones > 1 || i % 4000 < 100);
    return is_long ? 1025 + random.below(3000) : 14 + random.below(400);
  });
}

TEST_CASE("what was written and never sent is not taken for a record", "[shm][stale]") {
  const std::uint64_t seed = Catch::rngSeed() + 1;
  INFO("seed " << seed);
  Forger link(unique_name("forgotten"), seed);
  Random& random = link.random();
  link.exchange(60'000, [&](int i) {
    const std::uint64_t most = i % 8000 < 4000 ? 1000 : 3000;
    if (i % 4000 < 100) link.forge_and_forget(14 + static_cast<std::uint32_t>(random.below(most)));
    return 14 + random.below(100);
  });
}

TEST_CASE("what a stream has left is not taken for records of the next one", "[shm][stale]") {
  const std::uint64_t seed = Catch::rngSeed() + 1;
  INFO("seed " << seed);
  Forger link(unique_name("streams"), seed);
  Random& random = link.random();
  for (int stream = 0; stream < 40; ++stream) {
    link.exchange(600, [&](int) {
      const bool is_long = stream % 2 != 0 && random.below(8) == 0;
      return 14 + random.below(is_long ? 4000 : 400);
    });
    link.restart(stream % 4 < 2);
  }
}
