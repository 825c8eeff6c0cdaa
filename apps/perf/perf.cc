// uroce perf: perftest's tests, options and tables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/cm_address.h"
#include "apps/common/cores.h"
#include "apps/common/json_text.h"
#include "apps/common/progress.h"
#include "apps/common/result_file.h"
#include "apps/common/tell.h"
#include "apps/perf/report.h"

namespace uroce::apps {
namespace perf {
namespace {

constexpr std::uint32_t kLatencyIterations = 10'000;
constexpr std::uint32_t kBandwidthIterations = 5'000;
constexpr const char* kJsonFile = "perftest_out.json";

/// @param results  of all sizes before one that fails
Status drive(Session& session, Results& results) {
  const TestSpec& spec = session.spec();
  std::vector<std::uint32_t> sizes = {spec.size};
  if (spec.all_sizes) {
    sizes.clear();
    for (std::uint32_t size = 2; size <= spec.largest(); size *= 2) sizes.push_back(size);
  }
  Progress progress;
  for (const auto size : sizes) {
    progress.step(fmt::format("{}: {} bytes", spec.name(), size));
    const auto on_second = [&](const Second& second) {
      progress.note(second_text(spec, session.local(), size, second));
    };
    if (spec.latency) {
      auto one = measure_latency(session, size, on_second);
      if (!one) return one.error();
      results.latency.emplace_back(size, std::move(*one));
      if (const auto& ended = results.latency.back().second.ended) return is_stopped() ? Status{} : *ended;
    } else {
      auto one = measure_bandwidth(session, size, on_second);
      if (!one) return one.error();
      results.bandwidth.emplace_back(size, *one);
      if (one->ended) return is_stopped() ? Status{} : *one->ended;
    }
  }
  if (!is_stopped()) (void)session.say({{"end", true}});  // else nothing has come to its end
  return {};
}

/// Those of the client.
Status await_results(const LocalOptions& local, AwaitedFiles& files) {
  if (!local.is_client()) return {};
  for (const auto& file : {local.json_file, local.hgrm_file}) {
    if (auto added = files.add(file); !added) return added;
  }
  return {};
}

/// A server has taken options in vain.
void tell_of_clients_options(const LocalOptions& local) {
  std::vector<std::string_view> vain;
  if (!local.json_file.empty()) vain.emplace_back("--out_json_file");
  if (!local.hgrm_file.empty()) vain.emplace_back("--hgrm");
  if (local.as_it_came) vain.emplace_back("-U");
  if (local.sorted) vain.emplace_back("-H");
  if (local.least_bandwidth > 0) vain.emplace_back("-w");
  if (local.least_rate > 0) vain.emplace_back("-y");
  if (vain.empty()) return;
  tell("uroce: note: {} {} the client's: a server has no results\n", fmt::join(vain, ", "),
       vain.size() == 1 ? "is" : "are");
}

int drive_and_tell(Session& session, const LocalOptions& local, bool json, const std::vector<int>& cores) {
  Results results;
  const Status driven = drive(session, results);
  if (!driven && results.empty()) return fail(driven.error());
  const TestSpec& spec = session.spec();
  const auto as_json = to_text(results_json(session, results, cores), 2);
  print_samples(spec, local, results);
  fmt::print("{}", json ? as_json + "\n" : results_text(spec, local, results));
  if (const auto written = write_file(local.json_file, as_json + "\n"); !written)
    return fail(written.error());
  if (const auto written = write_file(local.hgrm_file, hgrm_text(results)); !written)
    return fail(written.error());
  if (!driven) return fail(driven.error());
  std::string wrong = below_limit(local, results);
  if (results.data_errors() > 0) wrong = fmt::format("{} bytes or values were wrong", results.data_errors());
  if (wrong.empty()) return 0;
  tell("uroce: {}\n", wrong);
  return 1;
}

int run_client(Session& session, const LocalOptions& local, bool json, const std::vector<int>& cores) {
  const int exit_code = drive_and_tell(session, local, json, cores);
  tell_of_lost_frames(session.device());
  return exit_code;
}

/// That QPs can be spread over: how many the client wants the server learns later.
unsigned most_loops(const LocalOptions& local, const TestSpec& wish) {
  if (wish.latency) return 1;
  return local.is_client() ? wish.qps : std::numeric_limits<unsigned>::max();
}

/// Whether there is memory for the results, if each is kept.
Status check_room(const LocalOptions& local, const TestSpec& wish) {
  if (!local.is_client() || !local.as_it_came) return {};
  const std::uint64_t most = Extent(wish.seconds, wish.iterations, local.rate, 1).most();
  if (most == UINT64_MAX) return {};  // nobody knows
  constexpr unsigned kSizes = 23;     // of -a
  const std::uint64_t bytes = most * (wish.all_sizes ? kSizes : 1) * sizeof(std::uint64_t);
  const std::uint64_t available = memory_available();
  if (bytes <= available) return {};
  return Error{.code = Errc::kNoMemory,
               .text = fmt::format("-U: {} results need {} MiB, {} are available here; take -H, --hgrm FILE "
                                   "or fewer (-n, -D, --rate)",
                                   bytes / sizeof(std::uint64_t), bytes >> 20U, available >> 20U)};
}

/// What this machine and this mode can do of what was asked for.
Status check_possible(const LocalOptions& local, const TestSpec& wish, Mode mode) {
  if (local.sleeps && mode == Mode::kApp) {
    return Error{.code = Errc::kInvalid,
                 .text = "-e: in mode app nobody runs the loop while the program sleeps; take --mode auto"};
  }
  if (local.cycles && !TickClock::has_invariant_counter()) {
    return Error{.code = Errc::kUnsupported,
                 .text = "-C: the time stamp counter is not steady here, cycles tell no time; leave out -C"};
  }
  return check_room(local, wish);
}

int run_test(const SharedOptions& shared, const LocalOptions& local, const TestSpec& wish) {
  Config base;
  if (local.sleeps) base.mode = Mode::kAuto;  // in mode app nobody would wake it
  const auto config = shared.resolve(base);
  if (!config) return fail(config.error());
  if (auto possible = check_possible(local, wish, config->mode); !possible) return fail(possible.error());
  AwaitedFiles files;
  if (auto awaited = await_results(local, files); !awaited) return fail(awaited.error());
  if (!local.is_client()) tell_of_clients_options(local);
  tell_of_link_mtu(shared, *config);
  const auto cores = allowed_cores();
  if (auto pinned = pin_application(*config, most_loops(local, wish)); !pinned) return fail(pinned.error());
  const auto announce = [&](const Device& device) {
    if (local.is_client() || shared.json()) return;
    const std::string port =
        local.tcp_port == LocalOptions{}.tcp_port ? "" : fmt::format(" -p {}", local.tcp_port);
    const std::string type = wish.is_reliable() ? "" : fmt::format(" -c {}", to_string(wish.type));
    fmt::print("{0}: waiting for a client on {1} port {2} (uroce perf {0}{3}{4}{5} {6})\n", wish.name(),
               local.by_cm ? "RDMA-CM" : "TCP", local.tcp_port, type, local.by_cm ? " -R" : "", port,
               local.by_cm ? own_host(device) : "HOST");
    std::fflush(stdout);
  };
  const auto session = Session::open(*config, local, wish, announce);
  if (!session) return fail(session.error());
  if (local.is_client()) return run_client(**session, local, shared.json(), cores);
  const auto served = serve(**session);
  if (served) linger((*session)->device(), 100 * kMillisecond);
  tell_of_lost_frames((*session)->device());
  if (!served) return fail(served.error());
  const TestSpec& spec = (*session)->spec();
  fmt::print("{}",
             shared.json() ? to_text(served_json(**session, *served)) + "\n" : served_text(spec, *served));
  return 0;
}

int run(const SharedOptions& shared, const LocalOptions& local, const TestSpec& wish) {
  try {
    return run_test(shared, local, wish);
  } catch (const Json::exception&) {  // of what the peer sent
    return fail({.code = Errc::kPeer,
                 .text = "the peer answers something unexpected; is it the same version of `uroce perf`?"});
  }
}

/// What depends on the kind of test.
TestSpec defaults(Verb verb, bool latency) {
  TestSpec spec{.verb = verb, .latency = latency};
  spec.size = verb == Verb::kAtomic ? 8 : latency ? 2 : 65536;
  spec.iterations = latency ? kLatencyIterations : kBandwidthIterations;
  if (!latency && verb != Verb::kSend) spec.rx_depth = 1;
  if (latency) spec.cq_mod = 1;  // as perftest does
  return spec;
}

struct Command {
  TestSpec spec;
  LocalOptions local;
  std::string atomic_type = "FETCH_AND_ADD";
  std::string connection = "RC";
  std::string ignored;
  bool ignored_flag = false;
  bool into_default_file = false;
};

/// "RC, UC and UD"
const char* connections(const TestSpec& spec) {
  if (!spec.has(QpType::kUc)) return "RC";
  return spec.has(QpType::kUd) ? "RC, UC and UD" : "RC and UC";
}

/// What is wrong with -c; empty: nothing.
std::string check_connection(const TestSpec& spec, const std::string& text) {
  if (const auto type = type_from(text); type && spec.has(*type)) return "";
  if (text == "XRC" && spec.verb != Verb::kAtomic)
    return fmt::format("uroce perf has no XRC: uroce run -- ib_{} -c XRC", spec.name());
  return fmt::format("{} has {} only", spec.name(), connections(spec));
}

/// What is wrong with options that are each right; empty: nothing.
std::string check_together(const Command& own, bool json) {
  const LocalOptions& local = own.local;
  if (local.sleeps && own.spec.latency && own.spec.verb == Verb::kWrite)
    return "-e: a WRITE that arrives brings no event; take send_lat or read_lat";
  if (own.spec.is_datagram() && local.by_cm)
    return "-R: UD has no connections that RDMA-CM could make; leave out -R, or take -c UC";
  if (own.spec.is_datagram() && own.spec.path_mtu != 0 && own.spec.size > own.spec.path_mtu)
    return fmt::format("-s {}: a message of UD is one packet, of {} bytes at most; take -s {} or a larger -m",
                       own.spec.size, own.spec.path_mtu, own.spec.path_mtu);
  if (local.by_cm && local.service_level != 0)
    return "-S: RDMA-CM takes no service level; leave out -S or -R, or take -T";
  if (own.spec.all_sizes && !local.hgrm_file.empty())
    return "--hgrm: a file has one distribution; take -s instead of -a";
  if (json && (local.sorted || local.as_it_came))
    return "-H and -U print text: leave --json out, and have it in a file by --out_json_file FILE";
  return "";
}

void add_ignored_options(CLI::App& command, Command& own) {
  const std::string why = "taken for perftest's sake; has no effect";
  command.add_flag("-F,--CPU-freq", own.ignored_flag, why);
  command.add_option("-d,--ib-dev", own.ignored, why + ": --port names the link")->type_name("DEV");
  command.add_option("-i,--ib-port", own.ignored, why + ": a device has one port")->type_name("N");
}

/// What perftest may be told that holds here anyway.
void add_needless_options(CLI::App& command, Command& own) {
  const std::string unlisted;
  for (const char* flag : {"--use_old_post_send", "--use_hugepages", "--disable_pcie_relaxed",
                           "--dont_xchg_versions", "--mr_per_qp"})
    command.add_flag(flag, own.ignored_flag)->group(unlisted);
  if (own.spec.latency) command.add_flag("--perform_warm_up", own.ignored_flag)->group(unlisted);
  command.add_option("--force-link", own.ignored)
      ->check(CLI::IsMember({"Ethernet", "ETHERNET", "ethernet"}))
      ->group(unlisted);
}

void add_local_options(CLI::App& command, Command& own) {
  LocalOptions& local = own.local;
  command.add_option("host", local.host, "the server; without it, be the server")->check(check_host);
  command
      .add_option("-p,--tcp-port", local.tcp_port,
                  "port on which the two sides agree: of TCP, with -R of RDMA-CM")
      ->check(check_port);
  command.add_flag("-R,--rdma_cm", local.by_cm, "agree and connect by RDMA-CM, without TCP; not UD");
  command.add_option("-x,--gid-index", local.gid_index, "GID index (default: the first IPv4 address)");
  command.add_flag("--report_gbits", local.gigabits, "bandwidth in Gb/sec");
  command.add_flag("-N,--noPeak", local.no_peak, "no peak bandwidth");
  command.add_option("--out_json_file", local.json_file, "write the result as JSON into FILE")
      ->type_name("FILE");
  command.add_flag("--out_json", own.into_default_file, fmt::format("likewise, into {}", kJsonFile));
  command
      .add_option("-S,--sl", local.service_level, "service level: the priority in a VLAN; each end its own")
      ->check(CLI::Range(0U, 7U));
  command
      .add_option("-T,--tos,--tclass", local.traffic_class,
                  "traffic class: DSCP << 2 | ECN; each end its own, with -R the client's for both")
      ->check(CLI::Range(0U, 255U));
  command.add_flag("-e,--events", local.sleeps,
                   "sleep on CQ events instead of polling; --mode is auto unless it is given");
  add_ignored_options(command, own);
  add_needless_options(command, own);
}

void add_latency_options(CLI::App& command, Command& own) {
  TestSpec& spec = own.spec;
  command.add_flag("-C,--report-cycles", own.local.cycles, "in cycles of the processor's time stamp counter");
  command.add_flag("-H,--report-histogram", own.local.sorted, "print all results, sorted, within 0.4 %");
  command.add_flag("-U,--report-unsorted", own.local.as_it_came, "print all results as they came");
  command
      .add_option("--rate", own.local.rate,
                  "begin so many a second, at fixed times; a latency then counts from the time at which the "
                  "operation was due, however late it begins")
      ->default_str("")
      ->check(CLI::Range(1.0, most::kRate));
  command
      .add_option(
          "--hgrm", own.local.hgrm_file,
          "write the distribution of the whole round trips into FILE, as HdrHistogram's plotters read it")
      ->type_name("FILE");
  if (!spec.is_ping_pong()) return;
  command
      .add_option("-Q,--cq-mod", spec.cq_mod,
                  "wait for the completion of every N-th message before the next comes or goes (default: of "
                  "each, as perftest does); 0: of none")
      ->check(CLI::Range(0U, most::kDepth));
}

void add_bandwidth_options(CLI::App& command, Command& own) {
  TestSpec& spec = own.spec;
  command.add_option("-q,--qp", spec.qps, "number of QPs")->check(CLI::Range(1U, most::kQps));
  command.add_option("-l,--post_list", spec.post_list, "work requests posted at a time")
      ->check(CLI::Range(1U, most::kList));
  command.add_option("-Q,--cq-mod", spec.cq_mod, "one completion for so many operations")
      ->check(CLI::Range(1U, most::kDepth));
  command.add_flag("-b,--bidirectional", spec.bidirectional, "both sides send");
  command.add_flag("--perform_warm_up", own.local.warms_up,
                   "of each QP so many operations as the send queue takes before those that count; the "
                   "client's holds for both");
  command
      .add_option("-w,--limit_bw", own.local.least_bandwidth,
                  "exit code 1 if the average bandwidth is less, in the unit of the table")
      ->check(CLI::Range(0.0, 1e9));
  command.add_option("-y,--limit_msgrate", own.local.least_rate, "exit code 1 if there are less Mpps")
      ->check(CLI::Range(0.0, 1e9));
}

std::string connection_help(const TestSpec& spec) {
  std::string help = fmt::format("{}: the client's holds for both", connections(spec));
  if (!spec.has(QpType::kUc)) return help;
  help += spec.latency ? ". Not over RC: a message without an answer is sent again, from 20 ms on, and not "
                         "timed; none in 10 s ends the test"
                       : ". Not over RC: messages may be lost, and both ends tell how many were";
  return help + (spec.has(QpType::kUd) ? ". UD: -s is the path MTU at most" : "");
}

void add_test_options(CLI::App& command, Command& own) {
  TestSpec& spec = own.spec;
  const auto depth = CLI::Range(1U, most::kDepth);
  command.add_option("-c,--connection", own.connection, connection_help(spec))
      ->check([spec](const std::string& type) { return check_connection(spec, type); });
  if (spec.verb != Verb::kAtomic) {
    command.add_option("-s,--size", spec.size, "message size")->check(CLI::Range(1U, most::kSize));
    command.add_flag("-a,--all", spec.all_sizes,
                     spec.has(QpType::kUd) ? "all sizes from 2 to 2^23, of UD to the path MTU"
                                           : "all sizes from 2 to 2^23");
  } else {
    command.add_option("-A,--atomic_type", own.atomic_type, "FETCH_AND_ADD or CMP_AND_SWAP")
        ->check(CLI::IsMember({"FETCH_AND_ADD", "CMP_AND_SWAP"}));
  }
  command.add_option("-n,--iters", spec.iterations, "operations (per QP)")
      ->check(CLI::Range(1U, most::kIterations));
  command
      .add_option("-D,--duration", spec.seconds,
                  spec.latency
                      ? "seconds to run, instead of -n; each is told on stderr. With --rate none is, "
                        "and all that is due in the time is done, in a fifth more at most"
                      : "seconds to run, instead of -n; each is told on stderr")
      ->default_str("")
      ->check(CLI::Range(1U, most::kSeconds));
  command.add_option("-m,--path-mtu", spec.path_mtu, "path MTU (default: what both ports allow)")
      ->default_str("")
      ->check(CLI::IsMember({256U, 512U, 1024U, 2048U, 4096U}));
  command.add_option("-t,--tx-depth", spec.tx_depth, "depth of the send queue")->check(depth);
  command.add_option("-r,--rx-depth", spec.rx_depth, "receives posted")->check(CLI::Range(2U, most::kDepth));
  command.add_option("-I,--inline_size", spec.inline_bytes, "largest message that is posted inline");
  command.add_option("-o,--outs", spec.outstanding_reads, "READs and atomics in flight")
      ->check(CLI::Range(1U, most::kReads));
  command.add_option("-u,--qp-timeout", spec.timeout, "acknowledgement timeout: 4.096 us << N")
      ->check(CLI::Range(0U, most::kTimeout));
  command.add_flag("--verify", spec.verify,
                   "check the data: of every SEND, READ and atomic; of WRITEs, what lies there at the end");
  if (spec.latency) {
    add_latency_options(command, own);
  } else {
    add_bandwidth_options(command, own);
  }
}

void add_test(CLI::App& perf, const TestSpec& spec, int& exit_code) {
  const auto own = std::make_shared<Command>();
  own->spec = spec;
  CLI::App* command = perf.add_subcommand(
      spec.name(),
      fmt::format("{} {}", spec.latency ? "latency of" : "bandwidth of",
                  spec.verb == Verb::kAtomic ? "atomics" : spec.name().substr(0, spec.name().find('_'))));
  add_local_options(*command, *own);
  add_test_options(*command, *own);
  const auto shared = std::make_shared<SharedOptions>(*command);
  command->callback([=, &exit_code] {
    if (own->into_default_file && own->local.json_file.empty()) own->local.json_file = kJsonFile;
    own->spec.type = type_from(own->connection).value_or(QpType::kRc);
    const bool has_size = own->spec.verb != Verb::kAtomic && command->count("--size") > 0;
    if (own->spec.is_datagram() && !own->spec.latency && !has_size) own->spec.size = 0;
    own->spec.compare_swap = own->atomic_type == "CMP_AND_SWAP";
    if (const auto wrong = check_together(*own, shared->json()); !wrong.empty()) {
      tell("uroce: {}\n", wrong);
      exit_code = kUsageExit;
      return;
    }
    exit_code = run(*shared, own->local, own->spec);
  });
}

}  // namespace
}  // namespace perf

void add_perf(CLI::App& program, int& exit_code) {
  CLI::App* command =
      program.add_subcommand("perf", "perftest's tests between two programs: server, then client");
  command->require_subcommand(1);
  using perf::Verb;
  for (const auto verb : {Verb::kSend, Verb::kWrite, Verb::kRead, Verb::kAtomic}) {
    for (const bool latency : {true, false})
      perf::add_test(*command, perf::defaults(verb, latency), exit_code);
  }
}

}  // namespace uroce::apps
