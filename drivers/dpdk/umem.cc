#include "drivers/dpdk/umem.h"

#include <rte_mempool.h>

#include <cstddef>
#include <vector>

namespace uroce::drivers::dpdk {
namespace {

std::uint32_t object_bytes(const rte_mempool& pool) {
  return rte_mempool_calc_obj_size(pool.elt_size, pool.flags, nullptr);
}

std::byte* begin_of(const rte_mempool_memhdr& piece) {
  return static_cast<std::byte*>(piece.addr);
}

/// Pieces that lie one behind the other are one to the kernel.
std::size_t bytes_in_one_piece(const rte_mempool& pool, unsigned& pieces) {
  std::size_t bytes = 0;
  pieces = 0;
  const rte_mempool_memhdr* const first = STAILQ_FIRST(&pool.mem_list);
  for (const rte_mempool_memhdr* piece = first; piece != nullptr; piece = STAILQ_NEXT(piece, next)) {
    if (begin_of(*piece) != begin_of(*first) + bytes) break;
    bytes += piece->len;
    ++pieces;
  }
  return bytes;
}

/// Takes all mbufs and gives back those before `end`, past the caches of threads.
void keep_back(rte_mempool& pool, const std::byte* end) {
  std::vector<void*> all(pool.populated_size);
  const auto count = static_cast<unsigned>(all.size());
  if (rte_mempool_generic_get(&pool, all.data(), count, nullptr) != 0) return;
  const std::size_t bytes = object_bytes(pool) - pool.header_size;
  std::erase_if(all, [&](void* mbuf) { return static_cast<std::byte*>(mbuf) + bytes > end; });
  rte_mempool_generic_put(&pool, all.data(), static_cast<unsigned>(all.size()), nullptr);
}

}  // namespace

WholeUmem::WholeUmem(rte_mempool& pool) : pool_(pool), mbufs_(pool.populated_size) {
  unsigned pieces = 0;
  const std::size_t bytes = bytes_in_one_piece(pool, pieces);
  is_whole_ = pieces == pool.nb_mem_chunks;
  if (!is_whole_) return;
  const auto fitting = static_cast<std::uint32_t>(bytes / object_bytes(pool));
  keep_back(pool, begin_of(*STAILQ_FIRST(&pool.mem_list)) + std::size_t{fitting} * object_bytes(pool));
  pool.populated_size = fitting;
}

WholeUmem::~WholeUmem() {
  pool_.populated_size = mbufs_;
}

}  // namespace uroce::drivers::dpdk
