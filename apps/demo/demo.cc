// uroce demo: two processes on this machine exchange RDMA operations; every byte is verified, and the speed
// stands beside that of the bare link and of TCP.
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/compare.h"
#include "apps/common/endpoint.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/port_spec.h"
#include "apps/common/progress.h"
#include "apps/common/stop.h"
#include "apps/common/tell.h"

namespace uroce::apps {
namespace {

constexpr std::uint64_t kBudgetNs = 50 * kSecond;  // no new case is begun after this
constexpr int kFailedExit = 1;
constexpr std::uint64_t kBusy = 500;  // interruptions of a link's measurements that are worth a word

constexpr Case kCases[] = {{Kind::kRtt, 64},
                           {Kind::kRtt, 288},
                           {Kind::kRate, 64},
                           {Kind::kStream, 64U << 10U},
                           {Kind::kStream, 1U << 20U}};

struct Options {
  bool quick = false;
};

/// A directory for sockets that nobody else can use; removed at the end, however this process ends.
class PrivateDirectory {
 public:
  /// Its path() is empty if none can be made.
  PrivateDirectory() {
    std::error_code error;
    std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    if (!error) parent = std::filesystem::absolute(parent, error);
    path_ = (parent / "uroce-demo-XXXXXX").string();
    if (error || ::mkdtemp(path_.data()) == nullptr) path_.clear();
    if (!path_.empty()) start_keeper();
  }
  ~PrivateDirectory() {
    if (path_.empty()) return;
    remove();
    if (keeper_ < 0) return;
    ::kill(keeper_, SIGKILL);
    ::waitpid(keeper_, nullptr, 0);
    ::close(held_);
  }
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  /// A process that waits for the end of all others that hold the pipe: this one, and those that it forks.
  void start_keeper() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    keeper_ = ::fork();
    if (keeper_ == 0) {
      ::setsid();  // the terminal's signals are for the others
      ::close(ends[1]);
      for (const int inherited : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(inherited);
      char none = 0;
      while (::read(ends[0], &none, 1) < 0 && errno == EINTR) {
      }
      remove();
      ::_exit(0);
    }
    ::close(ends[0]);
    held_ = ends[1];
  }

  std::string path_;
  pid_t keeper_ = -1;
  int held_ = -1;
};

struct LinkSpec {
  std::string name;
  std::string port;
  bool is_optional = false;  ///< not every machine has it
};

/// Everything a run has, and what came out of it.
class Demo {
 public:
  Demo(Config config, CorePair cores, Options options, bool quiet)
      : config_(std::move(config)), cores_(cores), options_(options), progress_(quiet) {}

  Result<Json> run(const std::vector<LinkSpec>& links) {
    auto tcp = TcpUnderTest::start(cores_);
    if (!tcp) return tcp.error();
    tcp_.emplace(std::move(*tcp));
    for (const auto& link : links) {
      if (auto ran = run_link(link); !ran) return ran.error();
      if (is_stopped()) return stopped();
    }
    progress_.clear();
    Json result = run_json("uroce.demo/1", config_);
    result.update({{"machine", machine_json()},
                   {"verified", errors_ == 0 && operations_ > 0},
                   {"errors", errors_},
                   {"rows", rows_json(rows_)},
                   {"operations", operations_},
                   {"bytes", bytes_},
                   {"cores", cores_.text()},
                   {"tcp", {{"path", tcp_->path}, {"congestion", tcp_->congestion}}},
                   {"failure", failure_},
                   {"notes", notes_},
                   {"seconds", static_cast<double>((now_ns() - begin_) / kMillisecond) / 1000.0}});
    return result;
  }

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  [[nodiscard]] bool uses_hugepages() const noexcept { return !config_.no_huge; }

 private:
  void note(const std::string& text) {
    notes_.push_back(text);
    progress_.note(text);
  }

  /// A failure that is no lack of something on this machine.
  void broken(const std::string& link, const Error& error) {
    if (is_stopped()) return;
    ++errors_;
    if (failure_.empty()) failure_ = fmt::format("{}: {}", link, error.text);
    note(fmt::format("{}: {}", link, error.text));
  }

  /// @return a failure that makes the whole run pointless.
  Status run_link(const LinkSpec& spec) {
    progress_.step(fmt::format("{}: starting two processes", spec.name));
    auto link = start(spec);
    if (!link && link.error().code == Errc::kNoHugepages && !config_.no_huge) {
      note("no hugepages on this machine: ordinary pages are used (as with --no-huge)");
      config_.no_huge = true;
      link = start(spec);
    }
    if (link) {
      if (verify(*link)) measure_all(*link);
      return {};
    }
    const Error& error = link.error();
    if (error.code == Errc::kPeer || error.code == Errc::kTimeout) {
      broken(spec.name, error);
    } else if (error.code == Errc::kConfig || !spec.is_optional) {
      return error;
    } else {
      note(fmt::format("{} is not available here: {}", spec.name, error.text));
    }
    return {};
  }

  Result<LinkUnderTest> start(const LinkSpec& spec) {
    return LinkUnderTest::start(spec.name, cores_, config_,
                                {port_spec_for_end(spec.port, false), port_spec_for_end(spec.port, true)});
  }

  bool verify(LinkUnderTest& link) {
    progress_.step(fmt::format("{}: SEND, WRITE, READ and atomics, every byte verified", link.name));
    const Json request = {{"op", "verify"}, {"seed", config_.seed}, {"rounds", options_.quick ? 1 : 4}};
    Json client = request;
    Json server = request;
    client["client"] = true;
    server["client"] = false;
    const auto answers = link.uroce.call(client, server, 20 * kSecond);
    if (!answers) {
      broken(link.name, answers.error());
      return false;
    }
    const auto errors = answers->client.at("errors").get<std::uint64_t>();
    errors_ += errors;
    operations_ += answers->client.at("operations").get<std::uint64_t>();
    bytes_ += answers->client.at("bytes").get<std::uint64_t>();
    note(fmt::format("{}: {} operations with {:.1f} MB verified, {} errors", link.name,
                     answers->client.at("operations").get<std::uint64_t>(),
                     answers->client.at("bytes").get<double>() / 1e6, errors));
    if (errors > 0) failure_ = answers->client.at("first_error").get<std::string>();
    return errors == 0;
  }

  void measure_all(LinkUnderTest& link) {
    const Plan plan{.rounds = 3,
                    .run_ns = (options_.quick ? 25 : 120) * kMillisecond,
                    .with_all = false,
                    .cores = cores_};
    for (const auto& one : kCases) {
      if (now_ns() - begin_ > kBudgetNs) {
        note("out of time: the rest is left out");
        break;
      }
      const auto rows =
          measure(link, *tcp_, one, plan, [&](const std::string& text) { progress_.step(text); });
      for (const auto& text : std::exchange(link.notes, {})) note(text);
      if (!rows) return broken(link.name, rows.error());
      rows_.insert(rows_.end(), rows->begin(), rows->end());
    }
    if (link.interruptions > kBusy && !cores_.shared) {  // else the two processes interrupt each other
      note(fmt::format(
          "{}: other programs took the cores {} times; the figures would be better on an idle machine",
          link.name, link.interruptions));
    }
  }

  Config config_;
  CorePair cores_;
  Options options_;
  Progress progress_;
  std::uint64_t begin_ = now_ns();
  std::optional<TcpUnderTest> tcp_;
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
  std::string failure_;  ///< the first one
  std::uint64_t errors_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t bytes_ = 0;
};

/// @param options  that further commands need, too; empty or after a space
void print_text(const Json& result, const std::vector<Row>& rows, const std::string& program,
                const std::string& options) {
  fmt::print("\n{}\n", rows_table(rows));
  fmt::print(
      "Two processes, {}. raw link: frames of the same size without protocol. TCP over {}, {}, "
      "TCP_NODELAY.\n",
      result.at("cores").get<std::string>(), result.at("tcp").at("path").get<std::string>(),
      result.at("tcp").at("congestion").get<std::string>());
  fmt::print(
      "\"uroce is\": how many times faster than the column before it; samples taken in turns, medians.\n");
  fmt::print("{}", rates_text(rows));
  fmt::print("Verified {} operations, {:.1f} MB: {} errors. {:.1f} s.\n",
             result.at("operations").get<std::uint64_t>(), result.at("bytes").get<double>() / 1e6,
             result.at("errors").get<std::uint64_t>(), result.at("seconds").get<double>());
  fmt::print(
      "\nNext:\n"
      "  {0} perf send_lat{1}                # a server in one terminal ...\n"
      "  {0} perf send_lat{1} localhost      # ... and its client in another\n"
      "  {0} perf write_bw{1} -a --verify localhost   (its server: {0} perf write_bw{1})\n"
      "  {0} bench link{1} --port shm:bench  # where the time goes: raw link, with CRC and copies, TCP\n"
      "  {0} --help\n",
      program, options);
}

/// By whichever way.
bool is_port_given(const SharedOptions& shared) {
  const auto port = std::ranges::find(config_keys(), "port", &ConfigKey::name);
  return shared.origin(*port) != Origin::kDefault;
}

Error one_end(const std::string& port) {
  return {.code = Errc::kInvalid,
          .text = fmt::format(
              "demo needs both ends of a link: --port shm:NAME, memif:/PATH or vhost:/PATH. {0} is one end; "
              "with another interface of this machine: uroce bench link --port {0} --peer-port "
              "af_packet:IFACE; between two hosts: uroce perf send_lat --port {0}",
              port)};
}

/// None, and a note that says why, where its socket would have a path that a port does not take.
std::optional<LinkSpec> memif_link(const std::string& directory) {
  if (directory.empty()) {
    tell("uroce: note: no memif, for no directory can be made for its socket; is TMPDIR right?\n");
    return std::nullopt;
  }
  const LinkSpec link{
      .name = "memif", .port = fmt::format("memif:{}/demo.sock", directory), .is_optional = true};
  constexpr std::size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  const std::size_t longest = another_link(link.port, kBareSuffix).size() - std::strlen("memif:");
  if (longest <= kMost && directory.find(',') == std::string::npos) return link;
  tell(
      "uroce: note: no memif: its socket's path may have {} bytes at most and no comma, set TMPDIR; it would "
      "be in "
      "{}\n",
      kMost, directory);
  return std::nullopt;
}

int run(const SharedOptions& shared, const Options& options) {
  auto config = shared.resolve();
  if (!config) return fail(config.error());
  const auto cores = cores_from(config->lcores);
  if (!cores) return fail(cores.error());
  std::optional<PrivateDirectory> directory;
  std::vector<LinkSpec> links;
  if (is_port_given(shared)) {
    if (is_one_end(config->port)) return fail(one_end(config->port));
    links.push_back({config->port.substr(0, config->port.find(':')), config->port, false});
  } else {
    if (auto memif = memif_link(directory.emplace().path())) links.push_back(*memif);
    links.push_back({"shm", fmt::format("shm:demo-{}", ::getpid()), false});
  }
  if (config->seed == 0) config->seed = 1;
  Demo demo(without_addresses(*config), *cores, options, false);
  const auto result = demo.run(links);
  tell_of_captures(config->pcap);
  if (!result) return fail(result.error());
  if (shared.json()) {
    fmt::print("{}\n", to_text(*result, 2));
  } else {
    print_text(*result, demo.rows(), program_invocation_name, demo.uses_hugepages() ? "" : " --no-huge");
  }
  if (result->at("verified").get<bool>()) return 0;
  tell("uroce: verification failed; {}\n", result->at("failure").get<std::string>());
  return kFailedExit;
}

}  // namespace

void add_demo(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand(
      "demo", "two processes exchange RDMA operations on this machine: verified, and timed beside TCP");
  const auto shared = std::make_shared<SharedOptions>(*command);
  const auto options = std::make_shared<Options>();
  command->add_flag("--quick", options->quick, "fewer and shorter samples");
  command->callback([=, &exit_code] { exit_code = run(*shared, *options); });
}

}  // namespace uroce::apps
