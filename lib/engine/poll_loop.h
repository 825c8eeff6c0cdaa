/// The poll loop: moves packets between one port queue and the QPs placed on it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/counters.h"
#include "base/fetch_ahead.h"
#include "base/mpsc_list.h"
#include "base/spsc_ring.h"
#include "base/timer_wheel.h"
#include "engine/addresses.h"
#include "engine/frame_ring.h"
#include "engine/group_listener.h"
#include "engine/groups.h"
#include "engine/known_packets.h"
#include "engine/local_port.h"
#include "engine/neighbours.h"
#include "engine/paths.h"
#include "engine/qp_table.h"
#include "engine/ready_list.h"
#include "engine/turn_order.h"
#include "engine/undated_posts.h"
#include "port/port.h"
#include "transport/joint_acks.h"
#include "transport/queue_pair.h"
#include "wire/icrc_ahead.h"

namespace uroce::engine {

/// How often the link of a port is looked at.
inline constexpr std::uint64_t kLinkLookNs = 100'000'000;
/// And how often a loop shows what it has counted.
inline constexpr std::uint64_t kShowNs = 100'000'000;

/// Bytes that a port may hold back behind full bursts, with 64 for each frame: behind those is no answer
/// that a timer which is due now should have waited for.
inline constexpr std::uint64_t kRxBacklog = 4U << 20U;
/// Each iteration that has but frames of the device itself counts as so many more: two QPs that always have
/// something for each other are to hold nobody up for long. An answer may have to wait until all that was
/// posted before has gone through a ring of 128 frames, 32 an iteration.
inline constexpr std::uint64_t kInnerTurn = kRxBacklog / 256;

/// Where a loop stands among the loops of its device.
struct LoopPlace {
  unsigned index = 0;
  unsigned count = 1;  ///< a power of two; the low bits of a QPN name its loop
};

/// An asynchronous event on its way to the application.
struct LoopEvent {
  AsyncEventType type{};
  Qpn qpn{};
  transport::Fault fault{};
  std::uint32_t srq = 0;
  transport::CqSize full_cq{};  ///< kCqErr
};

/// Whoever sleeps while a loop has nothing to do.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  /// The loop has got work from another thread: it must not sleep on. Any thread.
  virtual void wake() noexcept = 0;
  /// A peer that is due to be woken is woken now. In the loop.
  virtual void wake_peer() noexcept = 0;
};

class PollLoop;

/// Where others see what a loop has counted, and its QPs.
class Display {
 public:
  virtual ~Display() = default;
  /// The loop may have counted more since the last call. The thread that runs the loop, within an iteration.
  virtual void show(PollLoop& loop) noexcept = 0;
  /// The QP has come to its loop, or something has changed that others see of it; it goes. Whoever owns the
  /// loop.
  virtual void show(const transport::QueuePair& qp) noexcept = 0;
  virtual void hide(const transport::QueuePair& qp) noexcept = 0;
};

/// One loop. An iteration takes doorbells, transmits, receives and looks at the timers; what it receives is
/// answered in the next one, after the requests that the application posts meanwhile.
///
/// Threads: *loop* is whichever thread owns it at the moment (LoopRunner); ring() may be called by any. No
/// allocation, wait for a lock or clock call inside run_once().
class PollLoop {
 public:
  PollLoop(LoopPlace place, port::Port& port, const Addresses& addresses, std::uint64_t ask_interval_ns,
           std::uint64_t seed = 1);
  ~PollLoop();
  PollLoop(const PollLoop&) = delete;
  PollLoop& operator=(const PollLoop&) = delete;

  /// Makes the loops of a device known to one another, before the first iteration.
  static void connect(std::span<const std::unique_ptr<PollLoop>> loops);

  /// One iteration. @return packets and doorbells handled; 0 when there was nothing to do.
  unsigned run_once(Ticks now) noexcept;

  // Control commands; the caller owns the loop.
  void add(transport::QueuePair& qp) {
    qps_.insert(qp);
    keys_ = &qp.context().keys;
    qp.context().handles = &handles_;
    qp.lead(nowhere_);
    known_.forget_paths();
    show(qp);
  }
  /// Lets go of a QP: afterwards nothing in the loop refers to it.
  void remove(transport::QueuePair& qp, Ticks now) noexcept;
  Status modify(transport::QueuePair& qp, const QpAttr& attr, std::uint32_t mask,
                const transport::QpBounds& bounds, Ticks now);
  /// What has arrived by now is done with. Before a QP receives: that is meant for a former connection of it,
  /// perhaps with the same PSNs, and passes while the QP drops it.
  void let_pass_what_is_old(Ticks now) noexcept;
  [[nodiscard]] bool knows(Qpn qpn) const noexcept { return qps_.find(qpn) != nullptr; }

  /// The GID table has changed; no index means another GID than before. The first loop of a device throws
  /// bad_alloc, and nothing has changed then; the others do not.
  void set_addresses(Addresses addresses, Ticks now);
  /// The device goes: switches hear of it. There is no iteration after that.
  void leave_groups(Ticks now) noexcept;

  /// An address handle; its Ethernet address is asked for at once.
  void add_handle(AhId id, std::uint32_t pd, const AhAttr& attr, Ticks now);
  void remove_handle(AhId id) noexcept;
  [[nodiscard]] bool is_resolved(AhId id) noexcept {
    const transport::AddressHandle* handle = handles_.find(id);
    return handle != nullptr && handle->resolved;
  }

  /// CqRing::moderate() of a CQ of this loop.
  void moderate(transport::CqRing& cq, std::uint32_t count, std::uint64_t period_ns);
  /// Brings the completions for which CQs have room now.
  void take_late() noexcept;
  /// Before the CQ goes.
  void forget(transport::CqRing& cq) noexcept;
  /// SharedReceives::arm() of an SRQ of this loop.
  void arm_limit(transport::SharedReceives& shared, std::uint32_t limit) noexcept;

  /// A QP of loop `owner` is attached to a group, or no longer; `member` is that QP if it is one of this
  /// loop.
  void attach(const Gid& group, unsigned owner, transport::QueuePair* member, Ticks now);
  void detach(const Gid& group, unsigned owner, transport::QueuePair* member, Ticks now) noexcept;

  /// Work was posted to `qp` by the thread that owns the loop. With little in flight it leaves at once;
  /// otherwise with whatever else the next iteration sends, under one doorbell of the port.
  /// @param clock  whose now() is asked behind what leaves at once: to read a clock takes longer than a
  ///               message has time. Measured: 64 B round trip, shm 0.59 -> 0.56 us, memif 1.41 -> 1.36.
  ///               Nor is it asked for each of many posts: UndatedPosts.
  template <typename Clock>
  void post(transport::QueuePair& qp, const Clock& clock) noexcept {
    const bool is_dated = needs_time_first(qp);
    if (is_dated) [[unlikely]]
      advance_to(clock.now());
    const Posted posted = send_posted(qp);
    if (posted != Posted::kWaits) {
      if (!is_dated && !undated_.take(qp)) date_post(qp, clock.now());
      note_sent(qp);
    }
    const transport::QpContext& ctx = qp.context();
    // Credits that a post of receives has brought are an answer.
    if (posted == Posted::kAll && !ctx.credits.load(std::memory_order_relaxed)) return;
    if (!ctx.is_ready || ctx.only_answers) make_ready_if_it_wants(qp);
  }
  /// Work was posted to `qp` by a thread that does not own the loop.
  void ring(transport::QueuePair& qp) noexcept {
    if (!qp.doorbell.exchange(true, std::memory_order_acq_rel))
      doorbells_.push(&qp);  // pairs with take_doorbells()
  }

  /// Work was posted that no iteration has taken yet.
  [[nodiscard]] bool has_doorbells() const noexcept { return !doorbells_.looks_empty(); }
  /// Or is due so soon that it must not be slept over: a pause between two packets of a QP that is slowed
  /// down would be the longer one of both.
  [[nodiscard]] bool has_work() const noexcept { return has_own_work() || has_frames(); }
  /// Likewise, but for frames that have come, from the port or from within the device.
  [[nodiscard]] bool has_own_work() const noexcept {
    return !ready_.empty() || !inner_ready_.empty() || !bulk_ready_.empty() || owing_ != nullptr ||
           !joint_acks_.empty() || has_doorbells() || now_ < paced_until_;
  }
  /// When an iteration is due although nothing arrives; unset: never.
  [[nodiscard]] Ticks deadline(Ticks now) const noexcept;

  [[nodiscard]] port::Port& port() noexcept { return port_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] const Neighbours& neighbours() const noexcept { return neighbours_; }
  /// The time of the present iteration or command, for as long as the loop lives.
  [[nodiscard]] const Ticks& now() const noexcept { return now_; }
  [[nodiscard]] LoopPlace place() const noexcept { return place_; }
  /// Control: the next asynchronous event. event_fd is readable while there is one.
  [[nodiscard]] bool next_event(LoopEvent& event) noexcept;
  /// Control: whether QPs and SRQs have events for which there was no room; report_untold() makes
  /// next_event() tell them.
  [[nodiscard]] bool has_untold_events() const noexcept {
    return has_untold_.load(std::memory_order_acquire);  // pairs with report()
  }
  void report_untold() noexcept;
  void set_event_fd(int fd) noexcept { event_fd_ = fd; }
  /// Failures that are remembered; beyond that the oldest ones are.
  static constexpr std::uint32_t kFailures = 4096;
  /// From now on QPs that fail are also told to next_failure(), by their numbers; `fd` is readable then.
  void watch_failures(int fd) noexcept { failure_fd_ = fd; }
  /// Control, one thread.
  [[nodiscard]] bool next_failure(Qpn& qpn) noexcept;
  /// The QP with that number, if it is one of this loop.
  [[nodiscard]] transport::QueuePair* find(Qpn qpn) noexcept { return qps_.find(qpn); }
  /// QueuePair::keep_alive(), if there is such a QP and it is RC.
  void keep_alive(Qpn qpn, std::uint64_t silence_ns, Ticks now) noexcept;
  /// Looks at the port's link, and reports how it has changed. The first loop of a device does so by itself
  /// ten times a second.
  port::LinkState look_at_link(Ticks now) noexcept;
  /// Before the first iteration; outlives the iterations of all loops.
  void set_sleeper(Sleeper* sleeper) noexcept { sleeper_ = sleeper; }
  /// Likewise; ten times a second from then on, for as long as somebody runs the loop.
  void show_on(Display& display) noexcept {
    display_ = &display;
    next_show_ = Ticks{1};
  }

 private:
  static constexpr std::uint64_t kCrowdNs = 1'000'000;  // since others than bulk sent last
  static constexpr std::uint32_t kShortFrame = 1200;    // bytes
  /// Packets that a bulk transfer may send in its turn if it has others beside it: 4 KiB.
  [[nodiscard]] static constexpr unsigned crowded_turn(std::uint32_t mtu) noexcept {
    return std::max(1U, 4096 / mtu);
  }
  /// That it may have in flight then, where all of them stand before what others send: 16 KiB.
  [[nodiscard]] static constexpr unsigned crowded_window(std::uint32_t mtu) noexcept {
    return 4 * crowded_turn(mtu);
  }
  /// Whose QP that is, of the loops of a device.
  [[nodiscard]] unsigned owner_of(Qpn qpn) const noexcept { return raw(qpn) & (place_.count - 1); }

  /// The way to another loop.
  struct Outbox {
    FrameRing* ring = nullptr;
    PollLoop* loop = nullptr;
  };

  /// The others can correct afterwards what they did by the time of the last iteration or post.
  [[nodiscard]] static bool needs_time_first(const transport::QueuePair& qp) noexcept {
    return qp.context().type != QpType::kRc || qp.context().is_controlled;
  }
  /// What a post has led to: it waits for the next iteration, has left or was flushed, or has left with all
  /// that the QP wants to send.
  enum class Posted : std::uint8_t { kWaits, kLeft, kAll };
  Posted send_posted(transport::QueuePair& qp) noexcept;
  void note_sent(transport::QueuePair& qp) noexcept;
  void date_post(transport::QueuePair& qp, Ticks now) noexcept;
  /// The clock has been read.
  void advance_to(Ticks now) noexcept {
    if (!undated_.empty()) [[unlikely]]
      date_posts(now);
    undated_.close();
    now_ = now;
  }
  void date_posts(Ticks now) noexcept;
  void make_ready_if_it_wants(transport::QueuePair& qp) noexcept;
  void answer_now(Ticks now) noexcept;
  unsigned take_doorbells() noexcept;
  /// Fewer stay in the cache, and need not be fetched ahead.
  [[nodiscard]] bool has_many_qps() const noexcept { return qps_.size() > 256; }
  void foresee_posts(const transport::QueuePair& qp) noexcept;
  /// What goes to the bulk sink of a path does not hold up what goes to the other one.
  [[nodiscard]] bool has_lanes() const noexcept { return has_lanes_; }
  [[nodiscard]] bool is_crowded(const transport::QueuePair& bulk, Ticks now) const noexcept {
    return now < crowded_until_ && prompt_qp_ != &bulk;
  }
  [[nodiscard]] transport::TxContext turn(const transport::QueuePair& qp, Ticks now) const noexcept;
  /// It has sent something; if that was not bulk, bulk is not alone for a while.
  /// @param asks  not only answers
  void note_turn(const transport::QueuePair& qp, bool asks, Ticks now) noexcept;
  void note_come(const transport::QueuePair& qp, const wire::PacketView& packet, Ticks now) noexcept;
  void spare_others(bool yes) noexcept;
  bool take_turn(transport::QueuePair& qp, Ticks now, unsigned& work) noexcept;
  bool on_refusal(transport::QueuePair& qp, const transport::TxContext& tx, bool stays, bool more) noexcept;
  unsigned take_turns(ReadyList& ready, Ticks now) noexcept;
  unsigned transmit(Ticks now) noexcept;
  [[nodiscard]] transport::JointAcks* company_for(const transport::QpContext& ctx) noexcept;
  void send_joint_acks(Ticks now) noexcept;
  unsigned transmit_bulk(unsigned received, Ticks now) noexcept;
  unsigned receive(Ticks now) noexcept;
  unsigned on_tick(unsigned received, Ticks now) noexcept;
  unsigned look_everywhere(Ticks now) noexcept;
  void show(Ticks now) noexcept;
  void show(const transport::QueuePair& qp) noexcept {
    if (display_ != nullptr) display_->show(qp);
  }
  void expire_timers(unsigned received, Ticks now) noexcept;
  void give_back_frames() noexcept;
  void foresee_frames(unsigned count, bool has_many_regions) noexcept;
  /// Where a frame goes to.
  struct Destination {
    Qpn qpn{};
    bool is_response = false;
  };
  void foresee_qp(const Destination& of) const noexcept;
  /// Frames of the device's own QPs, and from its other loops.
  unsigned take_inner(Ticks now) noexcept {
    unsigned count = 0;
    if (own_frames_ != nullptr) count = take_frames(*own_frames_, now);
    if (!inbox_.empty()) count += receive_handed_over(now);
    return count;
  }
  unsigned receive_handed_over(Ticks now) noexcept;
  unsigned take_frames(FrameRing& ring, Ticks now) noexcept;
  [[nodiscard]] bool has_frames() const noexcept;
  void on_frame(std::span<const std::byte> frame, Ticks now) noexcept;
  [[nodiscard]] transport::QueuePair* find_again(Qpn qpn) noexcept;
  [[nodiscard]] transport::QueuePair* find_behind(transport::QueuePair* last, Qpn qpn) const noexcept;
  void on_known(transport::QueuePair& qp, const wire::PacketView& packet, Ticks now) noexcept;
  void on_roce(const wire::PacketView& packet, Ticks now) noexcept;
  [[nodiscard]] bool judge(transport::QueuePair& qp, const wire::PacketView& packet, Ticks now) noexcept;
  void on_joint_ack(const wire::PacketView& packet, Ticks now) noexcept;
  bool take_last_ack(transport::QueuePair& qp, const wire::AckEth& ack, Ticks now) noexcept;
  bool take_joint_ack(transport::QueuePair& qp, const wire::PacketView& ack, const transport::Path* judged,
                      Ticks now) noexcept;
  void share_joint_ack(const wire::PacketView& packet) noexcept;
  [[nodiscard]] bool is_intact(const wire::PacketView& packet) noexcept;
  void on_multicast(const wire::PacketView& packet, Ticks now) noexcept;
  template <typename Take>
  [[nodiscard]] bool deliver(transport::QueuePair& qp, const wire::PacketView& packet, Ticks now,
                             Take&& take) noexcept;
  bool tell_of_mark(transport::QueuePair& qp, Ticks now) noexcept;
  bool answer_first(transport::QueuePair& qp, Ticks now) noexcept;
  bool postpones_ack(transport::QueuePair& qp, std::uint32_t frame_len, Ticks now) noexcept;
  void look_at_postponed() noexcept;
  void count_refused(const wire::PacketView& packet, Count why) noexcept;
  void count_unknown(const wire::PacketView& packet) noexcept;
  void on_arp(std::span<const std::byte> frame, const wire::PacketView& view, Ticks now) noexcept;
  void on_group_message(std::span<const std::byte> frame, const wire::PacketView& view, bool is_v4,
                        Ticks now) noexcept;
  void on_icmp(const wire::PacketView& view, Ticks now) noexcept;
  void on_timer(transport::QueuePair& qp, Ticks now) noexcept;
  void on_neighbour(const Neighbours::Change& change, Ticks now) noexcept;
  void pass_on(std::span<const std::byte> frame) noexcept;
  void hand_over(unsigned to, std::span<const std::byte> frame) noexcept;
  /// Whether frames from own()[`sgid_index`] to `dgid` come back to the device.
  [[nodiscard]] bool is_own(const Gid& dgid, std::uint32_t sgid_index) const noexcept {
    return addresses_.is_own(dgid, addresses_.own()[sgid_index].vlan);
  }
  /// The port's address that a QP uses.
  [[nodiscard]] const Address& address_of(const transport::QueuePair& qp) const noexcept {
    const auto& own = addresses_.own();
    return own[std::min<std::size_t>(qp.context().path->to.sgid_index, own.size() - 1)];
  }
  [[nodiscard]] std::uint32_t longest_frame() const noexcept { return port_.info().link_mtu + 18; }
  void make_local();
  port::FrameSink& sink_to(const Gid& dgid, std::uint32_t sgid_index);
  void answer_last(transport::QueuePair& qp, Ticks now) noexcept;
  [[nodiscard]] transport::Path& path_to(const AhAttr& to, bool is_marked);
  void lead(transport::QueuePair& qp, transport::Path& path, Ticks now);
  void let_go_of_path(transport::QueuePair& qp) noexcept;
  [[nodiscard]] std::optional<MacAddress> mac_of(const Gid& dgid, std::uint32_t sgid_index,
                                                 transport::NextHop& held, Ticks now);
  void let_go(transport::NextHop& held) noexcept;
  void address(transport::QueuePair& qp, const MacAddress& mac) noexcept;
  void address(transport::AddressHandle& handle, const MacAddress& mac) noexcept;
  [[nodiscard]] wire::FrameTemplate frames_to(const AhAttr& attr, const MacAddress& mac,
                                              std::uint16_t udp_src_port = 0) const noexcept;
  void after_step(transport::QueuePair& qp, Ticks now) noexcept;
  void after_request(transport::QueuePair& qp, Ticks now) noexcept;
  [[nodiscard]] ReadyList& ready_list_of(const transport::QueuePair& qp) noexcept;
  void make_ready(transport::QueuePair& qp) noexcept;
  void make_ready_to_answer(transport::QueuePair& qp) noexcept;
  void arm(transport::QueuePair& qp, Ticks due) noexcept;
  /// Whether the wheel comes soon to one of many QPs, `armed`, that has nothing to do before `due` or at all.
  /// It would find them by way of each other, each out of the cache by then; the QP is in it now. Measured,
  /// 10 000 QPs with one WRITE of 64 B each in turns: 5.7 -> 7.0 million/s.
  [[nodiscard]] static constexpr bool comes_for_nothing(Ticks armed, Ticks due, Ticks now) noexcept {
    constexpr std::uint64_t kSoonNs = 1'000'000;
    return armed < now + kSoonNs && (!due.is_set() || due >= armed + kSoonNs);
  }
  void disarm(transport::QueuePair& qp, Ticks due) noexcept;
  /// The timer of a QP for its deadline. A later one than it is armed for is left to the wheel, which asks
  /// again when the earlier one comes up.
  void set_timer(transport::QueuePair& qp, Ticks due, Ticks now) noexcept {
    const Ticks armed = qp.context().TimerNode::due;
    if (due.is_set() && (!armed.is_set() || due < armed)) [[unlikely]] {
      arm(qp, due < now ? now : due);
    } else if (has_many_qps() && armed.is_set() && comes_for_nothing(armed, due, now)) {
      disarm(qp, due);
    }
  }
  void wake(transport::CqRing& cq) noexcept {
    if (cq.has_news()) [[unlikely]]
      take_news(cq);
  }
  void take_news(transport::CqRing& cq) noexcept;
  void wake_moderated(Ticks now) noexcept;
  void note_behind(transport::CqRing& cq) noexcept;
  /// What has happened to it since it was last asked.
  void report_events(transport::QueuePair& qp) noexcept {
    if (const std::uint32_t events = qp.take_events(); events != 0) [[unlikely]]
      report(qp, events);
  }
  void report(transport::QueuePair& qp, std::uint32_t events) noexcept;
  bool report(const LoopEvent& event) noexcept;
  void report_limit(transport::SharedReceives& shared, Qpn qpn = {}) noexcept;
  void report_or_count(const LoopEvent& event) noexcept;
  void note_untold() noexcept;

  LoopPlace place_;
  port::Port& port_;
  const bool has_lanes_;      // of the port
  const bool has_one_queue_;  // likewise: between processes, in the order in which it was sent
  const bool has_ways_;       // likewise: that it has no room means little to those who do not write to it
  const bool answers_first_;  // ACKs of signaling QPs leave before the application sees what has come
  Addresses addresses_;
  Counters counters_;
  Neighbours neighbours_;
  QpTable qps_;
  Groups groups_;
  std::unique_ptr<GroupListener> listener_;  // of the device: in its first loop only
  transport::AddressHandles handles_;
  Paths paths_;
  transport::Path nowhere_;  // of QPs that have no path yet, or none at all
  TimerWheel wheel_;
  MpscList doorbells_;
  std::array<port::RxFrame, port::kBurst> burst_{};       // a member, so that no iteration clears it
  std::array<Destination, port::kBurst> destinations_{};  // of these, if foreseen; unset: none
  FetchAhead ahead_;                                      // what the next burst is about
  wire::IcrcAhead icrc_ahead_;
  Ticks now_;
  Ticks moderation_due_;                       // when the next of these has an event to write, or earlier
  std::vector<transport::CqRing*> moderated_;  // CQs
  transport::CqRing* behind_ = nullptr;        // those that have late completions
  ReadyList ready_;
  ReadyList inner_ready_;            // those that do not send to the port: it may have no room for the others
  ReadyList bulk_ready_;             // those whose requests are bulk
  transport::JointAcks joint_acks_;  // empty behind take_turns(), unless the port had no room
  bool joins_acks_ = false;          // QPs have their turns now, and none were left of before
  TurnOrder order_;
  UndatedPosts undated_;                             // since now_
  Ticks crowded_until_;                              // bulk transfers do not have the loop to themselves
  const transport::QueuePair* prompt_qp_ = nullptr;  // because of this QP, or others besides
  Ticks paced_until_;                                // a QP that is slowed down may send before long
  Ticks asked_until_;                                // nor may they hold up what was sent last, no bulk
  const transport::QueuePair* bulk_qp_ = nullptr;    // of the last long frame
  Ticks came_until_;                                 // nor what came last
  bool spares_others_ = false;                       // the port knows
  unsigned bulk_waits_ = 0;                          // iterations in a row that had no bulk for it
  transport::QueuePair* owing_ = nullptr;            // an ACK, which waits for others of its kind
  unsigned postponed_ = 0;                           // for so many iterations
  std::uint64_t handled_ = 0;                        // bytes of frames, with 64 for each; kInnerTurn
  std::uint64_t behind_since_ = 0;                   // what that was when timers began to wait; 0: none do
  bool holds_frames_ = false;                        // the port has not got back what it showed
  bool answers_now_ = false;                         // what was received is answered in the same iteration
  bool was_handed_over_ = false;                     // the frame in hand came from another loop
  const mem::KeyTable* keys_ = nullptr;              // of the QPs, which are of one device
  transport::QueuePair* last_qp_ = nullptr;          // of the packet before: bursts mostly belong to one QP
  KnownPackets known_;

  std::vector<std::unique_ptr<FrameRing>> inbox_;  // from the other loops
  std::vector<Outbox> outbox_;                     // by receiving loop
  std::unique_ptr<FrameRing> own_frames_;          // to the device itself; made when first needed
  std::unique_ptr<LocalPort> local_;               // writes them
  std::unique_ptr<GroupPort> to_groups_;           // likewise, and to the port
  Sleeper* sleeper_ = nullptr;
  SpscRing<LoopEvent> events_{1024};
  std::atomic<bool> has_untold_{false};  // QPs and SRQs have events that it had no room for
  int event_fd_ = -1;
  SpscRing<Qpn> failures_{kFailures};
  int failure_fd_ = -1;  // -1: nobody wants to know
  port::LinkState link_state_;
  Ticks next_link_look_;  // unset: another loop does
  Display* display_ = nullptr;
  Ticks next_show_;  // unset: there is no display
};

}  // namespace uroce::engine
