#include "verbs/stat_page.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "verbs/loop_counters.h"

namespace uroce {

namespace {

using stat_layout::Header;

/// How often this process, and those before it, came out of a fork as the child.
std::atomic<unsigned> forks{0};

unsigned watch_forks() noexcept {
  [[maybe_unused]] static const int once =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return forks.load(std::memory_order_relaxed);
}

std::uint32_t next_device() noexcept {
  static std::atomic<std::uint32_t> opened{0};
  return opened.fetch_add(1, std::memory_order_relaxed);
}

std::string printable(std::string_view text) {
  std::string out(text.substr(0, stat_layout::kMaxText));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

std::uint64_t* words(std::byte* at) noexcept {
  return static_cast<std::uint64_t*>(static_cast<void*>(at));
}

void put(std::uint64_t& word, std::uint64_t value) noexcept {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

}  // namespace

std::unique_ptr<StatPage> StatPage::make(unsigned loops, std::string_view port, std::string_view addresses,
                                         std::string_view names) {
  const std::string port_text = printable(port);
  const std::string addresses_text = printable(addresses);
  const Header header{.pid = static_cast<std::uint32_t>(::getpid()),
                      .device = next_device(),
                      .loops = loops,
                      .counters = static_cast<std::uint32_t>(1 + std::ranges::count(names, ' ')),
                      .port_bytes = static_cast<std::uint32_t>(port_text.size()),
                      .addresses_bytes = static_cast<std::uint32_t>(addresses_text.size()),
                      .names_bytes = static_cast<std::uint32_t>(names.size())};
  std::unique_ptr<StatPage> page(new StatPage(header));
  if (!page->map()) return nullptr;
  page->publish(port_text + addresses_text + std::string(names));
  return page;
}

StatPage::StatPage(const Header& header) noexcept : header_(header), forks_(watch_forks()) {}

/// Of that size for good, with its memory: nobody who may open it can make a write of this process fail.
bool StatPage::map() noexcept {
  const std::uint64_t bytes = block_at(header_, header_.loops);
  fd_ = ::memfd_create(stat_layout::kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0 || ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return false;
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
  if (memory == MAP_FAILED) return false;
  bytes_ = static_cast<std::byte*>(memory);
  return true;
}

StatPage::~StatPage() {
  if (bytes_ != nullptr) ::munmap(bytes_, block_at(header_, header_.loops));
  if (fd_ >= 0) ::close(fd_);
}

void StatPage::publish(std::string_view texts) noexcept {
  std::memcpy(bytes_, &header_, sizeof header_);
  std::memcpy(bytes_ + sizeof header_, texts.data(), texts.size());
  std::atomic_ref(*words(bytes_)).store(stat_layout::kMagic, std::memory_order_release);
}

void StatPage::show(engine::PollLoop& loop) noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  write(loop.place().index,
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
        read_counters(loop, loop.port().known_counters()));
}

void StatPage::write(unsigned loop, std::uint64_t time_ns, std::span<const std::uint64_t> values) noexcept {
  if (forks.load(std::memory_order_relaxed) != forks_) return;
  std::uint64_t* const block = words(bytes_ + block_at(header_, loop));
  std::atomic_ref sequence(block[stat_layout::kSequence]);
  const std::uint64_t before = sequence.load(std::memory_order_relaxed);  // single writer
  sequence.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // readers that see a value see this as well
  put(block[stat_layout::kTime], time_ns);
  for (std::size_t i = 0; i < values.size(); ++i) put(block[stat_layout::kValues + i], values[i]);
  sequence.store(before + 2, std::memory_order_release);
}

std::string counter_names() {
  std::string names;
  for (std::size_t i = 0; i < kLoopCounters; ++i)
    names += (i == 0 ? "" : " ") + std::string(loop_counter_name(i));
  return names;
}

}  // namespace uroce
