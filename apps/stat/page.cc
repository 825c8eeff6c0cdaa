#include "apps/stat/page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
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
         header.names_bytes <= kMaxText && block_at(header, header.loops) <= file_bytes;
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
  page.names = words_of(texts.substr(header.port_bytes + header.addresses_bytes));
  return page.names.size() == header.counters && std::ranges::all_of(page.names, is_name);
}

/// Waits for as long as a writer may be interrupted on a busy machine.
bool read_block(int fd, const Header& header, std::uint32_t loop, LoopFigures& figures) {
  constexpr int kTries = 200;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
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

void add_pages_of(unsigned pid, std::vector<ProcessPage>& found) {
  namespace fs = std::filesystem;
  const std::string process = fmt::format("/proc/{}", pid);
  const std::string target = fmt::format("/memfd:{} (deleted)", stat_layout::kFileName);
  std::error_code failed;  // the process ends, or is none of ours
  for (fs::directory_iterator entry(process + "/fd", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code unreadable;
    if (fs::read_symlink(entry->path(), unreadable) != target) continue;
    const File file(entry->path().string());
    auto page = read_page(file.fd());
    // Children that were forked have their parent's page.
    if (!page || page->pid != own_pid(pid, process)) continue;
    found.push_back({.pid = pid, .program = program_of(process), .page = std::move(*page)});
  }
}

}  // namespace

std::optional<DeviceFigures> read_page(int fd) {
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
                     .loops = std::vector<LoopFigures>(header.loops)};
  if (!read_texts(fd, header, page)) return std::nullopt;
  for (std::uint32_t i = 0; i < header.loops; ++i) {
    if (!read_block(fd, header, i, page.loops[i])) return std::nullopt;
  }
  return page;
}

std::vector<ProcessPage> find_pages(unsigned pid) {
  namespace fs = std::filesystem;
  std::vector<ProcessPage> found;
  if (pid != 0) {
    add_pages_of(pid, found);
  } else {
    std::error_code failed;
    for (fs::directory_iterator entry("/proc", failed), end; !failed && entry != end;
         entry.increment(failed)) {
      const std::string name = entry->path().filename();
      unsigned number = 0;
      const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
      if (read.ec == std::errc{} && *read.ptr == '\0') add_pages_of(number, found);
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
