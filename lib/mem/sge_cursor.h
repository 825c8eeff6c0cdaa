/// Copies between a scatter/gather list and a packet's payload, every byte checked by key.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/copy.h"
#include "mem/key_table.h"
#include "uroce/wr.h"

namespace uroce::mem {

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

  /// Copies `in` to message offset `at` of the list; the regions need local write access. Nothing is written
  /// when the first touched SGE refuses.
  /// @param whole  bytes of the message, if known
  KeyFault scatter(std::span<const Sge> sges, const KeyTable& keys, std::uint32_t pd, std::uint64_t at,
                   std::span<const std::byte> in, std::uint64_t whole = 0) noexcept {
    const std::byte* from = in.data();
    return walk(sges, keys, pd, access::kLocalWrite, at, in.size(),
                [&from, whole](std::byte* memory, std::size_t n) {
                  copy_part(memory, from, n, whole);
                  from += n;
                });
  }

  void rewind() noexcept { *this = {}; }
  /// Bytes of the message before this position.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

 private:
  template <typename Copy>
  KeyFault walk(std::span<const Sge> sges, const KeyTable& keys, std::uint32_t pd, std::uint32_t access,
                std::uint64_t at, std::size_t left, Copy&& copy) noexcept {
    seek(sges, at);
    while (left > 0) {
      if (index_ == sges.size()) return KeyFault::kOutOfRange;
      const Sge& sge = sges[index_];
      const std::size_t n = std::min<std::size_t>(left, sge.length - offset_);
      if (n > 0) {
        KeyFault fault{};
        std::byte* memory = keys.resolve(raw(sge.lkey), pd, access, sge.addr + offset_, n, fault);
        if (memory == nullptr) return fault;
        copy(memory, n);
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
