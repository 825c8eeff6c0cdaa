/// Where in memory the bytes of a scatter/gather list are, every one of them checked by key.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/copy.h"
#include "mem/key_table.h"
#include "uroce/wr.h"

namespace uroce::mem {

/// For SgeCursor::scatter(): copies bytes, one behind the other.
struct CopyFrom {
  const std::byte* next;

  void operator()(std::byte* to, std::size_t size) noexcept {
    copy_payload(to, next, size);
    next += size;
  }
};

/// A position in an SGE list. Packets of a message come in order, so the next one starts where the last one
/// ended.
///
/// Threads: loop.
class SgeCursor {
 public:
  /// Hands `size` bytes from message offset `at` of the list to `take(const std::byte*, std::size_t)`, piece
  /// by piece.
  /// @return the fault of the first SGE that refuses; kOutOfRange if the list is too short.
  template <typename Take>
  KeyFault gather(std::span<const Sge> sges, const KeyTable& keys, std::uint32_t pd, std::uint64_t at,
                  std::size_t size, Take&& take) noexcept {
    return walk(sges, keys, pd, 0, at, size, std::forward<Take>(take));
  }

  /// Likewise to `put(std::byte*, std::size_t)`, to write to: the regions need local write access.
  template <typename Put>
  KeyFault scatter(std::span<const Sge> sges, const KeyTable& keys, std::uint32_t pd, std::uint64_t at,
                   std::size_t size, Put&& put) noexcept {
    return walk(sges, keys, pd, access::kLocalWrite, at, size, std::forward<Put>(put));
  }

  void rewind() noexcept { *this = {}; }
  /// Bytes of the message before this position.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

 private:
  template <typename Take>
  KeyFault walk(std::span<const Sge> sges, const KeyTable& keys, std::uint32_t pd, std::uint32_t access,
                std::uint64_t at, std::size_t left, Take&& take) noexcept {
    seek(sges, at);
    while (left > 0) {
      if (index_ == sges.size()) return KeyFault::kOutOfRange;
      const Sge& sge = sges[index_];
      const std::size_t n = std::min<std::size_t>(left, sge.length - offset_);
      if (n > 0) {
        KeyFault fault{};
        std::byte* memory = keys.resolve(raw(sge.lkey), pd, access, sge.addr + offset_, n, fault);
        if (memory == nullptr) return fault;
        take(memory, n);
      }
      left -= n;
      step(n, sge.length);
    }
    return KeyFault::kNone;
  }

  void step(std::size_t n, std::uint32_t sge_length) noexcept {
    offset_ += static_cast<std::uint32_t>(n);
    position_ += n;
    if (offset_ == sge_length) {
      ++index_;
      offset_ = 0;
    }
  }

  void seek(std::span<const Sge> sges, std::uint64_t at) noexcept {
    if (at == position_) return;
    if (at < position_) rewind();
    while (position_ < at && index_ < sges.size()) {
      const auto n = std::min<std::uint64_t>(at - position_, sges[index_].length - offset_);
      step(n, sges[index_].length);
    }
  }

  std::uint32_t index_ = 0;
  std::uint32_t offset_ = 0;    // bytes inside the SGE
  std::uint64_t position_ = 0;  // bytes since the start of the message
};

}  // namespace uroce::mem
