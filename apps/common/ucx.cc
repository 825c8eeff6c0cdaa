#include "apps/common/ucx.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/tcp.h"

namespace uroce::apps {
namespace {

constexpr const char* kProgram = "/usr/bin/ucx_perftest";
constexpr std::uint64_t kLimitNs = 10 * kSecond;
constexpr int kAttempts = 40;  // of the client, until the server listens

/// A child with its output; ended at the latest when this goes.
class Child {
 public:
  static std::optional<Child> start(std::vector<std::string> words) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return std::nullopt;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::string transports = "UCX_TLS=shm,self";
    std::string path = fmt::format("PATH={}", std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
    std::array<char*, 3> environment{transports.data(), path.data(), nullptr};
    Child child;
    const int failed =
        ::posix_spawn(&child.pid_, kProgram, &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    child.out_ = Socket(ends[0]);
    if (failed != 0) child.pid_ = -1;
    return failed == 0 ? std::optional(std::move(child)) : std::nullopt;
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), out_(std::move(other.out_)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  /// All that it prints until it ends; nothing if it fails or takes too long.
  std::optional<std::string> finish(std::uint64_t until_ns) {
    std::string text;
    std::array<char, 4096> some{};
    while (now_ns() < until_ns) {
      pollfd one{.fd = out_.fd(), .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, 100) <= 0) continue;
      const ssize_t got = ::read(out_.fd(), some.data(), some.size());
      if (got > 0) text.append(some.data(), static_cast<std::size_t>(got));
      if (got != 0) continue;
      int status = 0;
      const bool ended = ::waitpid(pid_, &status, 0) == pid_;
      pid_ = -1;
      return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? std::optional(text) : std::nullopt;
    }
    return std::nullopt;
  }

 private:
  Child() = default;
  pid_t pid_ = -1;
  Socket out_;
};

/// The numbers of the last line, which are separated by commas.
std::vector<double> last_line(const std::string& text) {
  std::vector<double> numbers;
  const std::string line = text.substr(0, text.find_last_not_of('\n') + 1);
  const char* at = line.c_str() + (line.rfind('\n') == std::string::npos ? 0 : line.rfind('\n') + 1);
  for (char* end = nullptr;; at = end + 1) {
    numbers.push_back(std::strtod(at, &end));
    if (end == at || *end != ',') return numbers;
  }
}

std::uint64_t iterations(Kind kind, std::uint32_t bytes) {
  if (kind != Kind::kStream) return 50'000;
  return std::clamp<std::uint64_t>((512U << 20U) / bytes, 200, 100'000);
}

/// Of the children that have been waited for.
std::uint64_t interruptions_of_children() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<std::uint64_t>(usage.ru_nivcsw);
}

Result<Reached> run_both(Kind kind, std::uint32_t bytes, const CorePair& cores) {
  const Error no_answer{.code = Errc::kTimeout, .text = "ucx_perftest told nothing"};
  std::string port;
  {
    const auto free = tcp_listen("127.0.0.1", 0);
    if (!free) return free.error();
    port = std::to_string(tcp_local_port(*free));
  }
  const std::uint64_t until = now_ns() + kLimitNs;
  auto server = Child::start({kProgram, "-p", port, "-c", std::to_string(cores.server), "-f"});
  if (!server) return no_answer;
  const std::string count = std::to_string(iterations(kind, bytes));
  const std::string test = kind == Kind::kRtt ? "tag_lat" : "tag_bw";
  for (int attempt = 0; attempt < kAttempts && now_ns() < until; ++attempt) {
    auto client = Child::start({kProgram, "127.0.0.1", "-p", port, "-c", std::to_string(cores.client), "-t",
                                test, "-s", std::to_string(bytes), "-n", count, "-w", "2000", "-f", "-v"});
    const auto text = client ? client->finish(until) : std::nullopt;
    if (!text) {
      ::usleep(50'000);  // nobody listens yet
      continue;
    }
    // iterations, median latency us, average, overall; MB/s average, overall; messages/s average, overall
    const auto told = last_line(*text);
    if (told.size() < 8) return no_answer;
    if (kind == Kind::kRtt) return Reached{.p50 = 2000 * told[1]};
    return Reached{.rate = kind == Kind::kRate ? told[7] : told[5] * (1U << 20U)};
  }
  return no_answer;
}

}  // namespace

bool has_ucx() {
  return std::filesystem::exists(kProgram);
}

Result<Reached> take_ucx(Kind kind, std::uint32_t bytes, const CorePair& cores) {
  const std::uint64_t before = interruptions_of_children();
  auto reached = run_both(kind, bytes, cores);
  if (reached) reached->interruptions = interruptions_of_children() - before;
  return reached;
}

}  // namespace uroce::apps
