#include "apps/stat/page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <tuple>

#include "lib/verbs/stat_layout.h"

namespace uroce::apps {
namespace {

using stat_layout::Header;

/// Not mapped: memory of a file that its owner shrinks meanwhile would end this process.
bool read_at(int fd, std::uint64_t at, void* to, std::size_t bytes) noexcept {
  return ::pread(fd, to, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
}

bool is_sound(const Header& header, std::uint64_t file_bytes) noexcept {
  using namespace stat_layout;
  return header.magic == kMagic && header.version == kVersion && header.loops >= 1 &&
         header.loops <= kMaxLoops && header.counters >= 1 && header.counters <= kMaxCounters &&
         header.port_bytes <= kMaxText && header.addresses_bytes <= kMaxText &&
         header.names_bytes <= kMaxText && header.rows <= kMaxRows && header.qp_counters >= 1 &&
         header.qp_counters <= kMaxCounters && header.qp_names_bytes <= kMaxText &&
         row_at(header, header.rows) <= file_bytes;
}

bool is_printable(std::string_view text) noexcept {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

/// What Prometheus takes as a part of a metric's name.
bool is_name(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool read_texts(int fd, const Header& header, DeviceFigures& page) {
  std::string all(stat_layout::text_bytes(header), '\0');
  if (!read_at(fd, sizeof header, all.data(), all.size()) || !is_printable(all)) return false;
  const std::string_view texts = all;
  page.port = texts.substr(0, header.port_bytes);
  page.addresses = words_of(texts.substr(header.port_bytes, header.addresses_bytes));
  const std::size_t names = header.port_bytes + header.addresses_bytes;
  page.names = words_of(texts.substr(names, header.names_bytes));
  page.qp_names = words_of(texts.substr(names + header.names_bytes));
  return page.names.size() == header.counters && page.qp_names.size() == header.qp_counters &&
         std::ranges::all_of(page.names, is_name) && std::ranges::all_of(page.qp_names, is_name);
}

/// For as long as a writer may be interrupted on a busy machine.
constexpr int kTries = 200;
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};

bool read_block(int fd, const Header& header, std::uint32_t loop, LoopFigures& figures) {
  const std::uint64_t at = block_at(header, loop);
  std::vector<std::uint64_t> words(stat_layout::kValues + header.counters);
  for (int i = 0; i < kTries; ++i) {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    if (!read_at(fd, at, &before, sizeof before)) return false;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!read_at(fd, at, words.data(), words.size() * sizeof words[0])) return false;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!read_at(fd, at, &after, sizeof after)) return false;
    if (before == after && before % 2 == 0) {
      figures.time_ns = words[stat_layout::kTime];
      figures.values.assign(words.begin() + stat_layout::kValues, words.end());
      return true;
    }
    (void)::nanosleep(&kPause, nullptr);
  }
  return false;
}

QpFigures qp_of(std::span<const std::uint64_t> row, std::size_t counters) {
  using namespace stat_layout;
  const auto values = row.subspan(kQpValues, counters);
  return {.qpn = static_cast<std::uint32_t>(row[kQpn]),
          .type = QpType{static_cast<std::uint8_t>(row[kKind])},
          .state = QpState{static_cast<std::uint8_t>(row[kKind] >> 8U)},
          .peer = std::bit_cast<Gid>(std::array{row[kPeer], row[kPeer + 1]}),
          .peer_qpn = static_cast<std::uint32_t>(row[kQpn] >> 32U),
          .values = {values.begin(), values.end()}};
}

/// Rows of QPs, many at once: most of the file is without any.
class Rows {
 public:
  Rows(int fd, const Header& header)
      : fd_(fd), header_(header), words_(row_bytes(header) / sizeof(std::uint64_t)) {}

  /// @return whether the file has them
  bool read(std::vector<QpFigures>& qps) {
    for (std::uint32_t first = 0; (first = next(first)) < header_.rows; first += kAtOnce) {
      if (!read_some(first, std::min(kAtOnce, header_.rows - first), qps)) return false;
    }
    return true;
  }

 private:
  using Words = std::vector<std::uint64_t>;
  static constexpr std::uint32_t kAtOnce = 256;

  /// The next row that has memory, `first` or behind it; or one behind the last.
  [[nodiscard]] std::uint32_t next(std::uint32_t first) const {
    const ::off_t at = ::lseek(fd_, static_cast<::off_t>(row_at(header_, first)), SEEK_DATA);
    if (at < 0) return header_.rows;
    const std::uint64_t row = (static_cast<std::uint64_t>(at) - row_at(header_, 0)) / row_bytes(header_);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(row, header_.rows));
  }
  bool fill(std::uint32_t first, Words& words) const {
    const bool is_there = read_at(fd_, row_at(header_, first), words.data(), words.size() * sizeof words[0]);
    std::atomic_thread_fence(std::memory_order_acquire);
    return is_there;
  }
  /// Those that are not about to change; the others are tried again.
  bool read_some(std::uint32_t first, std::uint32_t count, std::vector<QpFigures>& qps) {
    Words before(count * words_);
    Words rows(before.size());
    Words after(before.size());
    std::vector<bool> is_done(count);
    for (;;) {
      if (!fill(first, before) || !fill(first, rows) || !fill(first, after)) return false;
      bool is_complete = true;
      for (std::uint32_t row = 0; row < count; ++row) {
        const std::size_t at = row * words_;
        if (is_done[row]) continue;
        is_done[row] = before[at] == after[at] && before[at] % 2 == 0;
        is_complete = is_complete && is_done[row];
        const bool is_qp = is_done[row] && static_cast<std::uint32_t>(rows[at + stat_layout::kQpn]) != 0;
        if (is_qp) qps.push_back(qp_of(std::span(rows).subspan(at, words_), header_.qp_counters));
      }
      if (is_complete || tries_ == 0) return true;
      --tries_;
      (void)::nanosleep(&kPause, nullptr);
    }
  }

  const int fd_;
  const Header& header_;
  const std::size_t words_;  // of a row
  int tries_ = kTries;       // left for all of them
};

/// Closes it at its end.
class File {
 public:
  explicit File(const std::string& path) noexcept
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

std::string line_of(const std::string& path, std::string_view start) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

/// As the process knows itself: in the innermost of its namespaces, if the kernel has any.
unsigned own_pid(unsigned pid, const std::string& process) {
  const std::string line = line_of(process + "/status", "NSpid:");
  const std::size_t last = line.find_last_of(" \t");
  if (last != std::string::npos)
    (void)std::from_chars(line.data() + last + 1, line.data() + line.size(), pid);
  return pid;
}

std::string program_of(const std::string& process) {
  std::string name = line_of(process + "/comm", "");
  std::ranges::replace_if(
      name, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

void add_pages_of(unsigned pid, Detail detail, std::vector<ProcessPage>& found) {
  namespace fs = std::filesystem;
  const std::string process = fmt::format("/proc/{}", pid);
  const std::string target = fmt::format("/memfd:{} (deleted)", stat_layout::kFileName);
  std::error_code failed;  // the process ends, or is none of ours
  for (fs::directory_iterator entry(process + "/fd", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code unreadable;
    if (fs::read_symlink(entry->path(), unreadable) != target) continue;
    const File file(entry->path().string());
    auto page = read_page(file.fd(), detail);
    // Children that were forked have their parent's page.
    if (!page || page->pid != own_pid(pid, process)) continue;
    found.push_back({.pid = pid, .program = program_of(process), .page = std::move(*page)});
  }
}

}  // namespace

std::optional<DeviceFigures> read_page(int fd, Detail detail) {
  struct stat file {};
  Header header;
  if (fd < 0 || ::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return std::nullopt;
  if (!read_at(fd, 0, &header, sizeof header)) return std::nullopt;
  if (!is_sound(header, static_cast<std::uint64_t>(file.st_size))) return std::nullopt;
  DeviceFigures page{.pid = header.pid,
                     .device = header.device,
                     .port = {},
                     .addresses = {},
                     .names = {},
                     .loops = std::vector<LoopFigures>(header.loops),
                     .qp_names = {},
                     .qps = {}};
  if (!read_texts(fd, header, page)) return std::nullopt;
  for (std::uint32_t i = 0; i < header.loops; ++i) {
    if (!read_block(fd, header, i, page.loops[i])) return std::nullopt;
  }
  if (detail == Detail::kQps && !Rows(fd, header).read(page.qps)) return std::nullopt;
  return page;
}

std::vector<ProcessPage> find_pages(unsigned pid, Detail detail) {
  namespace fs = std::filesystem;
  std::vector<ProcessPage> found;
  if (pid != 0) {
    add_pages_of(pid, detail, found);
  } else {
    std::error_code failed;
    for (fs::directory_iterator entry("/proc", failed), end; !failed && entry != end;
         entry.increment(failed)) {
      const std::string name = entry->path().filename();
      unsigned number = 0;
      const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
      if (read.ec == std::errc{} && *read.ptr == '\0') add_pages_of(number, detail, found);
    }
  }
  const auto number = [](const ProcessPage& one) { return std::tuple(one.pid, one.page.device); };
  std::ranges::sort(found, {}, number);
  const auto again = std::unique(  // descriptors that were duplicated
      found.begin(), found.end(), [&](const auto& a, const auto& b) { return number(a) == number(b); });
  found.erase(again, found.end());
  return found;
}

}  // namespace uroce::apps
