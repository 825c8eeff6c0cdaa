/// What a responder remembers about requests with a response of their own, to answer them and to answer them
/// again.
#pragma once

#include <cstdint>
#include <vector>

#include "uroce/types.h"
#include "wire/feth.h"
#include "wire/opcode.h"

namespace uroce::transport {

/// One READ, atomic, FLUSH or ATOMIC WRITE that was accepted. The latter two are answered like a READ of no
/// bytes.
struct ResponderResource {
  Psn first_psn;
  std::uint32_t packets = 0;  ///< PSNs it owns; 0: the entry is unused
  std::uint64_t va = 0;
  std::uint64_t original = 0;  ///< atomic: the value before it
  std::uint32_t length = 0;    ///< READ: bytes
  std::uint32_t range = 0;     ///< FLUSH: bytes
  std::uint64_t flushed = 0;   ///< FLUSH: bytes that have left the caches
  std::uint32_t rkey = 0;
  std::uint32_t pd = 0;    ///< READ, FLUSH: protection domain that has the rights
  std::uint32_t next = 0;  ///< READ: next response packet to send
  std::uint32_t sent = 0;  ///< READ: response packets that were sent at least once
  std::uint32_t end = 0;   ///< READ: one past the last response packet to send now
  std::uint32_t msn = 0;   ///< MSN that its responses carry
  wire::Opcode opcode = wire::Opcode::kRcReadRequest;
  bool queued = false;        ///< waits for its responses to be sent
  bool is_unflushed = false;  ///< FLUSH: not all of it has left the caches
  wire::Feth feth{};          ///< FLUSH
  bool answered = false;      ///< all responses have been sent once; if queued again, it is a replay

  [[nodiscard]] bool is_atomic() const noexcept { return wire::info(opcode).is_atomic_request; }
};

/// The last requests, as many as resize() was told, and the order in which they are to be answered. Entries
/// are evicted only by newer requests. IBA 9.4.4, 9.4.5, 9.7.5.1.1 ?
///
/// Threads: loop.
class ResponderResources {
 public:
  /// Room for `depth` requests. Grows only, and keeps what is remembered, also if there is no memory: throws
  /// bad_alloc.
  void resize(std::size_t depth);
  /// Lets add_part() remember parts. Control: allocates.
  void make_room_for_parts() { parts_.reserve(kParts); }
  void clear() noexcept;

  /// Whether add() has an entry.
  [[nodiscard]] bool has_room() const noexcept {
    return !entries_.empty() && (!entries_[newest_].queued || entries_[newest_].answered);
  }
  /// The entry for a new request, or nullptr if the oldest one has not been answered at all. A replay of the
  /// oldest is given up: a peer that sends another request no longer waits for it.
  [[nodiscard]] ResponderResource* add() noexcept;
  /// The remembered request that owns `psn`: the newest, since PSNs come round again.
  [[nodiscard]] ResponderResource* find(Psn psn) noexcept;

  /// Puts `entry` among those to be answered, unless it is there, in the order of the requests: a peer that
  /// has gone back takes no later response, and has asked for it only once more. IBA 9.7.5.1.4 ?
  void queue(ResponderResource& entry) noexcept;
  /// A READ that is being answered is also to be answered again from packet `next` up to `end`, with a gap to
  /// what it is being answered now: that is done next.
  /// @return false if there is no gap, or no room to remember it
  [[nodiscard]] bool add_part(const ResponderResource& entry, std::uint32_t next, std::uint32_t end) noexcept;
  /// Of all that have not been answered as often as asked, in their order.
  template <typename Visit>
  void for_each_queued(Visit&& visit) noexcept {
    for (std::size_t i = 0; i < queued_; ++i) visit(entries_[order_[(order_head_ + i) % order_.size()]]);
  }
  /// The request to answer next.
  [[nodiscard]] ResponderResource* front() noexcept {
    return queued_ == 0 ? nullptr : &entries_[order_[order_head_]];
  }
  [[nodiscard]] const ResponderResource* front() const noexcept {
    return queued_ == 0 ? nullptr : &entries_[order_[order_head_]];
  }
  [[nodiscard]] bool has_queued() const noexcept { return queued_ != 0; }
  /// The front has been answered, as far as it said: a part of it that waits is next, or another request.
  void pop() noexcept;

 private:
  static constexpr std::size_t kParts = 16;  // of all requests; of more, what lies between is sent again, too
  /// Packets of a READ to send again once those are sent that its entry names.
  struct Part {
    Psn first_psn;  // of the READ
    std::uint32_t next = 0;
    std::uint32_t end = 0;
  };
  [[nodiscard]] bool take_part(ResponderResource& entry) noexcept;
  void unqueue(const ResponderResource& entry) noexcept;

  std::size_t queued_ = 0;
  std::vector<ResponderResource> entries_;  // ring, newest_ is the next to overwrite
  std::vector<std::uint32_t> order_;        // ring of indices into entries_
  std::vector<Part> parts_;                 // in the order asked for
  std::size_t newest_ = 0;
  std::size_t order_head_ = 0;
};

}  // namespace uroce::transport
