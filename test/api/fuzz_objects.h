/// The objects of one side of the API fuzzer, each with what the model knows of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "uroce/ah.h"
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
  std::uint32_t ghosts = 0;       // likewise, of QPs and SRQs that are gone or were reset
  std::uint32_t shared = 0;       // likewise, of SRQs
  bool may_overflow = false;
  bool armed_empty = false;  // armed for any completion when it had none

  [[nodiscard]] std::uint32_t most() const noexcept { return outstanding + ghosts + shared; }
  void add(std::uint32_t wrs) noexcept {
    outstanding += wrs;
    note_overflow();
  }
  void note_overflow() noexcept {
    if (most() > entries) may_overflow = true;
  }
};

/// A work request that has not completed.
struct PostedWr {
  std::uint64_t wr_id;
  bool signaled;
  WcOpcode opcode;
  std::uint64_t bytes;
};

struct XrcdObject {
  explicit XrcdObject(Xrcd made) : xrcd(std::move(made)) {}
  Xrcd xrcd;
  unsigned users = 0;
};

/// What a QP, or an SRQ, uses. Those of an XRC target are null but for its domain.
struct Uses {
  PdObject* pd = nullptr;
  CqObject* send_cq = nullptr;
  CqObject* recv_cq = nullptr;
  struct SrqObject* srq = nullptr;
  XrcdObject* xrcd = nullptr;

  void begin() const noexcept { change(1); }
  void end() const noexcept { change(~0U); }

 private:
  void change(unsigned by) const noexcept;
};

struct QpObject {
  QpObject(Qp pair, const Uses& parts) : qp(std::move(pair)), uses(parts) { uses.begin(); }
  ~QpObject() { uses.end(); }
  QpObject(const QpObject&) = delete;
  QpObject& operator=(const QpObject&) = delete;

  Qp qp;
  Uses uses;
  std::deque<PostedWr> sends;
  std::deque<PostedWr> recvs;
  std::set<Gid> groups;  // attached to

  [[nodiscard]] QpType type() const noexcept { return qp.attr().type; }
  [[nodiscard]] bool has_sends() const noexcept { return type() != QpType::kXrcRecv; }
  [[nodiscard]] bool has_receives() const noexcept {
    return type() != QpType::kXrcRecv && type() != QpType::kXrcSend && uses.srq == nullptr;
  }
  /// Its work requests are forgotten: it goes, or was reset.
  void forget() noexcept;
  void on_completion(const CqObject& from, const Wc& wc);
  /// All that was posted to a QP in Error completes.
  void check_flushed(const CqObject& drained) const;

 private:
  void complete_send(const Wc& wc);
  void complete_recv(const Wc& wc);
};

/// What a receive that completed has to do with the one that was posted.
void expect_received(const PostedWr& posted, const Wc& wc);

struct SrqObject {
  SrqObject(Srq queue, const Uses& parts) : srq(std::move(queue)), uses(parts) {
    uses.begin();
    if (uses.recv_cq != nullptr) link(*uses.recv_cq);
  }
  ~SrqObject();
  SrqObject(const SrqObject&) = delete;
  SrqObject& operator=(const SrqObject&) = delete;

  Srq srq;
  Uses uses;  // its own CQ, if it is one for XRC
  unsigned users = 0;
  std::vector<PostedWr> posted;  // or lost with a QP that completed it
  std::vector<CqObject*> cqs;    // where they may complete

  /// Its receives may complete in `cq` too.
  void link(CqObject& cq);
  void unlink(const CqObject& cq) { std::erase(cqs, &cq); }
  void on_posted(const PostedWr& wr);
  /// @param owner  whose completion it is; null: of a QP that is gone
  void on_completion(const CqObject& from, const QpObject* owner, const Wc& wc);
  [[nodiscard]] std::vector<PostedWr>::iterator find(std::uint64_t wr_id) {
    return std::find_if(posted.begin(), posted.end(), [&](const PostedWr& wr) { return wr.wr_id == wr_id; });
  }
};

struct AhObject {
  explicit AhObject(Ah made) : ah(std::move(made)) {}
  Ah ah;
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
  Objects<XrcdObject> xrcds;
  Objects<SrqObject> srqs;
  Objects<AhObject> ahs;
  Objects<QpObject> qps;
  std::vector<std::uint32_t> stale_keys;   // of regions that are gone
  std::vector<std::uint32_t> qpns;         // of all QPs of the sequence
  std::vector<std::uint32_t> srq_numbers;  // likewise
  std::set<std::uint64_t> orphans;         // receives of SRQs that are gone, which may have completed before
  std::map<std::string, bool> ips;         // that were added or removed, and whether they are there
  std::vector<GidEntry> gids;              // as the device must have them
  std::vector<GidEntry> all_gids;          // likewise, with those that were removed

  [[nodiscard]] bool slot_is_free(std::size_t slot) const noexcept;
  [[nodiscard]] QpObject* find(Qpn qpn) const noexcept;
  /// Whose receive that is.
  [[nodiscard]] SrqObject* owner_of(std::uint64_t wr_id) const noexcept;
};

template <typename T>
void erase(Objects<T>& objects, const T& gone) {
  std::erase_if(objects, [&](const std::unique_ptr<T>& object) { return object.get() == &gone; });
}

/// Flags that a region may have.
inline constexpr std::uint32_t kKnownAccess = access::kAll | access::kMwBind | access::kFlushGlobal |
                                              access::kFlushPersistent | access::kInvalidatable |
                                              access::kZeroBased;

template <typename T>
[[nodiscard]] T* pick(const Objects<T>& objects, Random& random) {
  return objects.empty() ? nullptr : objects[random.below(objects.size())].get();
}

}  // namespace uroce::api
