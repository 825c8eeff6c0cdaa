/// What of a mempool af_xdp's driver lends to the kernel.
#pragma once

#include <cstdint>

struct rte_mempool;

namespace uroce::drivers::dpdk {

/// DPDK before 24.07 lends the kernel as many bytes as the mbufs would take without the gaps at the ends of
/// pages, which no mbuf crosses: of those with 4 KiB pages a third may lie beyond. What is sent from there
/// vanishes, and what is given to be filled is lost, until nothing is received any more.
///
/// While this is there, the pool counts what fits into all of its memory; mbufs that lie beyond even that are
/// kept back for good.
///
/// Threads: control, before anybody else knows the pool.
class WholeUmem {
 public:
  explicit WholeUmem(rte_mempool& pool);
  WholeUmem(const WholeUmem&) = delete;
  WholeUmem& operator=(const WholeUmem&) = delete;
  ~WholeUmem();

  /// Whether the pool is one piece of memory: the driver looks at the first one only.
  [[nodiscard]] bool is_whole() const noexcept { return is_whole_; }

 private:
  rte_mempool& pool_;
  const std::uint32_t mbufs_;
  bool is_whole_ = false;
};

}  // namespace uroce::drivers::dpdk
