// uroce ping: READ and WRITE there and back with another uroce or with rping of librdmacm.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/cm_address.h"
#include "apps/common/cores.h"
#include "apps/common/histogram.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/stop.h"
#include "apps/common/tell.h"
#include "apps/common/worker.h"
#include "apps/ping/rounds.h"

namespace uroce::apps {
namespace ping {
namespace {

struct Options {
  std::string host;  ///< client: the server
  std::string address;
  std::string source;
  bool client = false;
  bool server = false;
  bool persistent = false;
  std::uint16_t port = kDefaultPort;
  std::uint64_t count = 0;  ///< 0: until stopped
  std::uint32_t size = kDefaultBytes;
  bool verbose = false;
  bool verify = false;
  bool debug = false;
  std::uint32_t timeout_ms = 5000;
};

/// Lines of `--debug`, on stderr.
template <typename... Args>
void trace(const Options& options, fmt::format_string<Args...> text, Args&&... args) {
  if (options.debug) tell("ping: {}\n", fmt::format(text, std::forward<Args>(args)...));
}

void print_text(const char* what, std::span<const std::byte> data) {
  const auto end = std::find(data.begin(), data.end(), std::byte{0});
  fmt::print("{}: {}\n", what,
             std::string_view(reinterpret_cast<const char*>(data.data()),
                              static_cast<std::size_t>(end - data.begin())));
}

/// What a client has seen.
struct Tally {
  Histogram ns;
  std::uint64_t errors = 0;      ///< rounds whose data differ
  std::optional<Error> ended{};  ///< before its time, and why

  [[nodiscard]] Json to_json(const Config& config, const Options& options, const CmAddress& peer) const {
    const auto usec = [](std::optional<double> value) { return value ? Json(*value / 1000) : Json(); };
    Json all = run_json("uroce.ping/1", config);
    all.update({{"role", "client"},
                {"peer", to_string(peer)},
                {"bytes", options.size},
                {"round_trips", ns.count()},
                {"min_us", usec(static_cast<double>(ns.min()))},
                {"p50_us", usec(ns.percentile(50))},
                {"p99_us", usec(ns.sound_percentile(99, 1))},
                {"max_us", usec(static_cast<double>(ns.max()))},
                {"verified", options.verify},
                {"data_errors", errors}});
    if (ended) all["ended"] = ended->text;
    return all;
  }

  [[nodiscard]] std::string text(const Options& options, const CmAddress& peer) const {
    const auto p99 = ns.sound_percentile(99, 1);
    return fmt::format(
        "{} round trips of {} bytes with {}: min {:.1f}, p50 {:.1f}, p99 {}, max {:.1f} us{}\n{}", ns.count(),
        options.size, to_string(peer), static_cast<double>(ns.min()) / 1000, ns.percentile(50) / 1000,
        p99 ? fmt::format("{:.1f}", *p99 / 1000) : "n/a", static_cast<double>(ns.max()) / 1000,
        options.verify ? ", data verified" : "",
        ended ? fmt::format("ended before its time: {}\n", ended->text) : "");
  }
};

/// The client's rounds.
Status ask_all(Side& side, const Options& options, Tally& tally) {
  for (std::uint64_t number = 0; options.count == 0 || number < options.count; ++number) {
    if (is_stopped()) return {};
    if (options.verify) std::memset(side.sink().data(), 0, side.sink().size());
    const auto outcome = side.ask(number);
    if (!outcome) return outcome.error();
    if (*outcome == Side::Outcome::kStopped) return {};
    if (*outcome == Side::Outcome::kEnded) {
      return Error{.code = Errc::kPeer,
                   .text = fmt::format("the server ended the connection after {} round trips", number)};
    }
    trace(options, "round {}: {} ns", number, side.nanoseconds());
    tally.ns.add(side.nanoseconds());
    if (options.verify && !std::ranges::equal(side.source(), side.sink())) {
      ++tally.errors;
      return {};
    }
    if (options.verbose) print_text("ping data", side.sink());
  }
  return {};
}

int run_client(Cm& cm, const Options& options, bool json) {
  const auto to = cm_address(options.host, options.port);
  if (!to) return fail(to.error());
  const auto from = cm_address(options.source, 0);
  if (!from) return fail(from.error());
  auto side = Side::create(cm.device(), options.size, true);
  if (!side) return fail(side.error());
  const std::chrono::milliseconds give_up(options.timeout_ms);
  auto connection = Connection::connect(
      cm, (*side)->qp(), {.from = *from, .to = *to, .timeout = give_up, .patience = give_up}, is_stopped);
  if (!connection) return fail(no_server(connection.error(), cm.device(), "uroce ping -s"));
  trace(options, "connected with {}, QP 0x{:06x} there", to_string(*to), raw(connection->peer().peer.qpn));
  (*side)->attach(std::move(*connection));
  stop_is_success = true;
  Tally tally;
  const auto asked = ask_all(**side, options, tally);
  (*side)->disconnect();
  if (!asked && tally.ns.count() == 0) return fail(asked.error());
  if (!asked) tally.ended = asked.error();
  if (json) {
    fmt::print("{}\n", to_text(tally.to_json(cm.device().config(), options, *to), 2));
  } else {
    fmt::print("{}", tally.text(options, *to));
  }
  if (!asked) return fail(asked.error());
  if (tally.errors == 0) return 0;
  tell("uroce: data mismatch: what came back is not what was sent\n");
  return 1;
}

/// One client, from its request to its end. @return its rounds
Result<std::uint64_t> serve(Cm& cm, ConnectionRequest& request, const Options& options) {
  auto side = Side::create(cm.device(), std::max(options.size, kRpingBytes), false);
  if (!side) return side.error();
  const CmTerms& asked = request.peer().peer;
  auto connection = request.accept((*side)->qp(), {.terms = {.responder_resources = asked.initiator_depth}});
  if (!connection) return connection.error();
  trace(options, "connected with {}, QP 0x{:06x} there", to_string(request.peer().remote), raw(asked.qpn));
  (*side)->attach(std::move(*connection));
  std::uint64_t rounds = 0;
  while (true) {
    const auto outcome = (*side)->answer();
    if (!outcome) return outcome.error();
    if (*outcome != Side::Outcome::kDone) return rounds;
    trace(options, "round {}: {} bytes", rounds, (*side)->bytes());
    ++rounds;
    if (options.verbose) print_text("server ping data", (*side)->sink().first((*side)->bytes()));
  }
}

void announce(const Device& device, const Options& options) {
  const std::string port = options.port == kDefaultPort ? "" : fmt::format("-p {} ", options.port);
  fmt::print("ping: waiting on port {} (uroce ping {}{})\n", options.port, port, own_host(device));
  std::fflush(stdout);
}

int run_server(Cm& cm, const Options& options, bool json) {
  const auto at = cm_address(options.address, options.port);
  if (!at) return fail(at.error());
  auto listener = Listener::create(cm, *at);
  if (!listener) return fail(listener.error());
  stop_is_success = true;
  if (!json) announce(cm.device(), options);
  while (!is_stopped()) {
    auto request = listener->wait(std::chrono::milliseconds(50));
    if (!request) continue;
    const auto rounds = serve(cm, *request, options);
    const CmAddress peer = request->peer().remote;
    if (!rounds) {
      const int code = fail(rounds.error());
      if (!options.persistent) return code;
    } else if (json) {
      Json served = run_json("uroce.ping/1", cm.device().config());
      served.update({{"role", "server"}, {"peer", to_string(peer)}, {"round_trips", *rounds}});
      fmt::print("{}\n", to_text(served));
    } else {
      fmt::print("{} round trips with {}\n", *rounds, to_string(peer));
    }
    std::fflush(stdout);
    if (!options.persistent) break;
  }
  return 0;
}

int run(const SharedOptions& shared, const Options& options) {
  const auto config = shared.resolve();
  if (!config) return fail(config.error());
  if (auto pinned = pin_application(*config); !pinned) return fail(pinned.error());
  auto device = Device::open(*config);
  if (!device) return fail(device.error());
  if (auto memory = try_memory(*device); !memory) return fail(memory.error());
  auto cm = Cm::open(*device);
  if (!cm) return fail(cm.error());
  const auto one_side = options.server ? run_server : run_client;
  const int exit_code = one_side(*cm, options, shared.json());
  tell_of_lost_frames(*device);
  return exit_code;
}

/// Which side this is, and who the other one.
void check(Options& options, bool json) {
  if (options.verbose && json) throw CLI::ValidationError("ping", "-v prints text: leave --json out");
  if (options.server && (options.client || !options.host.empty()))
    throw CLI::ValidationError("ping", "is a client (-c, or an address) or a server (-s)");
  if (options.server) return;
  if (options.host.empty()) options.host = options.address;
  if (options.host.empty()) throw CLI::RequiredError("ping: the address of a server, or -s to be one");
}

}  // namespace
}  // namespace ping

void add_ping(CLI::App& program, int& exit_code) {
  constexpr std::uint64_t kMostRounds = 1'000'000'000'000;
  CLI::App* command = program.add_subcommand(
      "ping", "READ and WRITE there and back, connected by address and port; talks to rping");
  const auto shared = std::make_shared<SharedOptions>(*command);
  const auto options = std::make_shared<ping::Options>();
  command->add_option("host", options->host, "the server's address");
  command->add_flag("-c,--client", options->client, "be the client");
  command->add_flag("-s,--server", options->server, "be the server");
  command->add_option("-a,--address", options->address, "client: the server's; server: the one to listen at");
  command->add_option("-I,--source", options->source, "client: the address of the port to use");
  command->add_option("-p,--cm-port", options->port, "port of RDMA-CM")->check(check_port);
  command->add_option("-C,--count", options->count, "round trips (default: until stopped)")
      ->default_str("")
      ->check(CLI::Range(std::uint64_t{0}, kMostRounds));
  command->add_option("-S,--size", options->size, "bytes there and back")
      ->check(CLI::Range(ping::kFewestBytes, 1U << 26U));
  command
      ->add_option("--give-up-ms", options->timeout_ms,
                   "client: for an answer to its request, and a server that starts")
      ->check(CLI::Range(1U, 600'000U));
  command->add_flag("-P,--persistent", options->persistent, "server: one client after the other");
  command->add_flag("-v,--verbose", options->verbose, "print the data");
  command->add_flag("-V,--validate,--verify", options->verify, "client: check the data");
  command->add_flag("-d,--debug", options->debug, "print what happens");
  command->callback([=, &exit_code] {
    ping::check(*options, shared->json());
    exit_code = ping::run(*shared, *options);
  });
}

}  // namespace uroce::apps
