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

/// What Mr::rereg() changes. Same values as enum ibv_rereg_mr_flags.
namespace mr_change {
inline constexpr std::uint32_t kTranslation = 1;  ///< the memory
inline constexpr std::uint32_t kPd = 2;
inline constexpr std::uint32_t kAccess = 4;
}  // namespace mr_change

/// Memory region: bytes that work requests and, with the right flags, the peer may name by key. IBA 10.6.
///
/// Threads: control. Lifetime: after destruction returns no byte is read or written through its keys, nor
/// through windows bound to it.
class Mr {
 public:
  /// Registers `memory`, which the caller keeps mapped until the region is destroyed.
  /// @return kInvalid for remote write or atomic without local write; kUnsupported for
  /// access::kFlushPersistent where caches cannot be written back.
  static Result<Mr> reg(Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags);
  /// Likewise, and work requests and peers name its first byte `addr`. As ibv_reg_mr_iova(3).
  static Result<Mr> reg(Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags, std::uint64_t addr);
  /// Allocates hugepage-backed zeroed memory (ordinary pages with Config::no_huge) and registers it.
  /// @return kNoHugepages with the command that mends it.
  static Result<Mr> alloc(Pd& pd, std::size_t bytes, std::uint32_t access_flags);
  Mr(Mr&&) noexcept;
  Mr& operator=(Mr&&) noexcept;
  ~Mr();

  /// Destroys the region, unless memory windows are bound to it.
  /// @return kBusy if some are; the region is then as it was. Else nothing but destruction may follow.
  Status dereg();
  /// Changes what `changes` (mr_change bits) names: memory, protection domain, access flags; the rest of the
  /// arguments is not looked at. Other memory is named by its own addresses. The keys stay the same. An
  /// access meanwhile meets the old region or the new one; once this returns, the new one. Memory that
  /// alloc() made is freed when it is exchanged for other.
  /// @return kInvalid as for reg() or for a PD of another device, kBusy while memory windows are bound to it,
  /// kNoMemory; the region is then as it was.
  Status rereg(std::uint32_t changes, Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags);

  [[nodiscard]] std::span<std::byte> memory() const noexcept;
  /// What work requests and peers call its first byte; 0 with access::kZeroBased.
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
