/// Send and receive queues: rings of work queue elements from the application to the loop.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/prefetch.h"
#include "mem/blocks.h"
#include "uroce/qp_attr.h"
#include "uroce/wr.h"

namespace uroce::transport {

/// The longest message, bytes. IBA 9.4.3 ?
inline constexpr std::uint32_t kMaxMessage = 1U << 31;

/// A posted send. The SGE list, or the inline data, follows it in the slot.
struct SendWqe {
  std::uint64_t wr_id;
  std::uint64_t remote_addr;
  std::uint64_t compare_add;
  std::uint64_t swap;
  std::uint32_t length;  // bytes of the message; FLUSH: of the range
  std::uint32_t
      imm_or_rkey;  // immediate data, the key to invalidate, a FLUSH's placement and scope, a bind's lkey
  std::uint32_t rkey;
  WrOpcode opcode;
  std::uint8_t flags;
  std::uint8_t num_sge;
  std::uint8_t malformed;  // found wrong while posting: completes with LOC_LEN_ERR / LOC_QP_OP_ERR

  // What a datagram needs has the place of what it has no use for.
  [[nodiscard]] AhId ah() const noexcept { return AhId{remote_addr}; }
  [[nodiscard]] Qpn remote_qpn() const noexcept { return Qpn{static_cast<std::uint32_t>(compare_add)}; }
  [[nodiscard]] std::uint32_t remote_qkey() const noexcept { return static_cast<std::uint32_t>(swap); }

  /// XRC likewise: atomics need all but the place of the immediate.
  [[nodiscard]] std::uint32_t remote_srq() const noexcept {
    return is_atomic() ? imm_or_rkey : static_cast<std::uint32_t>(compare_add);
  }

  // Likewise for a bind, whose window's new key is `rkey`.
  [[nodiscard]] MwBind bind() const noexcept {
    return {.mr = Lkey{imm_or_rkey},
            .addr = remote_addr,
            .length = compare_add,
            .access = static_cast<std::uint32_t>(swap)};
  }

  [[nodiscard]] bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
  /// SEND or RDMA WRITE, with or without immediate.
  [[nodiscard]] bool is_plain() const noexcept { return raw(opcode) <= raw(WrOpcode::kSendWithImm); }
  [[nodiscard]] bool is_read() const noexcept { return opcode == WrOpcode::kRdmaRead; }
  [[nodiscard]] bool is_atomic() const noexcept {
    constexpr std::uint32_t kAtomic =
        1U << raw(WrOpcode::kAtomicCmpAndSwp) | 1U << raw(WrOpcode::kAtomicFetchAndAdd) | kMasked;
    return raw(opcode) < 32 && (kAtomic >> raw(opcode) & 1) != 0;
  }
  [[nodiscard]] bool is_masked() const noexcept {
    return opcode == WrOpcode::kMaskedCmpAndSwp || opcode == WrOpcode::kMaskedFetchAndAdd;
  }
  [[nodiscard]] bool is_swap() const noexcept {
    return opcode == WrOpcode::kAtomicCmpAndSwp || opcode == WrOpcode::kMaskedCmpAndSwp;
  }
  /// Whether the peer hears nothing of it: a bind or a local invalidate.
  [[nodiscard]] bool is_local() const noexcept {
    return opcode == WrOpcode::kLocalInv || opcode == WrOpcode::kBindMw;
  }
  /// Whether a response of its own completes it: READ, atomics, FLUSH, ATOMIC WRITE. They count against
  /// max_rd_atomic.
  [[nodiscard]] bool is_answered() const noexcept {
    constexpr std::uint32_t kAnswered =
        1U << raw(WrOpcode::kRdmaRead) | 1U << raw(WrOpcode::kAtomicCmpAndSwp) |
        1U << raw(WrOpcode::kAtomicFetchAndAdd) | 1U << raw(WrOpcode::kFlush) |
        1U << raw(WrOpcode::kAtomicWrite) | kMasked;
    return !is_plain() && raw(opcode) < 32 && (kAnswered >> raw(opcode) & 1) != 0;
  }
  /// Whether the peer needs a receive for it: SENDs and WRITE with immediate.
  [[nodiscard]] bool takes_receive() const noexcept {
    constexpr std::uint32_t kTaking = 1U << raw(WrOpcode::kSend) | 1U << raw(WrOpcode::kSendWithImm) |
                                      1U << raw(WrOpcode::kSendWithInv) |
                                      1U << raw(WrOpcode::kRdmaWriteWithImm);
    return raw(opcode) < 32 && (kTaking >> raw(opcode) & 1) != 0;
  }
  [[nodiscard]] std::span<const Sge> sges() const noexcept {
    return {static_cast<const Sge*>(static_cast<const void*>(this + 1)), num_sge};
  }
  [[nodiscard]] const std::byte* inline_data() const noexcept {
    return static_cast<const std::byte*>(static_cast<const void*>(this + 1));
  }

 private:
  static constexpr std::uint32_t kMasked =
      1U << raw(WrOpcode::kMaskedCmpAndSwp) | 1U << raw(WrOpcode::kMaskedFetchAndAdd);
};
static_assert(raw(WrOpcode::kRdmaWrite) == 0 && raw(WrOpcode::kRdmaWriteWithImm) == 1 &&
                  raw(WrOpcode::kSend) == 2 && raw(WrOpcode::kSendWithImm) == 3,
              "is_plain()");
static_assert(sizeof(SendWqe) == 48 && sizeof(Sge) == 16, "one SGE and its WQE share a cache line");

/// A posted receive; its SGE list follows it in the slot.
struct RecvWqe {
  std::uint64_t wr_id;
  std::uint32_t num_sge;
  std::uint32_t length;  // sum of the SGE lengths, saturated

  [[nodiscard]] std::span<const Sge> sges() const noexcept {
    return {static_cast<const Sge*>(static_cast<const void*>(this + 1)), num_sge};
  }
};
static_assert(sizeof(RecvWqe) == 16);

/// Ring of variable-stride slots. Indices run freely; a slot is free again once the loop has retired it.
///
/// Of a send queue: where all are free and a quarter has been used, the next post begins at the first slot
/// again: thousands of QPs that take turns then write the same few lines, not all that they have, which no
/// cache holds. Measured: 10 000 QPs, lists of 16 WRITEs of 64 B, 10.5 -> 11.1 million/s.
///
/// The application has a cache line, and the loop an index in another one, so that both write as if they were
/// alone: each reads the other's when it has to. What is declared behind a ring may share the loop's line:
/// [[no_unique_address]].
///
/// Threads: free(), claim(), publish() by one application thread; the rest by the loop.
/// @tparam Posting  what else a post looks at
template <typename Wqe, typename Posting>
class WqeRing {
 public:
  /// @param depth  slots, rounded up to a power of two
  /// @param stride  bytes per slot, a multiple of 16
  WqeRing(std::uint32_t depth, std::uint32_t stride, Posting posting)
      : memory_(allocate(std::bit_ceil(depth) - 1, stride)),
        mask_(std::bit_ceil(depth) - 1),
        stride_(stride),
        posting_(std::move(posting)) {}
  WqeRing(const WqeRing&) = delete;
  WqeRing& operator=(const WqeRing&) = delete;
  ~WqeRing() { mem::give_block(memory_, bytes_of(mask_, stride_)); }

  [[nodiscard]] std::uint32_t depth() const noexcept { return mask_ + 1; }

  /// Application: the slot to fill next, or nullptr when full.
  [[nodiscard]] Wqe* claim(std::uint32_t ahead) noexcept {
    const std::uint32_t index = tail_.load(std::memory_order_relaxed) + ahead;
    if (ahead == 0 && begins_anew(index)) {
      cached_retired_ = index;
      origin_.store(index, std::memory_order_relaxed);
    }
    if (index - cached_retired_ > mask_) {
      cached_retired_ = retired_.load(std::memory_order_acquire);  // pairs with retire()
      if (index - cached_retired_ > mask_) return nullptr;
    }
    return slot(index);
  }
  /// Brings the slot to fill next into the cache.
  void prefetch() const noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    uroce::prefetch(slot_at(begins_anew(tail) ? 0 : place(tail)));
  }
  /// Application: makes the next `count` claimed slots visible.
  void publish(std::uint32_t count) noexcept {
    tail_.store(tail_.load(std::memory_order_relaxed) + count,
                std::memory_order_release);  // pairs with tail()
  }

  /// Application: the index that claim() calls `ahead`.
  [[nodiscard]] std::uint32_t index_of(std::uint32_t ahead) const noexcept {
    return tail_.load(std::memory_order_relaxed) + ahead;
  }

  /// Loop: one past the newest posted index.
  [[nodiscard]] std::uint32_t tail() const noexcept { return tail_.load(std::memory_order_acquire); }
  [[nodiscard]] Wqe& at(std::uint32_t index) noexcept { return *slot(index); }
  [[nodiscard]] const Wqe& at(std::uint32_t index) const noexcept { return *slot(index); }
  /// Loop: all slots before `index` are free again.
  void retire(std::uint32_t index) noexcept { retired_.store(index, std::memory_order_release); }

  /// Control, while the caller owns the loop: whether all before `index` are.
  [[nodiscard]] bool is_retired(std::uint32_t index) const noexcept {
    return static_cast<std::int32_t>(retired_.load(std::memory_order_relaxed) - index) >= 0;
  }

  /// Takes on another depth and keeps all that is posted, while nobody else uses the ring.
  /// @return false if more than that is posted.
  [[nodiscard]] bool resize(std::uint32_t depth) {
    const std::uint32_t first = retired_.load(std::memory_order_relaxed);
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint32_t mask = std::bit_ceil(depth) - 1;
    if (tail - first > mask + 1) return false;
    std::byte* const memory = allocate(mask, stride_);
    for (std::uint32_t i = first; i != tail; ++i)
      std::memcpy(memory + std::size_t{i & mask} * stride_, static_cast<const void*>(slot(i)), stride_);
    origin_.store(0, std::memory_order_relaxed);
    mem::give_block(memory_, bytes_of(mask_, stride_));
    memory_ = memory;
    mask_ = mask;
    cached_retired_ = first;
    return true;
  }

 protected:
  [[nodiscard]] Posting& posting() noexcept { return posting_; }
  [[nodiscard]] const Posting& posting() const noexcept { return posting_; }

 private:
  /// The place of an index.
  [[nodiscard]] std::uint32_t place(std::uint32_t index) const noexcept {
    if constexpr (!Posting::kBeginsAnew) return index & mask_;
    return (index - origin_.load(std::memory_order_relaxed)) & mask_;
  }
  [[nodiscard]] Wqe* slot_at(std::uint32_t place) const noexcept {
    return static_cast<Wqe*>(static_cast<void*>(memory_ + std::size_t{place} * stride_));
  }
  [[nodiscard]] Wqe* slot(std::uint32_t index) const noexcept { return slot_at(place(index)); }
  /// Whether what is posted next, at `tail`, goes into the first slot. The loop does not look at slots that
  /// it has retired, and learns of the new ones by tail().
  [[nodiscard]] bool begins_anew(std::uint32_t tail) const noexcept {
    if constexpr (!Posting::kBeginsAnew) return false;
    return place(tail) > mask_ / 4 &&
           retired_.load(std::memory_order_acquire) == tail;  // pairs with retire()
  }
  /// All zero.
  [[nodiscard]] static std::byte* allocate(std::uint32_t mask, std::uint32_t stride) {
    const std::size_t bytes = bytes_of(mask, stride);
    return static_cast<std::byte*>(std::memset(mem::take_block(bytes), 0, bytes));
  }
  static constexpr std::size_t bytes_of(std::uint32_t mask, std::uint32_t stride) noexcept {
    return (std::size_t{mask} + 1) * stride;
  }

  alignas(64) std::byte* memory_;  // application's line
  std::uint32_t mask_;
  std::uint32_t stride_;  // bytes
  std::atomic<std::uint32_t> tail_{0};
  std::uint32_t cached_retired_ = 0;
  std::atomic<std::uint32_t> origin_{0};  // index of what is in the first slot
  Posting posting_;
  alignas(64) std::atomic<std::uint32_t> retired_{0};  // loop's line
};

class QueuePair;

/// Which QP has its turn behind another one: engine/turn_order.h.
struct Successor {
  QueuePair* qp = nullptr;
  std::uint32_t as_of = 0;
};

struct SendPosting {
  static constexpr bool kBeginsAnew = true;
  std::uint32_t max_inline = 0;
  std::uint16_t max_sge = 0;
  std::uint8_t flags_of_all = 0;  ///< that every request has
  bool is_datagram : 1 = false;
  bool is_xrc : 1 = false;
  bool is_closed : 1 = false;                      ///< nothing can be posted
  std::unique_ptr<AtomicMasks[]> masks = nullptr;  ///< one per slot; nullptr: masked atomics cannot be sent
  Successor successor{};
};
static_assert(sizeof(SendPosting) <= 32, "the rest of the application's line");
struct RecvPosting {
  static constexpr bool kBeginsAnew = false;  // it is hardly ever empty
  std::uint32_t max_sge = 0;
};

/// What a QP's send queue holds, and how a SendWr gets into it.
class SendQueue : public WqeRing<SendWqe, SendPosting> {
 public:
  /// @param flags_of_all  send_flag::kSignaled if every request is signaled
  SendQueue(std::uint32_t depth, std::uint32_t max_sge, std::uint32_t max_inline, QpType type = QpType::kRc,
            std::uint8_t flags_of_all = 0);

  /// Copies `wr` into the slot `ahead` of the tail; publish() makes it visible.
  /// @return false if the ring is full or `wr` exceeds the QP's capacities.
  [[nodiscard]] bool put(const SendWr& wr, std::uint32_t ahead) noexcept;
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return posting().max_inline; }

  /// Control, while nothing is posted: room for the masks of masked atomics. Without, they cannot be sent.
  void make_room_for_masks() {
    if (posting().masks == nullptr) posting().masks = std::make_unique<AtomicMasks[]>(depth());
  }
  /// Loop: of the masked atomic at `index`.
  [[nodiscard]] const AtomicMasks& masks(std::uint32_t index) const noexcept {
    return posting().masks[index & (depth() - 1)];
  }
  /// Of the loop.
  [[nodiscard]] Successor& successor() noexcept { return posting().successor; }
  [[nodiscard]] const Successor& successor() const noexcept { return posting().successor; }

 private:
  void put_masks(SendWqe& wqe, const AtomicMasks* masks, std::uint32_t index) noexcept;
};

class RecvQueue : public WqeRing<RecvWqe, RecvPosting> {
 public:
  RecvQueue(std::uint32_t depth, std::uint32_t max_sge);
  [[nodiscard]] bool put(const RecvWr& wr, std::uint32_t ahead) noexcept;
};

}  // namespace uroce::transport
