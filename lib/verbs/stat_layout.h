/// The file in which a device shows others its counters: what its writer and readers of other processes,
/// perhaps of another version, agree on.
///
///   Header | port | addresses | names of the counters | names of a QP's | a block for each loop | rows of
///   QPs
///
/// Texts are printable ASCII. Words between the addresses, and between the names, are apart by one space
/// each. Blocks and rows begin at whole cache lines and consist of 64-bit words: kSequence, kTime, then a
/// word for each name; of a row kSequence, kQpn, kKind, kPeer, then a word for each name of a QP's counters.
/// The file has no memory for rows that no QP ever had.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::stat_layout {

inline constexpr const char* kFileName = "uroce-counters";  ///< of a memfd
inline constexpr std::uint64_t kMagic = 0x7461'7473'6563'6f72;
inline constexpr std::uint32_t kVersion = 2;

/// Bounds that readers insist on.
inline constexpr std::uint32_t kMaxLoops = 256;
inline constexpr std::uint32_t kMaxCounters = 1024;
inline constexpr std::uint32_t kMaxRows = 1U << 24U;
inline constexpr std::uint32_t kMaxText = 64 * 1024;  ///< bytes, of each

struct Header {
  std::uint64_t magic = 0;  ///< written last
  std::uint32_t version = kVersion;
  std::uint32_t pid = 0;     ///< as the process itself knows it; a child that was forked has another one
  std::uint32_t device = 0;  ///< devices that the process had opened before
  std::uint32_t loops = 0;
  std::uint32_t counters = 0;
  std::uint32_t port_bytes = 0;
  std::uint32_t addresses_bytes = 0;
  std::uint32_t names_bytes = 0;
  std::uint32_t rows = 0;  ///< QPs that there may be
  std::uint32_t qp_counters = 0;
  std::uint32_t qp_names_bytes = 0;
};

/// Words of a block.
inline constexpr std::size_t kSequence = 0;  ///< odd while the block changes; another one when it has
inline constexpr std::size_t kTime = 1;  ///< CLOCK_MONOTONIC in nanoseconds of the last change; 0: none yet
inline constexpr std::size_t kValues = 2;

/// Words of a row, behind kSequence.
inline constexpr std::size_t kQpn = 1;   ///< its own in the low half, its peer's in the high; 0: no QP
inline constexpr std::size_t kKind = 2;  ///< QpType | QpState << 8
inline constexpr std::size_t kPeer = 3;  ///< two: the bytes of its peer's GID; zeros: it has none
inline constexpr std::size_t kQpValues = 5;

[[nodiscard]] constexpr std::uint64_t whole_lines(std::uint64_t bytes) noexcept {
  return (bytes + 63) / 64 * 64;
}
[[nodiscard]] constexpr std::uint64_t text_bytes(const Header& header) noexcept {
  return std::uint64_t{header.port_bytes} + header.addresses_bytes + header.names_bytes +
         header.qp_names_bytes;
}
[[nodiscard]] constexpr std::uint64_t block_bytes(const Header& header) noexcept {
  return whole_lines((kValues + header.counters) * sizeof(std::uint64_t));
}
/// Where the block of a loop begins; of the loop behind the last, where they end.
[[nodiscard]] constexpr std::uint64_t block_at(const Header& header, std::uint32_t loop) noexcept {
  return whole_lines(sizeof(Header) + text_bytes(header)) + loop * block_bytes(header);
}
[[nodiscard]] constexpr std::uint64_t row_bytes(const Header& header) noexcept {
  return whole_lines((kQpValues + header.qp_counters) * sizeof(std::uint64_t));
}
/// Where a row begins, the first one at a page; of the row behind the last, where the file ends.
[[nodiscard]] constexpr std::uint64_t row_at(const Header& header, std::uint32_t row) noexcept {
  constexpr std::uint64_t kPage = 4096;
  return (block_at(header, header.loops) + kPage - 1) / kPage * kPage + row * row_bytes(header);
}

}  // namespace uroce::stat_layout
