/// Access rights of memory regions and queue pairs. Standard library only.
#pragma once

#include <cstdint>

namespace uroce {

/// Same values as enum ibv_access_flags.
namespace access {
inline constexpr std::uint32_t kLocalWrite = 1;
inline constexpr std::uint32_t kRemoteWrite = 2;
inline constexpr std::uint32_t kRemoteRead = 4;
inline constexpr std::uint32_t kRemoteAtomic = 8;
inline constexpr std::uint32_t kAll = 15;     ///< all of the above
inline constexpr std::uint32_t kMwBind = 16;  ///< memory windows may be bound to the region
/// Keys name bytes by their place, from 0, instead of by their address. For regions, and for windows of type
/// 2, whose place counts from the window's first byte.
inline constexpr std::uint32_t kZeroBased = 32;
inline constexpr std::uint32_t kFlushGlobal = 256;
/// The region is persistent memory, which only the caller can know. FLUSH then writes the processor's caches
/// back to it.
inline constexpr std::uint32_t kFlushPersistent = 512;
/// The peer may invalidate the region's key by SEND with invalidate. An extension: verbs has no such flag.
/// QPs of the loop of the QP that it comes to (CqAttr::loop) use the key no more once it completes. Those of
/// other loops may then still be in the midst of an access: let such a key serve QPs of one loop.
inline constexpr std::uint32_t kInvalidatable = 1U << 30;
}  // namespace access

}  // namespace uroce
