#include "verbs/stat_page.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/held_back_signal.h"
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

/// Readers find all of it changed by `write`, or nothing. @param words  of which the first is kSequence
template <typename Write>
void change(std::uint64_t* words, Write&& write) noexcept {
  std::atomic_ref sequence(words[stat_layout::kSequence]);
  const std::uint64_t before = sequence.load(std::memory_order_relaxed);  // single writer
  sequence.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // readers that see a value see this as well
  write();
  sequence.store(before + 2, std::memory_order_release);
}

std::uint32_t words_in(std::string_view text) noexcept {
  return static_cast<std::uint32_t>(1 + std::ranges::count(text, ' '));
}

std::uint32_t bytes_of(std::string_view text) noexcept {
  return static_cast<std::uint32_t>(text.size());
}

}  // namespace

std::unique_ptr<StatPage> StatPage::make(unsigned loops, std::uint32_t qps, const Texts& texts) {
  const std::string port = printable(texts.port);
  const std::string addresses = printable(texts.addresses);
  const Header header{.pid = static_cast<std::uint32_t>(::getpid()),
                      .device = next_device(),
                      .loops = loops,
                      .counters = words_in(texts.names),
                      .port_bytes = bytes_of(port),
                      .addresses_bytes = bytes_of(addresses),
                      .names_bytes = bytes_of(texts.names),
                      .rows = std::min(qps, stat_layout::kMaxRows),
                      .qp_counters = words_in(texts.qp_names),
                      .qp_names_bytes = bytes_of(texts.qp_names)};
  std::unique_ptr<StatPage> page(new StatPage(header));
  if (!page->map()) return nullptr;
  page->publish(port + addresses + std::string(texts.names) + std::string(texts.qp_names));
  return page;
}

StatPage::StatPage(const Header& header) noexcept : header_(header), forks_(watch_forks()) {}

/// Of that size for good, with its memory, which rows get with their first QP: nobody who may open it can
/// make a write of this process fail.
bool StatPage::map() noexcept {
  const std::uint64_t blocks = block_at(header_, header_.loops);
  const std::uint64_t rows = row_at(header_, 0);
  const std::uint64_t end = row_at(header_, header_.rows);
  const HeldBackSignal no_limit(SIGXFSZ);
  fd_ = ::memfd_create(stat_layout::kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(end)) != 0 ||
      ::posix_fallocate(fd_, 0, static_cast<off_t>(blocks)) != 0 ||
      ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return false;
  }
  const auto view = [this](std::uint64_t at, std::uint64_t bytes, int flags) {
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd_, static_cast<off_t>(at));
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  };
  bytes_ = view(0, blocks, MAP_POPULATE);
  if (end > rows) rows_ = view(rows, end - rows, 0);
  return bytes_ != nullptr;
}

StatPage::~StatPage() {
  if (bytes_ != nullptr) ::munmap(bytes_, block_at(header_, header_.loops));
  if (rows_ != nullptr) ::munmap(rows_, row_at(header_, header_.rows) - row_at(header_, 0));
  if (fd_ >= 0) ::close(fd_);
}

void StatPage::publish(std::string_view texts) noexcept {
  std::memcpy(bytes_, &header_, sizeof header_);
  std::memcpy(bytes_ + sizeof header_, texts.data(), texts.size());
  std::atomic_ref(*words(bytes_)).store(stat_layout::kMagic, std::memory_order_release);
}

std::uint32_t StatPage::take_row() {
  const std::lock_guard lock(control_);
  if (!free_rows_.empty()) {
    const std::uint32_t row = free_rows_.back();
    free_rows_.pop_back();
    return row;
  }
  if (rows_ == nullptr || last_row_ == header_.rows) return 0;
  if (free_rows_.capacity() <= last_row_) free_rows_.reserve(2 * (last_row_ + std::size_t{1}));  // give_row()
  const auto at = static_cast<off_t>(row_at(header_, last_row_));
  if (::posix_fallocate(fd_, at, static_cast<off_t>(row_bytes(header_))) != 0) return 0;
  return ++last_row_;
}

void StatPage::give_row(std::uint32_t row) noexcept {
  if (row == 0) return;
  const std::lock_guard lock(control_);
  free_rows_.push_back(row);
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
  change(block, [&] {
    put(block[stat_layout::kTime], time_ns);
    for (std::size_t i = 0; i < values.size(); ++i) put(block[stat_layout::kValues + i], values[i]);
  });
}

void StatPage::show(const transport::QueuePair& qp) noexcept {
  const transport::QpContext& ctx = qp.context();
  std::array<std::uint64_t, transport::kQpCounters.size()> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = ctx.own_counters.get(i);
  const bool has_peer = ctx.type != QpType::kUd && qp.state() >= QpState::kRtr;
  write(ctx.shown_at, {.qpn = ctx.qpn,
                       .type = ctx.type,
                       .state = qp.state(),
                       .peer = has_peer ? ctx.attr.dgid : Gid{},
                       .peer_qpn = has_peer ? ctx.dest_qpn : Qpn{},
                       .values = values});
}

void StatPage::hide(const transport::QueuePair& qp) noexcept {
  write(qp.context().shown_at, QpRow{});
}

void StatPage::write(std::uint32_t row, const QpRow& qp) noexcept {
  if (row == 0 || forks.load(std::memory_order_relaxed) != forks_) return;
  std::uint64_t* const at = words(rows_ + (row - 1) * row_bytes(header_));
  const auto peer = std::bit_cast<std::array<std::uint64_t, 2>>(qp.peer);
  change(at, [&] {
    put(at[stat_layout::kQpn], raw(qp.qpn) | std::uint64_t{raw(qp.peer_qpn)} << 32U);
    put(at[stat_layout::kKind], raw(qp.type) | std::uint64_t{raw(qp.state)} << 8U);
    put(at[stat_layout::kPeer], peer[0]);
    put(at[stat_layout::kPeer + 1], peer[1]);
    for (std::size_t i = 0; i < qp.values.size(); ++i) put(at[stat_layout::kQpValues + i], qp.values[i]);
  });
}

std::string counter_names() {
  std::string names;
  for (std::size_t i = 0; i < kLoopCounters; ++i)
    names += (i == 0 ? "" : " ") + std::string(loop_counter_name(i));
  return names;
}

std::string qp_counter_names() {
  std::string names;
  for (const Count what : transport::kQpCounters)
    names += (names.empty() ? "" : " ") + std::string(kCounterNames[static_cast<std::size_t>(what)]);
  return names;
}

}  // namespace uroce
