/// The objects that programs hold: each begins with the struct that verbs declare, and has the C++ object.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "abi/ibverbs/lock.h"
#include "abi/ibverbs/verbs.h"
#include "uroce/ah.h"
#include "uroce/cq.h"
#include "uroce/mr.h"
#include "uroce/mw.h"
#include "uroce/pd.h"
#include "uroce/qp.h"
#include "uroce/srq.h"
#include "uroce/xrcd.h"

namespace uroce::abi {

/// How many others need an object.
using Users = std::atomic<std::uint32_t>;

/// Counts itself among the users of an object while it lives.
class Use {
 public:
  Use() noexcept = default;
  explicit Use(Users& of) noexcept : of_(&of) { of.fetch_add(1, std::memory_order_relaxed); }
  Use(Use&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(of_, other.of_);
    return *this;
  }
  ~Use() {
    if (of_ != nullptr) of_->fetch_sub(1, std::memory_order_release);
  }

 private:
  Users* of_ = nullptr;
};

/// Base structs of one context have it in common that they begin with it.
template <typename Object, typename Base>
[[nodiscard]] Object& cast(Base* base) noexcept {
  return static_cast<Object&>(*base);
}

struct ThreadDomain : ibv_td {
  Users users{0};
};

/// A protection domain, or a parent domain: one of another's with a thread domain.
struct ProtectionDomain : ibv_pd {
  std::optional<Pd> own;
  ProtectionDomain* parent = nullptr;  // of a parent domain
  Use of_parent;
  Use of_thread_domain;
  bool is_single_threaded = false;
  Users users{0};

  [[nodiscard]] Pd& pd() noexcept { return parent != nullptr ? parent->pd() : *own; }
};

struct Region : ibv_mr {
  Use of_pd;
  std::optional<Mr> mr;
  bool is_written = false;
};

struct Window : ibv_mw {
  Use of_pd;
  std::optional<Mw> mw;
};

struct AddressHandle : ibv_ah {
  Use of_pd;
  std::optional<Ah> ah;
};

/// What one context calls a domain, which others may have open, too.
struct XrcDomain : ibv_xrcd {
  std::shared_ptr<Xrcd> xrcd;
  Users users{0};
};

struct CompletionQueue;

/// A descriptor over those of its CQs: readable while any of them has an event.
struct Channel : ibv_comp_channel {
  std::mutex events;
  std::unordered_set<CompletionQueue*> cqs;
  /// Events in a row that were there already when they were asked for: who takes them may have slept
  /// elsewhere, in poll(2) or the like, and after so many has.
  static constexpr unsigned kElsewhere = 8;
  std::atomic<unsigned> found_at_once{kElsewhere};
  std::atomic<unsigned> sleepers{0};  ///< threads that sleep in ibv_get_cq_event()
  std::atomic<unsigned> watchers{0};  ///< those of them that may do so in the place of the loop's helper
  /// Whether those who arm sleep in ibv_get_cq_event(), which lingers first.
  [[nodiscard]] bool is_slept_on() const noexcept {
    return found_at_once.load(std::memory_order_relaxed) < kElsewhere;
  }
  /// Whether the thread that arms is one of them: the others sleep already.
  [[nodiscard]] bool will_be_slept_on() const noexcept {
    return is_slept_on() && sleepers.load(std::memory_order_relaxed) == 0;
  }
};

struct CompletionQueue : ibv_cq_ex {
  explicit CompletionQueue(bool is_shared) noexcept : polling(is_shared) {}

  std::optional<Cq> cq;
  Lock polling;
  Wc current;                           // extended polling: the completion that is looked at
  std::array<Wc, 16> batch;             // ordinary polling
  std::uint64_t wallclock_offset = 0;   // from a timestamp to nanoseconds since 1970
  std::uint32_t comp_events_taken = 0;  // under `mutex`, like those of the base
  std::uint32_t async_events_taken = 0;
  Users users{0};

  [[nodiscard]] ibv_cq* base() noexcept { return ibv_cq_ex_to_cq(this); }
};

[[nodiscard]] inline CompletionQueue& cq_of(ibv_cq* cq) noexcept {
  return static_cast<CompletionQueue&>(*reinterpret_cast<ibv_cq_ex*>(cq));
}

/// Receives that are on their way from a list of the program into a queue of the engine.
using RecvBatch = std::array<RecvWr, 16>;

struct SharedQueue : ibv_srq {
  explicit SharedQueue(bool is_shared) noexcept : posting(is_shared) {}

  Use of_pd;
  Use of_xrcd;
  Use of_cq;
  std::optional<Srq> srq;
  Lock posting;
  RecvBatch batch;
  std::uint32_t events_taken = 0;
  Users users{0};
};

/// Sends that wait for ibv_wr_complete().
struct StagedSends {
  /// What becomes part of a request once its place is known: the lists grow, and move.
  struct Rest {
    std::size_t first_sge = 0;
    std::size_t sges = 0;
    MwBind bind;
  };
  struct NewKey {
    ibv_mw* mw = nullptr;
    std::uint32_t rkey = 0;
  };
  std::vector<SendWr> wrs;
  std::vector<Rest> rests;  // of `wrs`
  std::vector<Sge> sges;    // that of inline data has its place in `inline_data` for an address
  std::vector<std::byte> inline_data;
  std::vector<NewKey> new_keys;  // that windows have once all is posted
  int error = 0;

  void clear() noexcept {
    wrs.clear();
    rests.clear();
    sges.clear();
    inline_data.clear();
    new_keys.clear();
    error = 0;
  }
};

struct QueuePair : ibv_qp_ex {
  explicit QueuePair(bool is_shared) noexcept : sending(is_shared), receiving(is_shared) {}

  Use of_pd;
  Use of_send_cq;
  Use of_recv_cq;
  Use of_srq;
  Use of_xrcd;
  std::optional<Qp> qp;
  Lock sending;
  Lock receiving;
  std::array<SendWr, 16> sends;
  std::array<MwBind, 16> binds;  // of `sends`
  RecvBatch receives;
  StagedSends staged;
  bool is_extended = false;  // made for ibv_wr_*
  ibv_qp_init_attr init{};   // capacities as granted
  std::uint32_t events_taken = 0;
};

[[nodiscard]] inline QueuePair& qp_of(ibv_qp* qp) noexcept {
  return static_cast<QueuePair&>(*reinterpret_cast<ibv_qp_ex*>(qp));
}
[[nodiscard]] inline QueuePair& qp_of(ibv_qp_ex* qp) noexcept {
  return static_cast<QueuePair&>(*qp);
}

/// The same numbers under another type.
[[nodiscard]] inline std::span<const Sge> sges_of(const ibv_sge* list, int count) noexcept {
  static_assert(sizeof(Sge) == sizeof(ibv_sge) && offsetof(Sge, length) == offsetof(ibv_sge, length) &&
                offsetof(Sge, lkey) == offsetof(ibv_sge, lkey));
  return {reinterpret_cast<const Sge*>(list), static_cast<std::size_t>(count)};
}

/// What a window can give to peers. Programs also name local rights, which mean nothing there.
inline constexpr std::uint32_t kWindowRights = access::kRemoteWrite | access::kRemoteRead |
                                               access::kRemoteAtomic | access::kFlushGlobal |
                                               access::kFlushPersistent | access::kZeroBased;

/// What a program wants a window to give.
[[nodiscard]] inline MwBind bind_of(const ibv_mw_bind_info& info) noexcept {
  return {.mr = Lkey{info.mr == nullptr ? 0 : info.mr->lkey},
          .addr = info.addr,
          .length = info.length,
          .access = info.mw_access_flags & kWindowRights};
}

/// Whether a program has filled in that part of an extended struct.
template <typename Attr>
[[nodiscard]] bool has(const Attr& attr, std::uint32_t bit) noexcept {
  return (attr.comp_mask & bit) != 0;
}

/// What a program says about mutual exclusion of the objects that it makes in a protection domain.
[[nodiscard]] inline bool is_shared(const ibv_pd* pd) noexcept {
  return pd == nullptr || !static_cast<const ProtectionDomain*>(pd)->is_single_threaded;
}

/// Makes mutex and condition of an object that events name.
template <typename Object>
void init_events(Object& object) noexcept {
  pthread_mutex_init(&object.mutex, nullptr);
  pthread_cond_init(&object.cond, nullptr);
}
template <typename Object>
void end_events(Object& object) noexcept {
  pthread_cond_destroy(&object.cond);
  pthread_mutex_destroy(&object.mutex);
}

/// Waits until the program has acknowledged what it was told.
template <typename Object>
void await_acks(Object& object, const std::uint32_t& completed, const std::uint32_t& taken) noexcept {
  pthread_mutex_lock(&object.mutex);
  while (completed != taken) pthread_cond_wait(&object.cond, &object.mutex);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace uroce::abi
