/// The objects of one side of the API fuzzer, each with what the model knows of it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "uroce/mr.h"
#include "uroce/mw.h"
#include "uroce/qp.h"

namespace uroce::api {

/// The public API did not do what its headers say.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void expect(bool kept, const char* promise) {
  if (!kept) throw Broken(promise);
}
/// An error is of one of the kinds wanted, and says in words what is wrong.
void expect_error(const Error& error, std::initializer_list<Errc> kinds, const char* call);

/// Memory whose every byte that nobody may write is known.
///
/// Slots for regions with guards between them. Bytes outside of writable regions keep their pattern.
class Arena {
 public:
  static constexpr std::size_t kSlots = 12;
  static constexpr std::size_t kSlotBytes = 4096;
  static constexpr std::size_t kGuardBytes = 256;

  Arena();
  [[nodiscard]] std::span<std::byte> slot(std::size_t index) noexcept {
    return std::span(bytes_).subspan(index * (kSlotBytes + kGuardBytes) + kGuardBytes, kSlotBytes);
  }
  /// `writable` may change from now on, until restored.
  void open(std::span<std::byte> writable);
  void restore(std::span<std::byte> writable);
  /// Every byte outside of open ranges is as it was.
  void check() const;
  /// A byte at random, perhaps in a guard.
  [[nodiscard]] std::uint64_t address(Random& random) noexcept;
  /// Readable memory of `bytes`, for inline data.
  [[nodiscard]] std::uint64_t readable(std::size_t bytes, Random& random) noexcept;

 private:
  struct Range {
    std::size_t begin, end;
  };
  [[nodiscard]] Range range(std::span<std::byte> of) const noexcept;

  std::vector<std::byte> bytes_;
  std::vector<std::byte> pattern_;
  std::vector<Range> open_;  // ascending
};

struct PdObject {
  Pd pd;
  unsigned users = 0;
};

struct MrObject {
  MrObject(Mr region, PdObject& of, std::size_t in_slot) : mr(std::move(region)), pd(of), slot(in_slot) {}
  Mr mr;
  PdObject& pd;
  std::size_t slot;  // of the arena; kSlots: memory of its own
  std::uint32_t access = 0;
  bool had_windows = false;  // a bind was posted
};

struct MwObject {
  MwObject(Mw made, PdObject& of) : mw(std::move(made)), pd(of), key(mw.rkey()) {}
  Mw mw;
  PdObject& pd;
  Rkey key;                      // of the newest bind that was posted
  MwBind bound;                  // likewise
  const MrObject* mr = nullptr;  // likewise; only its address is used
};

struct CqObject {
  CqObject(Cq queue, const CqAttr& attr)
      : cq(std::move(queue)), entries(attr.entries), has_timestamps(attr.timestamps) {}
  Cq cq;
  std::uint32_t entries;
  bool has_timestamps;
  bool is_moderated = false;
  unsigned users = 0;
  std::uint32_t outstanding = 0;  // completions that may be in it or come into it
  std::uint32_t ghosts = 0;       // likewise, of QPs that are gone or were reset
  bool may_overflow = false;
  bool armed_empty = false;  // armed for any completion when it had none

  void add(std::uint32_t wrs) noexcept {
    outstanding += wrs;
    if (outstanding + ghosts > entries) may_overflow = true;
  }
};

/// A work request that has not completed.
struct PostedWr {
  std::uint64_t wr_id;
  bool signaled;
  WcOpcode opcode;
  std::uint64_t bytes;
};

struct QpObject {
  QpObject(Qp pair, PdObject& of, CqObject& send, CqObject& recv)
      : qp(std::move(pair)), pd(of), send_cq(send), recv_cq(recv) {}
  Qp qp;
  PdObject& pd;
  CqObject& send_cq;
  CqObject& recv_cq;
  std::deque<PostedWr> sends;
  std::deque<PostedWr> recvs;

  /// Its work requests are forgotten: it goes, or was reset.
  void forget() noexcept;
  void on_completion(const CqObject& from, const Wc& wc);
  /// All that was posted to a QP in Error completes.
  void check_flushed(const CqObject& drained) const;

 private:
  void complete_send(const Wc& wc);
  void complete_recv(const Wc& wc);
};

template <typename T>
using Objects = std::vector<std::unique_ptr<T>>;

/// One of two devices with all that was made from it.
struct Side {
  explicit Side(Device opened) : device(std::move(opened)) {}
  Device device;
  Arena arena;
  Objects<PdObject> pds;
  Objects<MrObject> mrs;
  Objects<MwObject> mws;
  Objects<CqObject> cqs;
  Objects<QpObject> qps;
  std::vector<std::uint32_t> stale_keys;  // of regions that are gone
  std::vector<std::uint32_t> qpns;        // of all QPs of the sequence

  [[nodiscard]] bool slot_is_free(std::size_t slot) const noexcept;
};

template <typename T>
void erase(Objects<T>& objects, const T& gone) {
  std::erase_if(objects, [&](const std::unique_ptr<T>& object) { return object.get() == &gone; });
}

/// Flags that a region may have.
inline constexpr std::uint32_t kKnownAccess =
    access::kAll | access::kMwBind | access::kFlushGlobal | access::kFlushPersistent | access::kInvalidatable;

template <typename T>
[[nodiscard]] T* pick(const Objects<T>& objects, Random& random) {
  return objects.empty() ? nullptr : objects[random.below(objects.size())].get();
}

}  // namespace uroce::api
