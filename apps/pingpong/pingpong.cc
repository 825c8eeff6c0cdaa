// uroce pingpong: SEND ping-pong with another uroce or with ibv_{rc,uc,ud}_pingpong of rdma-core.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/cores.h"
#include "apps/common/endpoint.h"
#include "apps/common/worker.h"
#include "apps/pingpong/payload.h"

namespace uroce::apps {
namespace {

constexpr std::uint64_t kReceiveId = 1;
constexpr std::uint64_t kSendId = 2;
constexpr std::uint64_t kLingerNs = 300 * kMillisecond;  // over four acknowledgement timeouts of the peer
constexpr std::uint64_t kConnectNs = 5 * kSecond;

struct Options {
  std::string host;
  std::string type_name = "rc";
  std::uint16_t tcp_port = 18515;
  std::uint32_t size = 4096;
  std::uint32_t path_mtu = 1024;
  std::uint32_t iterations = 1000;
  std::uint32_t rx_depth = 500;
  std::optional<std::uint32_t> gid_index;
  unsigned service_level = 0;
  unsigned seconds = 0;  // without progress, before giving up; 0: never
  bool events = false;
  bool check = false;

  [[nodiscard]] QpType type() const noexcept {
    return type_name == "uc" ? QpType::kUc : type_name == "ud" ? QpType::kUd : QpType::kRc;
  }
  /// Bytes in front of a received message: those of its network header.
  [[nodiscard]] std::uint32_t headroom() const noexcept { return type() == QpType::kUd ? kGrhBytes : 0; }
};

/// One run: device, QP, buffer, and how far it is.
class PingPong {
 public:
  static Result<PingPong> create(const Config& config, const Options& options);

  Status exchange();
  /// @return seconds from the first send to the last completion
  Result<double> run();
  [[nodiscard]] const QpAddress& local() const noexcept { return link_->address(); }
  [[nodiscard]] const QpAddress& remote() const noexcept { return remote_; }
  [[nodiscard]] std::uint64_t data_errors() const noexcept { return payload_.errors(); }

 private:
  PingPong(Device device, Pd pd, const Options& options)
      : device_(std::make_unique<Device>(std::move(device))),
        pd_(std::make_unique<Pd>(std::move(pd))),
        options_(options),
        payload_(options.size, !options.host.empty()) {}

  [[nodiscard]] std::span<std::byte> message() const noexcept {
    return memory_->memory().subspan(options_.headroom());
  }
  [[nodiscard]] bool is_client() const noexcept { return !options_.host.empty(); }
  Status connect();
  Status post_receives(std::uint32_t count);
  Status post_send();
  Status on_completion(const Wc& wc);
  [[nodiscard]] bool left_unacknowledged(const Wc& wc) const noexcept;
  Result<std::size_t> next(std::span<Wc> wcs);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Pd> pd_;
  std::unique_ptr<Mr> memory_;
  std::unique_ptr<Link> link_;
  Options options_;
  Payload payload_;
  QpAddress remote_;
  std::uint32_t receives_posted_ = 0;
  std::uint32_t sent_ = 0;  ///< completed
  std::uint32_t received_ = 0;
  bool send_pending_ = false;
  bool receive_pending_ = true;
};

Result<PingPong> PingPong::create(const Config& config, const Options& options) {
  const auto mtu = path_mtu_from_bytes(options.path_mtu);
  if (!mtu) return Error{.code = Errc::kInvalid, .text = "path MTU is 256, 512, 1024, 2048 or 4096"};
  auto device = Device::open(config);
  if (!device) return device.error();
  if (*mtu > device->active_mtu()) {
    return Error{
        .code = Errc::kInvalid,
        .text = fmt::format("path MTU {} does not fit the port, which takes {} at most; use -m {}",
                            options.path_mtu, bytes(device->active_mtu()), bytes(device->active_mtu()))};
  }
  if (options.type() == QpType::kUd && options.size > bytes(device->active_mtu())) {
    return Error{.code = Errc::kInvalid,
                 .text = fmt::format("a datagram has {} bytes at most on this port; use -s {}",
                                     bytes(device->active_mtu()), bytes(device->active_mtu()))};
  }
  auto pd = Pd::create(*device);
  if (!pd) return pd.error();
  PingPong self(std::move(*device), std::move(*pd), options);
  auto memory =
      Mr::alloc(*self.pd_, options.headroom() + std::max<std::size_t>(options.size, 1), access::kLocalWrite);
  if (!memory) return memory.error();
  self.memory_ = std::make_unique<Mr>(std::move(*memory));
  self.payload_.fill(self.message(), 0);
  const Wiring wiring{.qp = {.type = options.type(), .max_send_wr = 1, .max_recv_wr = options.rx_depth},
                      .path_mtu = mtu,
                      .gid_index = options.gid_index};
  auto link = Link::create(*self.device_, *self.pd_, wiring);
  if (!link) return link.error();
  self.link_ = std::make_unique<Link>(std::move(*link));
  return self;
}

Status PingPong::exchange() {
  if (is_client()) {
    const std::uint64_t until = now_ns() + kConnectNs;
    auto socket = tcp_connect(options_.host, options_.tcp_port, until);
    if (!socket) return socket.error();
    if (auto sent = send_address(*socket, local(), until); !sent) return sent;
    if (auto ready = wait_readable(*device_, *socket, until); !ready) return ready;
    auto remote = receive_address(*socket, until);
    if (!remote) return remote.error();
    remote_ = *remote;
    if (auto connected = connect(); !connected) return connected;
    return send_done(*socket, until);
  }
  auto listener = tcp_listen("", options_.tcp_port);
  if (!listener) return listener.error();
  if (auto ready = wait_readable(*device_, *listener, 0); !ready) return ready;
  auto socket = tcp_accept(*listener, 0);
  if (!socket) return socket.error();
  const std::uint64_t until = now_ns() + kConnectNs;
  if (auto ready = wait_readable(*device_, *socket, until); !ready) return ready;
  auto remote = receive_address(*socket, until);
  if (!remote) return remote.error();
  remote_ = *remote;
  if (auto connected = connect(); !connected) return connected;
  if (auto sent = send_address(*socket, local(), until); !sent) return sent;
  if (auto ready = wait_readable(*device_, *socket, until); !ready) return ready;
  return receive_done(*socket, until);
}

/// The client sends nothing before the server has done this.
Status PingPong::connect() {
  if (auto connected = link_->connect(remote_); !connected) return connected;
  return post_receives(options_.rx_depth);
}

Status PingPong::post_receives(std::uint32_t count) {
  const Sge sge = memory_->sge(0, options_.headroom() + options_.size);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!link_->qp().post_recv(RecvWr{.wr_id = kReceiveId, .sges = {&sge, 1}})) {
      return Error{.code = Errc::kSystem, .text = "the receive queue took no more work requests"};
    }
    ++receives_posted_;
  }
  return {};
}

Status PingPong::post_send() {
  const Sge sge = memory_->sge(options_.headroom(), options_.size);
  const SendWr wr{
      .wr_id = kSendId, .sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = send_flag::kSignaled};
  send_pending_ = true;
  receive_pending_ = true;
  if (link_->post_send(wr)) return {};
  return Error{.code = Errc::kSystem, .text = "the send queue took no work request"};
}

/// The last message of all: a peer that ends as soon as it has it does not repeat an ACK that was lost.
bool PingPong::left_unacknowledged(const Wc& wc) const noexcept {
  return wc.status == WcStatus::kRetryExcErr && wc.wr_id == kSendId && received_ == options_.iterations &&
         sent_ + 1 == options_.iterations;
}

/// A message goes out when the last one has completed and its answer is there.
Status PingPong::on_completion(const Wc& wc) {
  if (left_unacknowledged(wc)) {
    fmt::print(stderr, "uroce: note: the peer left without acknowledging the last message\n");
  } else if (!wc.ok()) {
    return link_->failure(wc);
  }
  if (wc.wr_id == kSendId) {
    ++sent_;
    send_pending_ = false;
  } else {
    if (--receives_posted_ <= 1) {
      if (auto posted = post_receives(options_.rx_depth - receives_posted_); !posted) return posted;
    }
    if (options_.check) payload_.check(message(), wc.byte_len - options_.headroom(), received_);
    ++received_;
    receive_pending_ = false;
  }
  if (send_pending_ || receive_pending_ || sent_ >= options_.iterations) return {};
  if (options_.check && is_client()) payload_.fill(message(), sent_);
  return post_send();
}

/// At least one completion, unless the time is over.
Result<std::size_t> PingPong::next(std::span<Wc> wcs) {
  const std::uint64_t until = options_.seconds == 0 ? UINT64_MAX : now_ns() + options_.seconds * kSecond;
  Patience patience(until, must_give_way(device_->config()));
  while (true) {
    if (const std::size_t count = link_->cq().poll(wcs); count > 0) return count;
    bool over = false;
    if (options_.events) {
      (void)link_->cq().wait(std::chrono::milliseconds(100));
      over = now_ns() >= until;
    } else {
      over = patience.is_over();
    }
    if (over)
      return Error{.code = Errc::kTimeout, .text = fmt::format("nothing came for {} s", options_.seconds)};
  }
}

Result<double> PingPong::run() {
  const std::uint64_t begin = now_ns();
  if (is_client()) {
    if (auto posted = post_send(); !posted) return posted.error();
  }
  while (received_ < options_.iterations || sent_ < options_.iterations) {
    std::array<Wc, 2> wcs;
    const auto count = next(wcs);
    if (!count) return count.error();
    for (std::size_t i = 0; i < *count; ++i) {
      if (auto handled = on_completion(wcs[i]); !handled) return handled.error();
    }
  }
  const double seconds = static_cast<double>(now_ns() - begin) / 1e9;
  linger(*device_, kLingerNs);
  return seconds;
}

void print_result(const Options& options, double seconds) {
  const double usec = seconds * 1e6;
  const double total = 2.0 * options.size * options.iterations;
  fmt::print("{:.0f} bytes in {:.2f} seconds = {:.2f} Mbit/sec\n", total, seconds, total * 8 / usec);
  fmt::print("{} iters in {:.2f} seconds = {:.2f} usec/iter\n", options.iterations, seconds,
             usec / options.iterations);
}

Json result_json(const Options& options, const PingPong& run, double seconds) {
  return {{"role", options.host.empty() ? "server" : "client"},
          {"type", to_string(options.type())},
          {"bytes", options.size},
          {"iterations", options.iterations},
          {"path_mtu", options.path_mtu},
          {"seconds", seconds},
          {"usec_per_iteration", seconds * 1e6 / options.iterations},
          {"checked", options.check},
          {"data_errors", run.data_errors()},
          {"local", to_wire(run.local())},
          {"remote", to_wire(run.remote())}};
}

int run(const SharedOptions& shared, const Options& options) {
  const auto config = shared.resolve();
  if (!config) return fail(config.error());
  if (auto pinned = pin_application(*config); !pinned) return fail(pinned.error());
  auto run = PingPong::create(*config, options);
  if (!run) return fail(run.error());
  if (!shared.json()) fmt::print("  local address:  {}\n", to_string(run->local()));
  std::fflush(stdout);  // a script may wait for the line
  if (auto exchanged = run->exchange(); !exchanged) return fail(exchanged.error());
  if (!shared.json()) fmt::print("  remote address: {}\n", to_string(run->remote()));
  const auto seconds = run->run();
  if (!seconds) return fail(seconds.error());
  if (shared.json()) {
    fmt::print("{}\n", result_json(options, *run, *seconds).dump(2));
  } else {
    print_result(options, *seconds);
    if (options.check) fmt::print("{} bytes of received data were wrong\n", run->data_errors());
  }
  if (run->data_errors() == 0) return 0;
  fmt::print(stderr, "uroce: invalid data received\n");
  return 1;
}

}  // namespace

void add_pingpong(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand(
      "pingpong", "SEND ping-pong; talks to ibv_rc_pingpong and its like, which must be started with -g");
  const auto shared = std::make_shared<SharedOptions>(*command);
  const auto options = std::make_shared<Options>();
  command->add_option("host", options->host, "the server; without it, be the server");
  command
      ->add_option("--type", options->type_name, "transport, as in the name ibv_TYPE_pingpong (default: rc)")
      ->check(CLI::IsMember({"rc", "uc", "ud"}));
  command->add_option("-p,--tcp-port", options->tcp_port, "TCP port for the exchange of addresses");
  command->add_option("-s,--size", options->size, "message size")->check(CLI::Range(1U, 1U << 31U));
  command->add_option("-m,--path-mtu", options->path_mtu, "path MTU")
      ->check(CLI::IsMember({256U, 512U, 1024U, 2048U, 4096U}));
  command->add_option("-r,--rx-depth", options->rx_depth, "receives to post at a time")
      ->check(CLI::Range(2U, 32768U));
  command->add_option("-n,--iters", options->iterations, "exchanges")->check(CLI::Range(1U, 1'000'000'000U));
  command->add_option("-l,--sl", options->service_level,
                      "service level; RoCE v2 has none, taken and left unused");
  command->add_option("-g,--gid-idx", options->gid_index, "GID index (default: the first IPv4 address)");
  command->add_option("--give-up", options->seconds,
                      "end after this many seconds without progress (default: never)");
  command->add_flag("-e,--events", options->events, "sleep on CQ events instead of polling");
  command->add_flag("-c,--chk", options->check, "validate received data");
  command->callback([=, &exit_code] { exit_code = run(*shared, *options); });
}

}  // namespace uroce::apps
