/// Completion queue ring from the loop to the application.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/time.h"
#include "transport/late_completions.h"
#include "uroce/wc.h"

namespace uroce::transport {

/// What a CQ has room for, and what its QPs may need at once.
struct CqSize {
  std::uint32_t entries = 0;
  std::uint32_t demand = 0;
  std::uint32_t number = 0;  ///< Cq::number()
};

/// Ring of completion queue entries. Each entry carries its own sequence number, so that a consumer on
/// another core waits for one cache line only.
///
/// Threads: push() by the loop; poll() and is_empty() by one application thread; arm() by any; resize(),
/// moderate() and set_event_fd() while nobody else uses the ring, remove_if() while nobody calls more than
/// is_empty().
class CqRing {
 public:
  /// @param event_fd  eventfd that a wake-up writes; -1: none
  /// @param now       the loop's time; without it there are neither timestamps nor periods of moderation
  explicit CqRing(std::uint32_t entries, int event_fd = -1, const Ticks* now = nullptr,
                  bool timestamps = false)
      : event_fd_(event_fd),
        mask_(mask_of(entries)),
        slots_(std::make_unique<Cqe[]>(std::size_t{mask_} + 1)),
        now_(now),
        has_timestamps_(timestamps) {}

  /// Loop, like those that say so below.
  [[nodiscard]] int event_fd() const noexcept { return event_fd_; }
  /// @return whether there was a wake-up before, which nobody has been told of.
  [[nodiscard]] bool set_event_fd(int fd) noexcept {
    event_fd_ = fd;
    return std::exchange(was_silent_, false);
  }
  /// Before it is used.
  void set_number(std::uint32_t number) noexcept { number_ = number; }
  [[nodiscard]] std::uint32_t entries() const noexcept { return mask_ + 1; }

  /// Completions wait for room, and what completes now has to wait behind them.
  [[nodiscard]] bool is_behind() const noexcept { return late_ != nullptr; }
  [[nodiscard]] bool has_room() noexcept { return !is_behind() && has_free_place(); }
  /// @param solicited  also wakes an application that armed for solicited completions only
  /// @return false: there is no room; the caller puts it off, or fails the QP.
  [[nodiscard]] bool push(const Wc& wc, bool solicited) noexcept {
    if (!has_room()) return false;
    append(wc, solicited);
    return true;
  }
  /// Likewise. @pre has_room()
  void append(const Wc& wc, bool solicited) noexcept {
    Cqe& cqe = slots_[tail_ & mask_];
    cqe.store(wc);
    if (has_timestamps_) [[unlikely]]
      cqe.stamp(now_->ns());
    publish(cqe, solicited, wc.ok());
  }
  /// A completion of `qpn`, for which there was no room, comes when there is: that of a send if the CQ is as
  /// large as all sends need it, of a receive if that is as large as all need it.
  /// @return false: it is not, or as many receives wait as it has entries; or there is no memory.
  [[nodiscard]] bool put_off(LateCompletion one, Qpn qpn) noexcept;
  /// Of the loop: its list of CQs that are behind.
  CqRing* next_behind = nullptr;
  bool is_listed = false;  ///< there
  /// Takes in those for which there is room now.
  void catch_up() noexcept;
  /// A QP goes away, or is reset: its own are lost.
  void forget_late(Qpn qpn) noexcept;

  [[nodiscard]] std::size_t poll(std::span<Wc> out) noexcept {
    std::size_t count = 0;
    std::uint32_t head = head_.load(std::memory_order_relaxed);
    while (count < out.size()) {
      Cqe& cqe = slots_[head & mask_];
      if (cqe.sequence.load(std::memory_order_acquire) != head + 1) break;  // pairs with push()
      cqe.load(out[count++]);
      ++head;
    }
    if (count > 0) head_.store(head, std::memory_order_release);  // pairs with push()
    return count;
  }
  /// Whether there is more behind what poll() finds: catch_up() brings it.
  [[nodiscard]] bool shows_late() const noexcept {
    return shows_late_.load(std::memory_order_acquire);  // pairs with put_off()
  }
  [[nodiscard]] bool is_empty() const noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    // Another lap's, if remove_if() and a push() have come between the two loads: not empty.
    const std::uint32_t sequence = slots_[head & mask_].sequence.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(sequence - head) <= 0;
  }

  /// kLately: no longer, but may be again soon: push() passes a barrier for that, so that arm() need not make
  /// it.
  enum class Armed : std::uint8_t { kNo, kLately, kSolicited, kAny };

  /// Asks for one event. To ask for less takes back nothing. IBA 11.4.2.2.
  void arm(bool solicited_only) noexcept {
    const Armed wanted = solicited_only ? Armed::kSolicited : Armed::kAny;
    Armed before = armed_.load(std::memory_order_relaxed);
    while (before < wanted && !armed_.compare_exchange_weak(before, wanted, std::memory_order_seq_cst,
                                                            std::memory_order_relaxed))
      continue;
    if (before != Armed::kLately) return heavy_barrier();  // pairs with publish(), in whichever thread
    std::atomic_thread_fence(std::memory_order_seq_cst);   // pairs with on_armed()
  }
  /// Loop: whether there is a wake-up, or a new deadline().
  [[nodiscard]] bool has_news() const noexcept { return has_news_; }
  /// Loop: takes a pending wake-up, if one is due. The caller writes the event descriptor.
  [[nodiscard]] bool take_wake() noexcept {
    const bool wake = wake_;
    has_news_ = wake_ = false;
    was_silent_ = was_silent_ || (wake && event_fd_ < 0);
    return wake;
  }

  /// Events come once `count` completions wait for one, or the first of them has waited for `period_ns`;
  /// 0 and 0, or 1: at once. An error does not wait. Those that wait already do so as is said now.
  void moderate(std::uint32_t count, std::uint64_t period_ns) noexcept {
    moderation_count_ = count;
    moderation_period_ns_ = period_ns;
    is_moderated_ = count > 1 || (count == 0 && period_ns != 0);
    if (waiting_ == 0) return;
    if (!is_moderated_ || is_enough()) return report();
    wait_from_first();
  }
  [[nodiscard]] bool is_moderated() const noexcept { return is_moderated_; }
  /// Loop: when completions have waited long enough for their event; unset: none do.
  [[nodiscard]] Ticks deadline() const noexcept { return deadline_; }
  void on_timer(Ticks now) noexcept {
    if (deadline_.is_set() && deadline_ <= now) report();
  }

  /// Takes on another size and keeps what is in it.
  /// @return false if that is more.
  [[nodiscard]] bool resize(std::uint32_t entries) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    const std::uint32_t mask = mask_of(entries);
    if (tail_ - head > mask + 1) return false;
    auto slots = std::make_unique<Cqe[]>(std::size_t{mask} + 1);
    for (std::uint32_t i = head; i != tail_; ++i) slots[i & mask].take(slots_[i & mask_], i + 1);
    // That of nothing, 0, is one of an entry, too.
    for (std::uint32_t i = tail_; i != head + mask + 1; ++i)
      slots[i & mask].sequence.store(i, std::memory_order_relaxed);
    slots_ = std::move(slots);
    mask_ = mask;
    cached_head_ = head;
    return true;
  }

  /// Takes out those of which `is_gone(qpn, index)` says so, and keeps the others in their order; so there is
  /// room for as many. is_empty() may be asked meanwhile: the places that are left are the last ones, and
  /// none of these looks empty at any time.
  template <typename IsGone>
  void remove_if(IsGone&& is_gone) noexcept {
    std::uint32_t kept = tail_;
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    for (std::uint32_t i = tail_; i != head; --i) {
      const Cqe& cqe = slots_[(i - 1) & mask_];
      if (!is_gone(cqe.qpn(), i - 1)) slots_[--kept & mask_].become(cqe);
    }
    head_.store(kept, std::memory_order_release);  // pairs with push()
    cached_head_ = kept;
  }

  /// Completions that may be outstanding at once: what entries() should be.
  void add_receive_demand(std::uint32_t completions) noexcept {
    receive_demand_.fetch_add(completions, std::memory_order_relaxed);
  }
  void remove_receive_demand(std::uint32_t completions) noexcept {
    receive_demand_.fetch_sub(completions, std::memory_order_relaxed);
  }
  void add_send_demand(std::uint32_t completions) noexcept {
    send_demand_.fetch_add(completions, std::memory_order_relaxed);
  }
  void remove_send_demand(std::uint32_t completions) noexcept {
    send_demand_.fetch_sub(completions, std::memory_order_relaxed);
  }
  [[nodiscard]] CqSize size() const noexcept {
    return {entries(), send_demand() + receive_demand_.load(std::memory_order_relaxed), number_};
  }
  /// Index one past the newest entry: entries before it existed when it was read. Loop or quiescent caller.
  [[nodiscard]] std::uint32_t tail() const noexcept { return tail_; }
  [[nodiscard]] std::uint32_t head() const noexcept { return head_.load(std::memory_order_relaxed); }

 private:
  /// A Wc, as words that are put together in registers and stored and loaded one by one: whoever loads what
  /// has just been stored in smaller pieces waits until all stores before have left the processor, packets
  /// into a link among them. Measured: 64 B SENDs in lists of 16, 14.4 -> 16.1 million/s.
  class Cqe {
   public:
    void store(const Wc& wc) noexcept {
      words_ = {wc.wr_id, wc.timestamp_ns, pair(wc.byte_len, wc.imm_data), pair(raw(wc.qpn), raw(wc.src_qpn)),
                pair(four(raw(wc.status), raw(wc.opcode), wc.flags, wc.vendor_err),
                     four(wc.sl, raw(wc.network), wc.vlan & 0xffU, wc.vlan >> 8U))};
    }
    void stamp(std::uint64_t ns) noexcept { words_[1] = ns; }
    void load(Wc& wc) const noexcept {
      void* const to = &wc;
#pragma GCC unroll 8
      for (std::size_t i = 0; i < words_.size(); ++i) {
        std::uint64_t word = words_[i];
        asm("" : "+r"(word));  // nor may the compiler join two
        std::memcpy(static_cast<std::uint64_t*>(to) + i, &word, sizeof word);
      }
    }
    void take(const Cqe& other, std::uint32_t index) noexcept {
      become(other);
      sequence.store(index, std::memory_order_relaxed);
    }
    /// In its own place.
    void become(const Cqe& other) noexcept {
      words_ = other.words_;
    }
    [[nodiscard]] Qpn qpn() const noexcept {
      return Qpn{static_cast<std::uint32_t>(words_[3])};
    }

   private:
    static constexpr std::uint64_t pair(std::uint64_t low, std::uint64_t high) noexcept {
      return low | high << 32;
    }
    static constexpr std::uint32_t four(unsigned a, unsigned b, unsigned c, unsigned d) noexcept {
      return a | b << 8U | c << 16U | d << 24U;
    }
    static_assert(std::endian::native == std::endian::little && sizeof(Wc) == 40 &&
                  offsetof(Wc, timestamp_ns) == 8 && offsetof(Wc, byte_len) == 16 &&
                  offsetof(Wc, imm_data) == 20 && offsetof(Wc, qpn) == 24 && offsetof(Wc, src_qpn) == 28 &&
                  offsetof(Wc, status) == 32 && offsetof(Wc, opcode) == 33 && offsetof(Wc, flags) == 34 &&
                  offsetof(Wc, vendor_err) == 35 && offsetof(Wc, sl) == 36 && offsetof(Wc, network) == 37 &&
                  offsetof(Wc, vlan) == 38);

    std::array<std::uint64_t, sizeof(Wc) / 8> words_;

   public:
    std::atomic<std::uint32_t> sequence{0};  // index + 1 of the entry that is in the slot
  };
  static_assert(sizeof(Cqe) == 48 && std::is_trivially_copyable_v<Wc>);

  void publish(Cqe& cqe, bool solicited, bool ok) noexcept {
    cqe.sequence.store(++tail_, std::memory_order_release);  // pairs with poll()
    light_barrier();  // pairs with arm(): either its caller sees the entry or this the arming
    if (armed_.load(std::memory_order_relaxed) != Armed::kNo) on_armed(solicited, !ok);
  }
  [[nodiscard]] std::uint32_t send_demand() const noexcept {
    return send_demand_.load(std::memory_order_relaxed);
  }
  /// @pre there is room
  void take_in(const LateCompletion& one) noexcept;
  void end_if_none_is_late() noexcept;

  [[nodiscard]] bool has_free_place() noexcept {
    if (tail_ - cached_head_ <= mask_) [[likely]]
      return true;
    cached_head_ = head_.load(std::memory_order_acquire);  // pairs with poll()
    return tail_ - cached_head_ <= mask_;
  }

  [[nodiscard]] static std::uint32_t mask_of(std::uint32_t entries) noexcept {
    return std::bit_ceil(entries < 2 ? 2U : entries) - 1;
  }

  void on_armed(bool solicited, bool failed) noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with arm()
    const Armed armed = armed_.load(std::memory_order_relaxed);
    if (armed == Armed::kLately) return forget_arming();
    if (armed == Armed::kSolicited && !solicited && !failed) return;
    unarmed_ = 0;
    if (is_moderated_ && !failed && !is_enough_with_one_more()) return;
    report();
  }
  /// One more completion waits for its event. @return whether they wait no longer.
  bool is_enough_with_one_more() noexcept {
    ++waiting_;
    if (is_enough()) return true;
    if (waiting_ > 1 || now_ == nullptr) return false;
    waiting_since_ = *now_;
    wait_from_first();
    return false;
  }
  [[nodiscard]] bool is_enough() const noexcept {
    return moderation_count_ != 0 && waiting_ >= moderation_count_;
  }
  void wait_from_first() noexcept {
    deadline_ = moderation_period_ns_ == 0 ? Ticks{} : waiting_since_ + moderation_period_ns_;
    has_news_ = has_news_ || deadline_.is_set();
  }
  /// After so many completions that nobody has armed for, it is as if nobody ever had.
  void forget_arming() noexcept {
    constexpr std::uint32_t kMany = 4096;
    if (++unarmed_ < kMany) return;
    unarmed_ = 0;
    Armed lately = Armed::kLately;
    armed_.compare_exchange_strong(lately, Armed::kNo, std::memory_order_relaxed);
  }
  void report() noexcept {
    armed_.store(Armed::kLately, std::memory_order_relaxed);
    waiting_ = 0;
    deadline_ = Ticks{};
    has_news_ = wake_ = true;
  }

  int event_fd_;
  std::uint32_t mask_;
  std::unique_ptr<Cqe[]> slots_;
  const Ticks* now_;
  bool has_timestamps_;
  bool is_moderated_ = false;
  std::uint32_t moderation_count_ = 0;
  std::uint64_t moderation_period_ns_ = 0;
  std::atomic<std::uint32_t> send_demand_{0};
  std::atomic<std::uint32_t> receive_demand_{0};
  std::uint32_t number_ = 0;
  alignas(64) std::uint32_t tail_ = 0;  // loop's line
  std::uint32_t cached_head_ = 0;
  bool has_news_ = false;
  bool wake_ = false;
  bool was_silent_ = false;  // there was one without a descriptor to write
  std::atomic<Armed> armed_{Armed::kNo};
  std::uint32_t waiting_ = 0;                       // completions for their event
  std::uint32_t unarmed_ = 0;                       // in a row, with Armed::kLately
  Ticks waiting_since_;                             // the first of them
  Ticks deadline_;                                  // of that event
  std::unique_ptr<LateCompletions> late_;           // nullptr: none
  alignas(64) std::atomic<std::uint32_t> head_{0};  // application's line
  std::atomic<bool> shows_late_{false};             // late_ is not empty
};

}  // namespace uroce::transport
