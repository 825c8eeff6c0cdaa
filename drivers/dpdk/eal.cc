#include "drivers/dpdk/eal.h"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_random.h>
#include <sched.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/eventfd.h"
#include "base/hugepage_pool.h"
#include "base/no_signals.h"

// Where EAL and drivers print (see meson.build). Set before the EAL starts.
extern "C" {
extern FILE* uroce_dpdk_stderr;
int uroce_dpdk_printf(int flag, const char* format, ...);
}
FILE* uroce_dpdk_stderr = nullptr;

/// Stands in for printf(), as the compiler calls it with fortification.
int uroce_dpdk_printf(int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vfprintf(uroce_dpdk_stderr, format, arguments);
  va_end(arguments);
  return written;
}

namespace uroce::drivers::dpdk {
namespace {

/// Address space for --no-huge; memory is taken page by page as it is touched.
constexpr std::uint64_t kNoHugeMib = 1024;
/// What EAL and drivers need beside the mbufs.
constexpr std::uint64_t kEalBytes = 16U << 20;

/// Of this thread: a loop's memif client tells many times a second that its server is not there. Without a
/// destructor, as threads log until they have ended.
struct FirstError {
  [[nodiscard]] std::string_view text() const noexcept { return {bytes.data(), size}; }
  void take(std::string_view line) noexcept {
    size = std::min(line.size(), bytes.size());
    std::copy_n(line.data(), size, bytes.data());
  }

  std::array<char, 256> bytes;
  std::size_t size;
};
constinit thread_local FirstError first_error{};

void keep_first(std::string_view line) noexcept {
  constexpr std::string_view kEal = "EAL: ";
  const std::string_view before = first_error.text();
  if (before.empty() || (before.starts_with(kEal) && !line.starts_with(kEal))) first_error.take(line);
}

ssize_t write_log(void*, const char* data, std::size_t bytes) {
  static const bool is_shown = std::getenv("UROCE_EAL_LOG") != nullptr;
  std::string_view line(data, bytes);
  if (is_shown) [[maybe_unused]]
    const long written = write_uncancelled(STDERR_FILENO, data, bytes);  // drivers log in bursts, too
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  if (line.empty()) return static_cast<ssize_t>(bytes);
  const int level = rte_log_cur_msg_loglevel();  // -1 outside of rte_log()
  if (level <= static_cast<int>(RTE_LOG_ERR)) keep_first(line);
  return static_cast<ssize_t>(bytes);
}

bool capture_logs() {
  if (uroce_dpdk_stderr != nullptr) return true;
  FILE* stream =
      fopencookie(nullptr, "w", {.read = nullptr, .write = write_log, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return false;
  setvbuf(stream, nullptr, _IOLBF, 512);
  uroce_dpdk_stderr = stream;
  libbpf_set_print(nullptr);
  libxdp_set_print(nullptr);
  return rte_openlog_stream(stream) == 0;
}

/// Those where this process may run; none if the system does not say.
cpu_set_t allowed_cpus() noexcept {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) CPU_ZERO(&cpus);
  return cpus;
}

std::vector<std::string> eal_arguments(const EalNeeds& needs) {
  std::vector<std::string> arguments = {"uroce", lcore_argument(allowed_cpus()), "--no-telemetry",
                                        "--no-shconf", "--file-prefix=uroce"};
  if (needs.no_huge) {
    const std::uint64_t wanted_mib = ((needs.bytes + kEalBytes) >> 20) * 2;
    arguments.insert(arguments.end(), {"--no-huge", "-m", std::to_string(std::max(kNoHugeMib, wanted_mib))});
  } else {
    // Single files: vhost-user backends map only a few.
    arguments.insert(arguments.end(), {"--in-memory", "--single-file-segments"});
  }
  const char* log = std::getenv("UROCE_EAL_LOG");
  if (log != nullptr && *log != '\0') arguments.push_back("--log-level=*:" + std::string(log));
  if (needs.pci_address.empty()) {
    arguments.insert(arguments.end(), {"--no-pci", "--iova-mode=va"});
  } else {
    arguments.insert(arguments.end(), {"-a", needs.pci_address});
  }
  return arguments;
}

Error eal_error(int code, std::string said) {
  if (said.empty()) said = rte_strerror(code);
  return Error{Errc::kSystem, "DPDK's EAL does not start: " + said};
}

/// The EAL pins the thread that starts it and gives its signal mask to its helpers: hence a thread of its
/// own.
Status run_eal_init(const EalNeeds& needs) {
  static Status outcome;  // of the one rte_eal_init() that a process has
  if (!outcome) return outcome;
  std::vector<std::string> arguments = eal_arguments(needs);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int code = 0;
  std::string said;
  try {
    const NoSignals signals;
    std::thread([&] {
      if (rte_eal_init(static_cast<int>(arguments.size()), argv.data()) < 0) code = rte_errno;
      said = take_logged_error();
    }).join();
  } catch (const std::system_error& error) {
    return Error{Errc::kSystem, std::string("a thread to start DPDK's EAL: ") + error.what() +
                                    ": raise the limit of processes (ulimit -u)"};
  }
  rmdir(rte_eal_get_runtime_dir());  // made in any case, used for nothing without a shared configuration
  if (code != 0) return outcome = eal_error(code, std::move(said));
  rte_srand(std::random_device{}());  // DPDK's own seed is that of the program, which may have forked since
  return {};
}

Status check_hugepages(std::uint64_t bytes) {
  std::uint64_t free_bytes = 0;
  for (const HugepagePool& pool : hugepage_pools()) free_bytes += pool.page_bytes * pool.free;
  if (free_bytes >= bytes) return {};
  return Error{Errc::kNoHugepages, hugepage_shortage(bytes)};
}

/// Undoes rte_thread_register() when its thread ends.
struct ThreadRegistration {
  bool is_mine = false;
  ~ThreadRegistration() {
    if (is_mine) rte_thread_unregister();
  }
};

}  // namespace

std::string lcore_argument(const cpu_set_t& cpus) {
  std::string list = "--lcores=0@(";
  const std::size_t empty = list.size();
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) list.append(list.size() > empty ? "," : "").append(std::to_string(cpu));
  }
  if (list.size() == empty) list += '0';
  list += ')';
  return list;
}

Status start_eal(const EalNeeds& needs) {
  static std::mutex mutex;
  static bool is_running = false;
  static bool has_pci = false;
  static bool has_huge = false;
  const std::lock_guard lock(mutex);

  if (is_running) {
    if (!needs.pci_address.empty() && !has_pci) {
      return Error{Errc::kUnsupported,
                   "PCI device " + needs.pci_address + " must be the first DPDK port that the process opens"};
    }
    return has_huge ? check_hugepages(needs.bytes) : Status{};
  }
  if (!needs.pci_address.empty() && !std::filesystem::exists("/sys/bus/pci/devices")) {
    return Error{Errc::kNotFound, "this system has no PCI bus; use af_packet:IFACE or memif:PATH"};
  }
  if (!needs.no_huge) {
    if (Status status = check_hugepages(needs.bytes + kEalBytes); !status) return status;
  }
  if (!capture_logs()) return Error{Errc::kNoMemory, "no memory for the EAL's log"};
  if (Status status = run_eal_init(needs); !status) return status;
  is_running = true;
  has_pci = !needs.pci_address.empty();
  has_huge = !needs.no_huge;
  return {};
}

void enter_eal_thread() noexcept {
  static thread_local ThreadRegistration registration;
  if (registration.is_mine || rte_lcore_id() != LCORE_ID_ANY) return;
  registration.is_mine = rte_thread_register() == 0;  // without it: slower, no mbuf cache
}

std::string take_logged_error() {
  std::string said(first_error.text());
  first_error.take({});
  return said;
}

}  // namespace uroce::drivers::dpdk
