/// Starts DPDK's environment abstraction layer, once per process, on first use.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>

#include "uroce/result.h"

namespace uroce::drivers::dpdk {

/// What the first port wants of the EAL.
struct EalNeeds {
  bool no_huge = false;
  std::uint64_t bytes = 0;  ///< of memory for this port
  std::string pci_address;  ///< of the device to open; empty: leave the PCI bus alone
};

/// Starts the EAL unless it runs already; then only memory is checked. The first call decides on hugepages
/// and on PCI.
///
/// Threads: any; calls are serialised. The caller's affinity and signal mask stay as they are: the EAL is
/// started on a thread of its own.
/// @return kNoHugepages before the EAL would complain, kUnsupported for a PCI device after a start without
/// PCI,
///         kSystem with the EAL's own words; the same ones ever after, as it starts once or not at all.
Status start_eal(const EalNeeds& needs);

/// What tells the EAL that it has one lcore, which may run on any of these CPUs: "--lcores=0@(2,5,6)". CPU 0
/// if there are none. RTE_MAX_LCORE bounds lcores, not CPUs.
[[nodiscard]] std::string lcore_argument(const cpu_set_t& cpus);

/// Makes the calling thread known to the EAL, which gives it mbuf caches. Undone when the thread ends.
void enter_eal_thread() noexcept;

/// The first error that this thread logged since the last call, and forgets it: a driver's before one of the
/// EAL, which only follows it up. Nothing is ever printed, unless UROCE_EAL_LOG is set.
std::string take_logged_error();

}  // namespace uroce::drivers::dpdk
