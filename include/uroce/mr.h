/// Memory regions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "uroce/access.h"
#include "uroce/pd.h"
#include "uroce/wr.h"

namespace uroce {

/// Memory region: bytes that work requests and, with the right flags, the peer may name by key. IBA 10.6.
///
/// Threads: control. Lifetime: after destruction returns no byte is read or written through its keys.
class Mr {
 public:
  /// Registers `memory`, which the caller keeps mapped until the region is destroyed.
  /// @return kInvalid for remote write or atomic without local write; kUnsupported for
  /// access::kFlushPersistent where caches cannot be written back.
  static Result<Mr> reg(Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags);
  /// Allocates hugepage-backed zeroed memory (ordinary pages with Config::no_huge) and registers it.
  /// @return kNoHugepages with the command that mends it.
  static Result<Mr> alloc(Pd& pd, std::size_t bytes, std::uint32_t access_flags);
  Mr(Mr&&) noexcept;
  Mr& operator=(Mr&&) noexcept;
  ~Mr();

  [[nodiscard]] std::span<std::byte> memory() const noexcept;
  [[nodiscard]] std::uint64_t addr() const noexcept;
  [[nodiscard]] Lkey lkey() const noexcept;
  [[nodiscard]] Rkey rkey() const noexcept;
  /// An SGE over `length` bytes from `offset`.
  [[nodiscard]] Sge sge(std::size_t offset, std::uint32_t length) const noexcept;

 private:
  struct Impl;
  explicit Mr(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
