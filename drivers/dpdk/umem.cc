#include "drivers/dpdk/umem.h"

#include <rte_mempool.h>

#include <cstddef>
#include <vector>

namespace uroce::drivers::dpdk {
namespace {

std::uint32_t object_bytes(const rte_mempool& pool) {
  return rte_mempool_calc_obj_size(pool.elt_size, pool.flags, nullptr);
}

const rte_mempool_memhdr& memory_of(const rte_mempool& pool) {
  return *STAILQ_FIRST(&pool.mem_list);
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
  if (!is_whole()) return;
  const rte_mempool_memhdr& memory = memory_of(pool);
  const auto fitting = static_cast<std::uint32_t>(memory.len / object_bytes(pool));
  keep_back(pool, static_cast<std::byte*>(memory.addr) + std::size_t{fitting} * object_bytes(pool));
  pool.populated_size = fitting;
}

WholeUmem::~WholeUmem() {
  pool_.populated_size = mbufs_;
}

bool WholeUmem::is_whole() const noexcept {
  return pool_.nb_mem_chunks == 1;
}

}  // namespace uroce::drivers::dpdk
