/// One short measurement, as the parent asks a pair of workers for it.
#pragma once

#include <cstdint>
#include <string>

#include "apps/common/clock.h"
#include "apps/common/histogram.h"
#include "apps/common/rate_meter.h"
#include "apps/common/worker.h"

namespace uroce::apps {

/// What is measured.
enum class Kind : std::uint8_t {
  kRtt,     ///< one message of `bytes` there and back at a time
  kRate,    ///< as many messages of `bytes` as possible, one way; see Sample::kList
  kStream,  ///< as many bytes as possible in transfers of `bytes`, one way
  kOpen,    ///< messages of `bytes` there and back, due at `rate`, whether answers have come or not
};

/// How the side that is not the device under test does it.
enum class Style : std::uint8_t {
  kSpin,   ///< poll without sleeping
  kBlock,  ///< sleep in the system call
  kUdp,    ///< spin, over UDP
  kRaw,    ///< bare frames
  kRef,    ///< bare frames, copied from and to application memory and checked by CRC-32
};

struct Sample {
  Kind kind{};
  Style style{};
  std::uint32_t bytes = 0;
  std::uint32_t frame_payload = 0;  ///< raw streams: bytes per frame
  std::uint64_t run_ns = 0;
  std::uint32_t id = 0;     ///< tells the frames of one sample from those of the last
  double rate = 0;          ///< open loop: messages due a second
  std::string hgrm_file{};  ///< open loop: for the distribution; empty: none

  [[nodiscard]] Json request(bool client) const {
    return {{"op", "sample"},
            {"client", client},
            {"kind", static_cast<int>(kind)},
            {"style", static_cast<int>(style)},
            {"bytes", bytes},
            {"frame_payload", frame_payload},
            {"run_ns", run_ns},
            {"id", id},
            {"rate", rate},
            {"hgrm_file", hgrm_file}};
  }
  [[nodiscard]] static Sample from(const Json& request) {
    return {.kind = static_cast<Kind>(request.at("kind").get<int>()),
            .style = static_cast<Style>(request.at("style").get<int>()),
            .bytes = request.at("bytes").get<std::uint32_t>(),
            .frame_payload = request.at("frame_payload").get<std::uint32_t>(),
            .run_ns = request.at("run_ns").get<std::uint64_t>(),
            .id = request.at("id").get<std::uint32_t>(),
            .rate = request.at("rate").get<double>(),
            .hgrm_file = request.at("hgrm_file").get<std::string>()};
  }

  /// WRITEs up to this size are repeated on memory that the caches hold; longer ones pass over memory of
  /// their own size, which these do not.
  static constexpr std::uint32_t kHotBytes = 4U << 20U;
  /// Of that, WRITEs and frames that fit in go through so many bytes at each end, whatever carries them.
  static constexpr std::uint32_t kHotWindow = 256U << 10U;
  [[nodiscard]] bool is_cold() const noexcept { return kind == Kind::kStream && bytes > kHotBytes; }

  /// Of rates: uroce's messages are posted in lists of so many with one completion for all of them, and
  /// frames of the bare link leave in bursts. TCP and UDP are told of each by a call.
  static constexpr std::uint32_t kList = 32;

  /// Start of the run that is not counted.
  [[nodiscard]] std::uint64_t warm_up_ns() const noexcept { return run_ns / 5; }
  /// A round trip test goes on for this long until it has kEnough samples.
  [[nodiscard]] std::uint64_t patience_ns() const noexcept { return run_ns + kSecond; }
  static constexpr std::uint64_t kEnough = 100;
  /// No side waits longer than this for the other.
  [[nodiscard]] std::uint64_t limit_ns() const noexcept {
    constexpr std::uint64_t kNsOfByte = 80;                       // two transfers at 200 Mb/s
    const std::uint64_t late = kind == Kind::kOpen ? run_ns : 0;  // warm-up, and what is sent after the end
    return run_ns + late + 4 * kSecond + (kind == Kind::kStream ? bytes * kNsOfByte : 0);
  }
};

/// Nanoseconds.
[[nodiscard]] inline Json rtt_result(const Histogram& ticks, const TickClock& clock) {
  const auto ns = [&](double percent) { return clock.ns(1) * ticks.interpolated(percent); };
  return {{"p50", ns(50)}, {"p99", ns(99)}, {"count", ticks.count()}};
}

/// Units (messages or bytes) per second.
[[nodiscard]] inline Json rate_result(const RateMeter& meter) {
  return {{"rate", meter.typical()}};
}

}  // namespace uroce::apps
