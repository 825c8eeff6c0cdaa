/// A simulated Ethernet segment in virtual time, with faults drawn from a seed and counted exactly.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "port/port.h"
#include "wire/packet.h"

namespace uroce::sim {

/// What the segment does to frames. Probabilities are per frame.
struct NetConfig {
  std::uint64_t delay_ns = 1000;
  std::uint64_t jitter_ns = 0;        ///< added, uniform; order is kept
  std::uint64_t bandwidth_bps = 0;    ///< of each port; 0: infinite
  std::uint64_t reorder_ns = 20'000;  ///< a reordered frame is late by up to this
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;
  double corrupt = 0;
  double truncate = 0;
  double mark = 0;   ///< Congestion Experienced, of packets of who heeds that
  double spike = 0;  ///< this frame and all behind it are late by up to spike_ns
  std::uint64_t spike_ns = 100'000;
  std::uint64_t flap_every_ns = 0;  ///< the link is down for flap_ns once in this time; 0: never
  std::uint64_t flap_ns = 0;
  double no_room = 0;       ///< a claim is refused
  unsigned most_kills = 2;  ///< of one and the same packet, and of ACKs to one QP in a row
  std::uint32_t link_mtu = 4200;
};

/// What happens to one frame.
enum class Fate : std::uint8_t { kDeliver, kDrop, kDuplicate, kReorder, kCorrupt, kTruncate };

/// What has passed one port. `sent`: by its owner; the rest: towards its owner.
struct NetTally {
  std::uint64_t sent_roce = 0;
  std::uint64_t dropped = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t shown_clean_roce = 0;
  std::uint64_t shown_damaged = 0;
  std::uint64_t shown_cnps = 0;
};

/// The segment: frames go by destination MAC, group addresses to everybody else.
///
/// Threads: one, together with its ports. Lifetime: outlives its ports.
class Net {
 public:
  /// Decides the fate of a RoCE packet instead of chance; nullopt: chance decides.
  using Judge = std::function<std::optional<Fate>(unsigned from, const wire::PacketView& packet)>;
  /// Sees every RoCE packet when it is sent, before its fate.
  using Observer = std::function<void(unsigned from, const wire::PacketView& packet)>;

  Net(const NetConfig& config, unsigned ports, std::uint64_t seed);
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  [[nodiscard]] std::unique_ptr<port::Port> open(unsigned index);
  [[nodiscard]] static MacAddress mac(unsigned index) noexcept;

  void advance_to(std::uint64_t now_ns) noexcept { now_ns_ = now_ns; }
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return now_ns_; }
  /// When the next frame arrives at a port, or did.
  [[nodiscard]] std::optional<std::uint64_t> next_arrival_ns(unsigned index) const noexcept;
  [[nodiscard]] const NetTally& tally(unsigned index) const noexcept;

  void set_judge(Judge judge) { judge_ = std::move(judge); }
  void add_observer(Observer observer) { observers_.push_back(std::move(observer)); }
  /// Sees every undamaged RoCE packet when a port shows it, with the index of that port.
  void set_arrival_observer(Observer observer) { on_arrival_ = std::move(observer); }
  /// Every frame and its fate in words, to standard error.
  void set_trace(bool on) noexcept { trace_ = on; }
  /// Every frame as it is sent, whatever becomes of it, to a capture file. Throws if it cannot be written.
  void set_capture(const std::string& path);

 private:
  class NetPort;
  struct Flight {
    std::uint64_t time_ns = 0;
    std::uint64_t serial = 0;
    std::uint32_t frame = 0;  // index into frames_
    bool damaged = false;
    bool roce = false;
    bool cnp = false;

    /// For a queue with the earliest on top.
    friend bool operator<(const Flight& a, const Flight& b) noexcept {
      return a.time_ns != b.time_ns ? a.time_ns > b.time_ns : a.serial > b.serial;
    }
  };
  struct End {
    std::priority_queue<Flight> flights;
    std::uint64_t busy_until_ns = 0;
    std::uint64_t last_arrival_ns = 0;
    NetTally tally;
  };

  void send(unsigned from, std::span<const std::byte> frame);
  void show(unsigned to, std::span<const std::byte> frame);
  void deliver(unsigned to, std::span<const std::byte> frame, const wire::PacketView* packet, Fate fate);
  void put(unsigned to, std::span<const std::byte> frame, const wire::PacketView* packet, bool late);
  void put_damaged(unsigned to, std::span<const std::byte> frame, const wire::PacketView* packet, Fate fate);
  [[nodiscard]] Fate decide(unsigned from, const wire::PacketView* packet);
  [[nodiscard]] bool may_kill(const wire::PacketView* packet);
  [[nodiscard]] bool happens(double probability) noexcept;
  [[nodiscard]] std::uint32_t store(std::span<const std::byte> frame);
  void capture(std::span<const std::byte> frame);
  void trace(unsigned from, unsigned to, std::span<const std::byte> frame, Fate fate) const;

  NetConfig config_;
  Random random_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t serial_ = 0;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::vector<std::byte>> frames_;
  std::vector<std::uint32_t> free_frames_;
  std::unordered_map<std::uint64_t, unsigned> kills_;        // of one packet
  std::unordered_map<std::uint32_t, unsigned> acks_killed_;  // in a row, by QP that they were for
  Judge judge_;
  std::vector<Observer> observers_;
  Observer on_arrival_;
  bool trace_ = false;
  std::ofstream capture_;
};

}  // namespace uroce::sim
