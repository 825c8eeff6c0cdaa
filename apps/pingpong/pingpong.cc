// uroce pingpong: SEND ping-pong with another uroce or with ibv_{rc,uc,ud,srq}_pingpong of rdma-core.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/cores.h"
#include "apps/common/endpoint.h"
#include "apps/common/tell.h"
#include "apps/common/worker.h"
#include "apps/pingpong/common.h"
#include "apps/pingpong/payload.h"

namespace uroce::apps {
namespace {

constexpr std::uint64_t kReceiveId = 1;
constexpr std::uint64_t kSendId = 2;

/// One run: device, QP, buffer, and how far it is.
class PingPong {
 public:
  static Result<PingPong> create(const Config& config, const PingPongOptions& options);

  Status exchange();
  /// @return seconds from the first send to the last completion
  Result<double> run();
  [[nodiscard]] const QpAddress& local() const noexcept { return link_->address(); }
  [[nodiscard]] const QpAddress& remote() const noexcept { return remote_; }
  [[nodiscard]] std::uint64_t data_errors() const noexcept { return payload_.errors(); }

 private:
  PingPong(Device device, Pd pd, const PingPongOptions& options)
      : device_(std::make_unique<Device>(std::move(device))),
        pd_(std::make_unique<Pd>(std::move(pd))),
        options_(options),
        payload_(options.size, !options.host.empty(), [own = device_.get()] { own->progress(); }) {}

  [[nodiscard]] std::span<std::byte> message() const noexcept {
    return memory_->memory().subspan(options_.headroom());
  }
  Status connect();
  Status post_receives(std::uint32_t count);
  Status post_send();
  Status on_completion(const Wc& wc);
  [[nodiscard]] bool left_unacknowledged(const Wc& wc) const noexcept;
  [[nodiscard]] bool is_done() const noexcept {
    return received_ >= options_.iterations && sent_ >= options_.iterations;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Pd> pd_;
  std::unique_ptr<Mr> memory_;
  std::unique_ptr<Link> link_;
  PingPongOptions options_;
  Payload payload_;
  QpAddress remote_;
  Socket peer_;
  std::uint32_t receives_posted_ = 0;
  std::uint32_t sent_ = 0;  ///< completed
  std::uint32_t received_ = 0;
  bool send_pending_ = false;
  bool receive_pending_ = true;
};

Result<PingPong> PingPong::create(const Config& config, const PingPongOptions& options) {
  auto device = Device::open(config);
  if (!device) return device.error();
  const auto mtu = checked_path_mtu(options, *device);
  if (!mtu) return mtu.error();
  auto pd = Pd::create(*device);
  if (!pd) return pd.error();
  PingPong self(std::move(*device), std::move(*pd), options);
  auto memory =
      Mr::alloc(*self.pd_, options.headroom() + std::max<std::size_t>(options.size, 1), access::kLocalWrite);
  if (!memory) return memory.error();
  self.memory_ = std::make_unique<Mr>(std::move(*memory));
  self.payload_.fill(self.message(), 0);
  const Wiring wiring{.qp = {.type = options.type(), .max_send_wr = 1, .max_recv_wr = options.rx_depth},
                      .path_mtu = *mtu,
                      .gid_index = options.gid_index};
  auto link = Link::create(*self.device_, *self.pd_, wiring);
  if (!link) return link.error();
  self.link_ = std::make_unique<Link>(std::move(*link));
  return self;
}

Status PingPong::exchange() {
  auto peer = exchange_addresses(*device_, options_, std::span(&local(), 1), std::span(&remote_, 1),
                                 [this] { return connect(); });
  if (!peer) return peer.error();
  peer_ = std::move(*peer);
  return {};
}

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
    tell("uroce: note: the peer left without acknowledging the last message\n");
  } else if (!wc.ok()) {
    Error error = link_->failure(wc);
    const bool is_too_long = wc.status == WcStatus::kLocLenErr || wc.status == WcStatus::kRemInvReqErr;
    if (is_too_long) error.text += "; give both ends the same -s and -m";
    if (wc.status == WcStatus::kRetryExcErr && link_trouble(*device_).empty())
      error.text += fmt::format("; is its --type {}, too?", options_.type_name);
    return error;
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
  if (options_.check && options_.is_client()) payload_.fill(message(), sent_);
  return post_send();
}

Result<double> PingPong::run() {
  const std::uint64_t begin = now_ns();
  if (options_.is_client()) {
    if (auto posted = post_send(); !posted) return posted.error();
  }
  while (!is_done()) {
    std::array<Wc, 2> wcs;
    const auto count = next_completions(*device_, link_->cq(), options_, peer_, wcs);
    if (!count) return count.error();
    // Behind a last message that nobody acknowledged come the receives that were flushed with it.
    for (std::size_t i = 0; i < *count && !is_done(); ++i) {
      if (auto handled = on_completion(wcs[i]); !handled) return handled.error();
    }
  }
  const double seconds = static_cast<double>(now_ns() - begin) / 1e9;
  linger(*device_, kLingerNs);
  tell_of_lost_frames(*device_);
  return seconds;
}

int run(const SharedOptions& shared, const PingPongOptions& options) {
  const auto config = shared.resolve();
  if (!config) return fail(config.error());
  tell_of_link_mtu(shared, *config);
  if (auto pinned = pin_application(*config); !pinned) return fail(pinned.error());
  if (options.is_shared()) return run_shared_pingpong(*config, options, shared.json());
  auto run = PingPong::create(*config, options);
  if (!run) return fail(run.error());
  if (!shared.json()) fmt::print("  local address:  {}\n", to_string(run->local()));
  std::fflush(stdout);  // a script may wait for the line
  if (auto exchanged = run->exchange(); !exchanged) return fail(exchanged.error());
  if (!shared.json()) fmt::print("  remote address: {}\n", to_string(run->remote()));
  std::fflush(stdout);
  const auto seconds = run->run();
  if (!seconds) return fail(seconds.error());
  return report(*config, options, shared.json(), *seconds, run->data_errors(),
                Json::object({{"local", to_wire(run->local())}, {"remote", to_wire(run->remote())}}));
}

}  // namespace

void add_pingpong(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand(
      "pingpong", "SEND ping-pong; talks to ibv_rc_pingpong and its like, which must be started with -g");
  const auto shared = std::make_shared<SharedOptions>(*command);
  const auto options = std::make_shared<PingPongOptions>();
  command->add_option("host", options->host, "the server; without it, be the server")->check(check_host);
  command->add_option("--type", options->type_name, "transport, as in the name ibv_TYPE_pingpong")
      ->check(CLI::IsMember({"rc", "uc", "ud", "srq"}));
  command->add_option("-q,--num-qp", options->num_qp, "srq: RC QPs that share their receives")
      ->check(CLI::Range(1U, kSharedQps));
  command->add_option("-p,--tcp-port", options->tcp_port, "TCP port for the exchange of addresses")
      ->check(check_port);
  command->add_option("-s,--size", options->size, "message size")->check(CLI::Range(1U, 1U << 31U));
  command->add_option("-m,--path-mtu", options->path_mtu, "path MTU")
      ->check(CLI::IsMember({256U, 512U, 1024U, 2048U, 4096U}));
  command->add_option("-r,--rx-depth", options->rx_depth, "receives to post at a time")
      ->check(CLI::Range(2U, 32768U));
  command->add_option("-n,--iters", options->iterations, "exchanges")->check(CLI::Range(1U, 1'000'000'000U));
  command->add_option("-l,--sl", options->service_level,
                      "service level; RoCE v2 has none, taken and left unused");
  command->add_option("-g,--gid-idx,--gid-index", options->gid_index,
                      "GID index (default: the first IPv4 address)");
  command
      ->add_option("--give-up-ms", options->give_up_ms,
                   "end after so many milliseconds without progress (default: never)")
      ->default_str("")
      ->check(CLI::Range(0U, 86'400'000U));
  command
      ->add_option_function<std::uint32_t>(
          "--give-up", [options](std::uint32_t seconds) { options->give_up_ms = 1000 * seconds; },
          "likewise, seconds (default: never)")
      ->check(CLI::Range(0U, 86'400U));
  command->add_flag("-e,--events", options->events, "sleep on CQ events instead of polling");
  command->add_flag("-c,--chk,--verify", options->check, "validate received data");
  command->callback([=, &exit_code] { exit_code = run(*shared, *options); });
}

}  // namespace uroce::apps
