#include "abi/ibverbs/unmapped_memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "base/eventfd.h"

namespace uroce::abi {

namespace {

std::atomic<const Device*> guarded{nullptr};  // pairs with lookers
std::atomic<unsigned> lookers{0};             // handlers that look at the device
std::atomic<bool> is_told{false};
std::uintptr_t page_bytes = 4096;
struct sigaction before {};      // whom other faults go to
bool is_behind_another = false;  // the program has installed a handler after ours

/// Once for a device: it may be all pages of a large region.
void tell() noexcept {
  constexpr std::string_view kText =
      "uroce: registered memory was unmapped and is still used: empty pages take its place; call "
      "ibv_dereg_mr() before munmap() or free()\n";
  if (is_told.exchange(true, std::memory_order_relaxed)) return;
  [[maybe_unused]] const long written = write_uncancelled(STDERR_FILENO, kText.data(), kText.size());
}

/// @return whether there is a page now, be it one that another thread has mapped meanwhile
bool put_page(const void* address) noexcept {
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) & ~(page_bytes - 1));
  void* const put = mmap(page, page_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (put == page) return true;
  if (put == MAP_FAILED) return errno == EEXIST;
  munmap(put, page_bytes);  // a kernel before 4.17, which takes the address for a wish
  return false;
}

bool is_mended(const siginfo_t& fault) noexcept {
  if (fault.si_code != SEGV_MAPERR) return false;
  lookers.fetch_add(1);
  const Device* const device = guarded.load();
  const bool is_engines = device != nullptr && device->is_touching(fault.si_addr);
  lookers.fetch_sub(1);
  if (!is_engines || !put_page(fault.si_addr)) return false;
  tell();
  return true;
}

bool is_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void pass_on(int signal, siginfo_t* fault, void* context) noexcept {
  if (is_handler(before)) {
    const struct sigaction handler = before;
    if ((handler.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) before = {};  // it is called once
    if ((handler.sa_flags & SA_SIGINFO) != 0) return handler.sa_sigaction(signal, fault, context);
    return handler.sa_handler(signal);
  }
  sigaction(signal, &before, nullptr);  // the instruction is executed again
  if (fault->si_code <= 0) (void)raise(signal);
}

void on_fault(int signal, siginfo_t* fault, void* context) noexcept {
  const int kept = errno;
  const bool mended = is_mended(*fault);
  errno = kept;
  if (!mended) pass_on(signal, fault, context);
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fault;
}

}  // namespace

/// Once a handler of the program stands before ours, which it may call, ours stays where it is.
UnmappedMemory::UnmappedMemory(const Device& device) noexcept {
  page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  is_told.store(false);
  guarded.store(&device);
  struct sigaction present {};
  sigaction(SIGSEGV, nullptr, &present);
  if (is_ours(present) || (is_behind_another && present.sa_handler != SIG_DFL)) return;
  before = present;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  if (is_handler(before)) {  // which runs inside ours
    action.sa_flags |= before.sa_flags & SA_NODEFER;
    action.sa_mask = before.sa_mask;
  }
  sigaction(SIGSEGV, &action, nullptr);
}

UnmappedMemory::~UnmappedMemory() {
  guarded.store(nullptr);
  constexpr int kMostTurns = 100'000;  // in a child, a looker may have stayed with the parent
  for (int i = 0; i < kMostTurns && lookers.load() != 0; ++i) sched_yield();
  struct sigaction present {};
  sigaction(SIGSEGV, nullptr, &present);
  is_behind_another = !is_ours(present);
  if (!is_behind_another) sigaction(SIGSEGV, &before, nullptr);
}

}  // namespace uroce::abi
