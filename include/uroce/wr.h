/// Work requests: what an application posts. Numbers equal those of <infiniband/verbs.h>.
#pragma once

#include <cstdint>
#include <span>

#include "uroce/types.h"

namespace uroce {

/// Same values as enum ibv_wr_opcode.
enum class WrOpcode : std::uint8_t {
  kRdmaWrite = 0,
  kRdmaWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRdmaRead = 4,
  kAtomicCmpAndSwp = 5,
  kAtomicFetchAndAdd = 6,
  kLocalInv = 7,
  kBindMw = 8,
  kSendWithInv = 9,
  // Beyond the standard: both ends must have agreed on ece::kMaskedAtomics. Numbers of the kernel's enum
  // ib_wr_opcode; the operations of IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP and _FETCH_AND_ADD on 8 bytes.
  kMaskedCmpAndSwp = 12,
  kMaskedFetchAndAdd = 13,
  kFlush = 14,
  kAtomicWrite = 15,
};

/// Bits of SendWr::flags. Same values as enum ibv_send_flags.
namespace send_flag {
inline constexpr std::uint8_t kFence =
    1;  ///< start only after all earlier READs and atomics of the QP completed
inline constexpr std::uint8_t kSignaled = 2;  ///< a completion is wanted (errors always complete)
inline constexpr std::uint8_t kSolicited =
    4;  ///< sets SE on the last packet: wakes a peer armed for solicited events
inline constexpr std::uint8_t kInline =
    8;  ///< data is copied at post time; the buffer is free at once, no lkey needed
}  // namespace send_flag

/// Scatter/gather element: `length` bytes at `addr` inside the region that `lkey` names. Length 0 means 0
/// bytes.
struct Sge {
  std::uint64_t addr = 0;
  std::uint32_t length = 0;
  Lkey lkey{};
};

/// What a FLUSH promises once it has completed. Same values as enum ibv_placement_type; may be combined.
namespace flush_placement {
inline constexpr std::uint8_t kGlobal = 1;  ///< all earlier WRITEs of the QP are visible to everybody there
inline constexpr std::uint8_t kPersistent = 2;  ///< and what they wrote outlives a loss of power
}  // namespace flush_placement

/// What a FLUSH reaches. Same values as enum ibv_selectivity_level.
enum class FlushScope : std::uint8_t { kRange = 0, kMr = 1 };

/// What is particular to a FLUSH. IBA A19.
struct FlushWr {
  std::uint32_t length = 0;  ///< bytes from SendWr::remote_addr on; kMr: not looked at
  std::uint8_t placement = flush_placement::kGlobal;
  FlushScope scope = FlushScope::kRange;
};

/// On which bits of the word a masked atomic works. As they are, it works like the plain one.
struct AtomicMasks {
  std::uint64_t compare = ~std::uint64_t{0};  ///< bits that must be equal
  std::uint64_t swap = ~std::uint64_t{0};     ///< bits that are replaced if so
  std::uint64_t boundary = 0;  ///< fetch-and-add: highest bit of each field; the sums of fields do not mix
};

/// Types of memory windows. IBA 10.6.7.2 ?
enum class MwType : std::uint8_t {
  kType1 = 1,   ///< belongs to its protection domain
  kType2A = 2,  ///< to the QP that binds it
  kType2B = 3,  ///< to both
};

/// What a memory window gives access to.
struct MwBind {
  Lkey mr{};                 ///< a region with access::kMwBind, of the QP's protection domain
  std::uint64_t addr = 0;    ///< first byte, as the region's own key names it
  std::uint64_t length = 0;  ///< bytes; 0 binds a window of type 1 to nothing
  std::uint32_t access = 0;  ///< remote access flags; to write needs local write access of the region
};

/// Send work request. Its SGE list is copied at post time.
struct SendWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges{};
  WrOpcode opcode = WrOpcode::kSend;
  std::uint8_t flags = 0;              ///< send_flag bits
  std::uint32_t imm_data = 0;          ///< network byte order, for *WithImm
  Rkey invalidate_rkey{};              ///< for kSendWithInv and kLocalInv
  std::uint64_t remote_addr = 0;       ///< RDMA and atomics
  Rkey rkey{};                         ///< RDMA and atomics; kBindMw: the window's key from now on
  std::uint64_t compare_add = 0;       ///< compare value, or the addend
  std::uint64_t swap = 0;              ///< new value of a compare-and-swap
  const AtomicMasks* masks = nullptr;  ///< for kMasked*; copied at post time
  FlushWr flush{};                     ///< for kFlush, which has no SGEs
  std::uint32_t remote_srq = 0;        ///< XRC: number of the Srq that takes it, or whose PD gives the rights
  const MwBind* bind = nullptr;        ///< for kBindMw, which has no SGEs; copied at post time
  AhId ah{};                           ///< UD: where to; see Ah
  Qpn remote_qpn{};                    ///< UD: which QP there; 0xffffff for a multicast group
  std::uint32_t remote_qkey =
      0;  ///< UD: its Q_Key. Bit 31 set: the sender's own is sent instead, IBA 10.2.5 ?
};

/// Receive work request. Its SGE list is copied at post time.
struct RecvWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges{};
};

}  // namespace uroce
