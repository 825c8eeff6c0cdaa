/// Two programs that run the same test: their device, QPs and memory, and the way by which they agree.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/cores.h"
#include "apps/common/endpoint.h"
#include "apps/common/stop.h"
#include "apps/perf/control.h"
#include "apps/perf/spec.h"
#include "apps/perf/wr_ids.h"

namespace uroce::apps::perf {

/// How long the other side may take to answer.
inline constexpr std::uint64_t kAnswerNs = 20 * kSecond;
/// And how long nothing may come from it during a test.
inline constexpr std::uint64_t kSilenceNs = 10 * kSecond;

/// Bytes that can be had without others having to leave them.
[[nodiscard]] std::uint64_t memory_available();

/// Memory of one QP: an area to send from (and to be read from), an area to receive into (and to be written
/// to), each cut into slots of one message.
struct Area {
  std::size_t tx = 0;  ///< offset in the session's memory
  std::size_t rx = 0;
  std::size_t bytes = 0;  ///< of each

  [[nodiscard]] std::uint64_t slots(std::uint32_t size) const noexcept { return bytes / stride(size); }
  [[nodiscard]] std::size_t slot(std::uint64_t number, std::uint32_t size) const noexcept {
    return number % slots(size) * stride(size);
  }
  [[nodiscard]] static std::size_t stride(std::uint32_t size) noexcept {
    return (std::size_t{size} + 63) / 64 * 64 + (size == 0 ? 64 : 0);
  }
};

/// One side of a test.
///
/// Threads: one. Protocol, one JSON object per message: the client sends its TestSpec, the server answers
/// {"path_mtu", ...} or {"error"}, and {"ready"} or {"error"} once it has all that the test needs; then the
/// QPs are connected, and both tell their memory {"addr", "rkey", "gid"}. Then for each size, and for what
/// warms it up: {"run": size, "warm_up"} -> {"ready"}; the test;
/// {"done": [sent per QP]} -> {"sent": [...], "errors", "lost", ...}. At last {"end"}.
class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const Config& config, const LocalOptions& local,
                                               const TestSpec& wish, const OnReady& on_ready);

  [[nodiscard]] const TestSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const LocalOptions& local() const noexcept { return local_; }
  [[nodiscard]] bool is_client() const noexcept { return local_.is_client(); }
  [[nodiscard]] Device& device() noexcept { return *device_; }
  [[nodiscard]] const Config& config() const noexcept { return device_->config(); }
  /// Takes completions, of the CQs in turn: each loop of the device has one, and an equal share of the QPs.
  [[nodiscard]] std::size_t poll(std::span<Wc> out) noexcept;
  /// To be called after a poll without result, with -e: sleeps until there may be one or the time is over.
  /// @return false when the time was over.
  [[nodiscard]] bool sleep(std::chrono::milliseconds at_most);
  [[nodiscard]] Qp& qp(std::size_t index) noexcept { return qps_[index]; }
  [[nodiscard]] std::size_t qps() const noexcept { return qps_.size(); }
  [[nodiscard]] const Area& area(std::size_t qp) const noexcept { return areas_[qp]; }
  [[nodiscard]] std::span<std::byte> bytes(std::size_t offset, std::size_t count) const {
    return memory_->memory().subspan(offset, count);
  }
  [[nodiscard]] Sge sge(std::size_t offset, std::uint32_t count) const noexcept {
    return memory_->sge(offset, count);
  }
  /// Address of the same offset in the peer's memory: both sides lay it out alike.
  [[nodiscard]] std::uint64_t remote(std::size_t offset) const noexcept { return peer_addr_ + offset; }
  [[nodiscard]] Rkey rkey() const noexcept { return peer_rkey_; }
  [[nodiscard]] std::uint32_t inline_limit() const noexcept { return inline_limit_; }
  [[nodiscard]] std::uint32_t path_mtu() const noexcept { return uroce::bytes(*path_mtu_); }

  /// SEND: receives stay posted during the whole session, each for the largest message.
  [[nodiscard]] static bool is_receive(const Wc& wc) noexcept { return (wc.wr_id & kReceiveFlag) != 0; }
  [[nodiscard]] static std::size_t receive_qp(const Wc& wc) noexcept {
    return (wc.wr_id & ~kReceiveFlag) >> 32U;
  }
  [[nodiscard]] static std::uint64_t receive_slot(const Wc& wc) noexcept { return wc.wr_id & 0xffff'ffffU; }
  /// Where its message begins.
  [[nodiscard]] std::size_t receive_offset(std::size_t qp, std::uint64_t slot) const noexcept {
    return receive_slot_offset(qp, slot) + spec_.headroom();
  }
  [[nodiscard]] bool post_receive(std::size_t qp, std::uint64_t slot) noexcept;

  /// UD: sends it to the peer of the QP.
  void address(SendWr& wr, std::size_t qp) const noexcept {
    wr.ah = ah_->id();
    wr.remote_qpn = peer_qpns_[qp];
    wr.remote_qkey = kPingPongQkey;
  }
  /// What the first SEND of a run over UC or UD is numbered with, at both ends alike: what is late from an
  /// earlier run shows.
  [[nodiscard]] std::uint32_t begin_run() noexcept { return run_++ << 30U; }
  /// Messages that have come by all QPs, whether they took a receive or not.
  [[nodiscard]] std::uint64_t messages_come() const;
  /// Request packets that have left or come, each once: what is sent again is no progress.
  [[nodiscard]] std::uint64_t packets_moved() const;
  /// With what may be the reason.
  [[nodiscard]] Error undelivered(std::string text) const;

  /// Whether the peer has said something, or is gone.
  [[nodiscard]] bool has_news() { return control_->has_news(); }
  Status say(const Json& message);
  /// The peer's next message; keeps the device going while it waits.
  /// @return the failure that the peer reports; kPeer if it is gone; kTimeout.
  Result<Json> hear(std::uint64_t timeout_ns);

  [[nodiscard]] Error failure(const Wc& wc) const;

 private:
  Session(Device device, LocalOptions local, TestSpec spec)
      : device_(std::make_unique<Device>(std::move(device))), local_(std::move(local)), spec_(spec) {}

  /// What this side cannot do, whoever the peer is.
  [[nodiscard]] Status check() const;
  [[nodiscard]] Status check_datagram() const;
  [[nodiscard]] std::size_t receive_slot_offset(std::size_t qp, std::uint64_t slot) const noexcept {
    return areas_[qp].rx + areas_[qp].slot(slot, spec_.receive_bytes());
  }
  Status ask();
  Status answer();
  Status agree();
  Status make_queues();
  Status make_memory();
  Status await_server();
  Status post_receives();
  Status exchange();
  Status address_peers(const std::vector<QpAddress>& peers, const Connecting& with);

  std::unique_ptr<Device> device_;
  LocalOptions local_;
  TestSpec spec_;
  std::optional<Pd> pd_;
  std::vector<Cq> cqs_;
  std::size_t next_cq_ = 0;
  std::size_t empty_since_armed_ = 0;  ///< polls in a row; nothing is armed before the first of them
  bool is_armed_ = false;
  std::optional<Mr> memory_;
  std::vector<Area> areas_;
  std::vector<Qp> qps_;
  std::optional<Ah> ah_;              ///< UD: of the peer
  std::vector<Qpn> peer_qpns_;        ///< UD
  std::unique_ptr<Control> control_;  ///< ends the connections of the QPs
  std::uint32_t run_ = 0;
  std::optional<PathMtu> path_mtu_;
  std::uint32_t inline_limit_ = 0;
  std::uint32_t options_ = 0;  // of ece::kVendor, that both ends offer
  Gid gid_;
  Gid peer_gid_;
  std::uint64_t peer_addr_ = 0;
  Rkey peer_rkey_{};
};

/// Looks now and then, from a loop that polls, whether the peer speaks or is gone, and for how long
/// nothing came. With -e it sleeps meanwhile.
class Watch {
 public:
  explicit Watch(Session& session)
      : session_(session),
        give_way_(session.local().sleeps ? GiveWay::at_once_if(true) : when_to_give_way(session.config())) {}
  /// To be called after each poll without result. True also when the program is told to end. The peer is
  /// asked when there were many in a row: to ask takes as long as a round trip. Measured: p99 of 64 B
  /// `send_lat`, each 1024th poll and 1024 in a row, 0.71 -> 0.58 us.
  [[nodiscard]] bool has_news() {
    if (give_way_.is_due(polls_)) give_way();
    if ((++polls_ & kPollsMask) != 0) return false;
    const std::uint64_t now = now_ns();
    if (silent_since_ == 0) {
      silent_since_ = still_since_ = now;
      moved_.reset();
    }
    silence_ns_ = now - silent_since_;
    still_ns_ = now - still_since_;
    if (session_.is_client() && still_ns_ > kSilenceNs / 2) look_for_packets(now);  // servers are patient
    return is_stopped() || session_.has_news();
  }
  /// Something came.
  void heard() noexcept {
    polls_ = 0;
    silent_since_ = silence_ns_ = still_ns_ = 0;
  }
  [[nodiscard]] std::uint64_t silence_ns() const noexcept { return silence_ns_; }
  /// Likewise, and no packet of a long message either.
  [[nodiscard]] std::uint64_t still_ns() const noexcept { return still_ns_; }
  [[nodiscard]] bool is_silent() const noexcept { return still_ns_ > kSilenceNs; }

 private:
  static constexpr std::uint32_t kPollsMask = 0x3ff;

  void give_way();  // or sleeps
  /// A long message may be under way: its packets are a sign of life, too.
  void look_for_packets(std::uint64_t now);

  Session& session_;
  GiveWay give_way_;
  std::uint32_t polls_ = 0;  // in a row, without result
  std::uint64_t silent_since_ = 0;
  std::uint64_t silence_ns_ = 0;
  std::uint64_t still_since_ = 0;
  std::uint64_t still_ns_ = 0;
  std::optional<std::uint64_t> moved_;  // packets, when half of the patience was over
};

}  // namespace uroce::apps::perf
