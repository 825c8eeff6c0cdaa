/// The seam below which drivers live: an rx queue and a tx queue that carry Ethernet frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/due_bell.h"
#include "base/fetch_ahead.h"
#include "uroce/types.h"

namespace uroce::port {

/// One received frame, shown in place in the driver's own buffer.
struct RxFrame {
  const std::byte* data = nullptr;  ///< first byte of the Ethernet header
  std::uint32_t len = 0;            ///< bytes, without FCS; may include padding behind the IP packet
};

/// Most frames shown or written per burst.
inline constexpr unsigned kBurst = 32;

/// Facts about a port that do not change while it is open.
struct PortInfo {
  std::string name;  ///< as the user wrote it, e.g. "shm:demo"
  MacAddress mac{};  ///< unique on the link
  std::uint32_t link_mtu =
      1500;           ///< largest Ethernet payload, bytes; a frame is at most this + 14 (+ 4 with VLAN)
  unsigned side = 0;  ///< of a link between processes: which of its ends this is; else 0
  /// Of a link between processes, without a network: so many may have one, and default addresses are derived
  /// from `side`. 0: a network.
  unsigned ends = 0;
  /// Each frame sent costs its sender a system call of some microseconds: what nobody waits for leaves last.
  bool kernel_sends = false;
};

/// Whether a link carries frames.
enum class LinkState : std::uint8_t {
  kDown,  ///< no cable, no peer
  kUp,
  kGone,  ///< the device has been taken away, for ever
};

/// What a port counted by itself. All monotonic.
struct PortCounters {
  std::uint64_t rx_frames = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t tx_frames = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_missed = 0;     ///< arrived, but had to be dropped for lack of buffers
  std::uint64_t rx_malformed = 0;  ///< the link's own framing was broken (hostile or dead peer)
  std::uint64_t tx_dropped =
      0;  ///< committed, but the link did not take them (peer gone, ring full at flush)
  std::uint64_t tx_no_room = 0;       ///< tx_claim() answered nullptr
  std::uint64_t peer_restarts = 0;    ///< the other end of a two-ended link was replaced by a new incarnation
  std::uint64_t faults_injected = 0;  ///< by a fault decorator, on purpose
  std::uint64_t capture_lost = 0;     ///< frames missing in the capture file, e.g. for want of disk space
};

struct PortCounterName {
  const char* name;
  std::uint64_t PortCounters::*value;
  const char* help;  ///< what has been counted, one clause
};

/// All of them, as users see them.
inline constexpr std::array kPortCounterNames{
    PortCounterName{"port_rx_frames", &PortCounters::rx_frames, "frames that the port got"},
    PortCounterName{"port_rx_bytes", &PortCounters::rx_bytes, "their bytes"},
    PortCounterName{"port_tx_frames", &PortCounters::tx_frames, "frames that the port sent"},
    PortCounterName{"port_tx_bytes", &PortCounters::tx_bytes, "their bytes"},
    PortCounterName{"port_rx_missed", &PortCounters::rx_missed, "frames lost for want of room at this end"},
    PortCounterName{"port_rx_malformed", &PortCounters::rx_malformed,
                    "frames that the port itself cannot read"},
    PortCounterName{"port_tx_dropped", &PortCounters::tx_dropped,
                    "frames that the port took and could not send"},
    PortCounterName{"port_tx_no_room", &PortCounters::tx_no_room,
                    "times that the port had no room for a frame"},
    PortCounterName{"port_peer_restarts", &PortCounters::peer_restarts,
                    "times that the other end of the link was replaced by a new one"},
    PortCounterName{"port_faults_injected", &PortCounters::faults_injected,
                    "faults made on purpose by --fault"},
    PortCounterName{"port_capture_lost", &PortCounters::capture_lost, "frames missing in the file of --pcap"},
};
static_assert(sizeof(PortCounters) == kPortCounterNames.size() * sizeof(std::uint64_t));

/// Where frames are written to, one at a time: a port, or what stands in for it.
///
/// Threads: one at a time, the loop that owns it.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  /// Lends room for one frame of exactly `len` bytes (from 14 up to PortInfo::link_mtu + 18), 4-byte aligned
  /// or better at the start.
  /// @return nullptr if there is none now (the caller keeps the packet and tries in a later iteration).
  [[nodiscard]] virtual std::byte* tx_claim(std::uint32_t len) noexcept = 0;
  /// Likewise, of frames of up to 640 bytes, for who writes the cache line in which the room begins last, and
  /// at best each line once and whole, from that one, with zeros before the frame, to that in which it ends.
  /// It begins with its line, or 4 bytes behind that. Only where lends_lines() says so.
  [[nodiscard]] virtual std::byte* tx_claim_lines(std::uint32_t len) noexcept { return tx_claim(len); }
  [[nodiscard]] bool lends_lines() const noexcept { return lends_lines_; }
  /// The frame last claimed is complete and may leave. A claim without commit is forgotten at the next claim.
  virtual void tx_commit() noexcept = 0;
  /// Fetches a part of what makes tx_claim(len), and the writing of its frame, take long: for who has other
  /// things to look at meanwhile. @return whether nothing was left
  [[nodiscard]] virtual bool prepare([[maybe_unused]] std::uint32_t len) noexcept { return true; }
  /// Whether the room that tx_claim() lends is written piece by piece as fast as in one long move: nobody
  /// else has its cache lines, or they come at once.
  [[nodiscard]] virtual bool takes_pieces() const noexcept { return false; }
  /// Whether the peer has taken all that was committed, as far as it concerns what is written elsewhere:
  /// false only if that might overtake it.
  [[nodiscard]] virtual bool is_drained() const noexcept { return true; }
  /// How far what was committed goes, for has_taken().
  [[nodiscard]] virtual std::uint64_t place() const noexcept { return 0; }
  /// Likewise as is_drained(), of all that had been committed when place() said so.
  [[nodiscard]] virtual bool has_taken([[maybe_unused]] std::uint64_t place) const noexcept { return true; }

 protected:
  /// @param lends_lines  tx_claim_lines() works
  explicit FrameSink(bool lends_lines = false) noexcept : lends_lines_(lends_lines) {}

 private:
  bool lends_lines_;
};

/// One rx queue and one tx queue of a link.
///
/// Threads: one thread at a time (the loop that owns it), except counters() and info(), which any thread may
/// call, and arm_rx_beside(). Lifetime: frames shown by rx_burst() stay valid until rx_release(). Nothing
/// below allocates, throws or logs after construction. A peer's death is never an error here: frames are
/// dropped and counted until it is back.
class Port : public FrameSink {
 public:
  using FrameSink::FrameSink;

  [[nodiscard]] virtual const PortInfo& info() const noexcept = 0;

  /// Shows up to frames.size() (at most kBurst) received frames, not always all that have come: see
  /// shows_more().
  /// @return how many. rx_release() must be called before the next rx_burst() if it was not 0.
  virtual unsigned rx_burst(std::span<RxFrame> frames) noexcept = 0;
  /// Gives all shown frames back.
  virtual void rx_release() noexcept = 0;
  /// The next burst probably shows more of what the last one, which had less than it could, has shown some
  /// of; or, while it spares others, none.
  [[nodiscard]] virtual bool shows_more() const noexcept { return false; }
  /// A burst may look at some of many peers only: all have been looked at after so many in a row. At least 1.
  [[nodiscard]] virtual unsigned bursts_to_see_all() const noexcept { return 1; }
  /// The frame that the next burst shows first, behind a long one with which the last burst ended; empty: it
  /// is not known, or not there. Stays valid until it has been shown and rx_release() called.
  [[nodiscard]] virtual std::span<const std::byte> next_frame() const noexcept { return {}; }
  /// From now on the cache lines of what the next burst will show are not fetched by rx_burst(), but set in
  /// `ahead` for the caller to fetch while it works on this one. A port that fetches none lets it be.
  /// Lifetime: of `ahead`, until the next call; nullptr: as before.
  virtual void leave_fetching_to(FetchAhead* ahead) noexcept { static_cast<void>(ahead); }
  /// From now on a peer that sleeps is not woken by tx_flush(), but soon by the caller, who finds it in
  /// `bell`; of several, the last one. A port that wakes nobody lets it be. Lifetime: likewise.
  virtual void leave_ringing_to(DueBell* bell) noexcept { static_cast<void>(bell); }

  /// Where frames of bulk transfers go: what is written to the port itself does not wait for them, and may
  /// overtake them. A port that has one queue only: itself.
  [[nodiscard]] virtual FrameSink& bulk_sink() noexcept { return *this; }
  /// Whether that is another than the port itself, of it or of the ways to its peers.
  [[nodiscard]] virtual bool has_lanes() const noexcept { return false; }
  /// Where frames to that address are best written: what goes there and what goes elsewhere do not wait for
  /// each other. The port itself flushes, receives and counts. Lifetime: the port's.
  [[nodiscard]] virtual Port& way_to(const MacAddress&) noexcept { return *this; }
  /// Whether that may be another than the port itself.
  [[nodiscard]] virtual bool has_ways() const noexcept { return false; }

  /// From now on, or no longer, bulk that comes may wait for as many bursts as it needs to be handled in less
  /// time, since others would otherwise wait for that.
  virtual void spare_others(bool) noexcept {}

  /// Everything committed must leave now: the doorbell, once per loop iteration.
  virtual void tx_flush() noexcept = 0;

  /// A descriptor that becomes readable when frames arrive after arm_rx(); -1 if the port has none.
  [[nodiscard]] virtual int rx_fd() const noexcept { return -1; }
  /// Asks for one wake-up through rx_fd().
  /// @return false if frames are already waiting, to be seen or to be sent (do not sleep).
  virtual bool arm_rx() noexcept { return true; }
  /// Likewise, but beside the thread that runs the loop, and for frames that come from now on: those that
  /// wait are left to that thread. Control: one thread at a time with arm_rx(), disarm_rx() and keep_awake(),
  /// which need not be called from the loop then either.
  /// @return false: the port cannot
  virtual bool arm_rx_beside() noexcept { return false; }
  /// Ends waiting: clears rx_fd(). Those who send may take somewhat longer from now on, for the next arm_rx()
  /// to take less.
  virtual void disarm_rx() noexcept {}
  /// Frames wait to be sent by a later call: arm_rx() fails meanwhile, and nobody is woken for them.
  [[nodiscard]] virtual bool holds_back() const noexcept { return false; }
  /// It has been waited for the last time for now: those who send need not mind any longer.
  virtual void keep_awake() noexcept {}

  /// The group addresses whose frames must come in, all that are wanted; what else comes in does no harm.
  /// Control: one thread at a time, on the first port of a device and for all of them.
  virtual void listen(std::span<const MacAddress>) noexcept {}
  /// The addresses whose RoCE v2 frames without VLAN tag concern this device alone, all of them: where the
  /// port shares an interface with the kernel, that need not look at them. Control: likewise.
  virtual void keep_from_kernel(std::span<const Gid>) noexcept {}

  /// Called once by each thread that is going to poll this port, before it does.
  virtual void enter_thread() noexcept {}

  /// Looks at the link, and for known_counters() at what its device counts; may take a few system calls. A
  /// port that cannot know says kUp.
  [[nodiscard]] virtual LinkState link_state() noexcept { return LinkState::kUp; }

  [[nodiscard]] virtual PortCounters counters() const noexcept = 0;
  /// Likewise, but only what is known without asking the device or the system: for loops. What those count is
  /// as of the last link_state() or counters().
  [[nodiscard]] virtual PortCounters known_counters() const noexcept { return counters(); }
};

}  // namespace uroce::port
