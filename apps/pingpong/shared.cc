// uroce pingpong --type srq: as ibv_srq_pingpong, RC QPs that share one receive queue and one CQ.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "apps/common/cli.h"
#include "apps/common/endpoint.h"
#include "apps/pingpong/common.h"
#include "uroce/srq.h"

namespace uroce::apps {
namespace {

/// What a message may hold: ibv_srq_pingpong has one buffer for all, which is zero until it has received
/// something, and sends that back; so a message here is all this byte, and one from there a mix of both.
constexpr std::byte kOurByte{0x7b};
constexpr std::byte kFirstByte{0};
constexpr std::uint64_t kSend = UINT64_MAX;  // work request; those of receives are their slots
constexpr std::byte kPoison{0xff};           // of a receive that waits

class SharedPingPong {
 public:
  static Result<SharedPingPong> create(const Config& config, const PingPongOptions& options);

  Status exchange();
  /// @return seconds from the first send to the last completion
  Result<double> run();
  [[nodiscard]] std::span<const QpAddress> local() const noexcept {
    return std::span(local_).first(options_.num_qp);
  }
  [[nodiscard]] std::span<const QpAddress> remote() const noexcept {
    return std::span(remote_).first(options_.num_qp);
  }
  [[nodiscard]] std::uint64_t data_errors() const noexcept { return data_errors_; }

 private:
  SharedPingPong(Device device, Pd pd, const PingPongOptions& options)
      : device_(std::make_unique<Device>(std::move(device))),
        pd_(std::make_unique<Pd>(std::move(pd))),
        options_(options) {}

  Status open();
  Status connect();
  Status post_receive(std::uint32_t slot);
  Status post_send(std::size_t index);
  Status on_completion(const Wc& wc);
  void check(const Wc& wc);
  [[nodiscard]] std::size_t find(Qpn qpn) const noexcept;
  [[nodiscard]] std::size_t slot_at(std::uint32_t slot) const noexcept {
    return std::size_t{options_.size} * (1 + slot);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Pd> pd_;
  PingPongOptions options_;
  PathMtu path_mtu_{};
  std::uint32_t gid_index_ = 0;
  std::unique_ptr<Mr> memory_;  // what is sent, then one slot for each receive
  std::unique_ptr<Cq> cq_;
  std::unique_ptr<Srq> srq_;
  struct Pending {
    bool send = false;
    bool receive = true;
  };
  std::vector<Qp> qps_;
  std::vector<Pending> pending_;   // of each QP
  std::vector<QpAddress> local_;   // kSharedQps
  std::vector<QpAddress> remote_;  // likewise
  Socket peer_;
  std::uint32_t sent_ = 0;      // completed, of all QPs together
  std::uint32_t received_ = 0;  // likewise
  std::uint64_t data_errors_ = 0;
};

Result<SharedPingPong> SharedPingPong::create(const Config& config, const PingPongOptions& options) {
  if (options.num_qp > options.rx_depth) {
    return Error{
        .code = Errc::kInvalid,
        .text = fmt::format("{} QPs need as many receives; use -r {}", options.num_qp, options.num_qp)};
  }
  auto device = Device::open(config);
  if (!device) return device.error();
  auto pd = Pd::create(*device);
  if (!pd) return pd.error();
  SharedPingPong self(std::move(*device), std::move(*pd), options);
  if (auto opened = self.open(); !opened) return opened.error();
  return self;
}

Status SharedPingPong::open() {
  const auto mtu = checked_path_mtu(options_, *device_);
  if (!mtu) return mtu.error();
  path_mtu_ = *mtu;
  const auto gid_index = choose_gid(*device_, options_.gid_index);
  if (!gid_index) return gid_index.error();
  gid_index_ = *gid_index;
  auto memory = Mr::alloc(*pd_, slot_at(options_.rx_depth), access::kLocalWrite);
  if (!memory) return memory.error();
  memory_ = std::make_unique<Mr>(std::move(*memory));
  std::ranges::fill(memory_->memory().first(options_.size), kOurByte);
  auto cq = Cq::create(*device_, options_.rx_depth + options_.num_qp);
  if (!cq) return cq.error();
  cq_ = std::make_unique<Cq>(std::move(*cq));
  auto srq = Srq::create(*pd_, {.max_wr = options_.rx_depth});
  if (!srq) return srq.error();
  srq_ = std::make_unique<Srq>(std::move(*srq));
  local_.resize(kSharedQps);
  remote_.resize(kSharedQps);
  pending_.resize(options_.num_qp);
  const Gid gid = device_->gids().at(gid_index_).gid;
  for (std::uint32_t i = 0; i < options_.num_qp; ++i) {
    auto qp = Qp::create(*pd_, *cq_, *cq_, *srq_, {.max_send_wr = 1});
    if (!qp) return qp.error();
    qps_.push_back(std::move(*qp));
    local_[i] = {.lid = 0, .qpn = qps_.back().qpn(), .psn = random_psn(), .gid = gid};
  }
  for (std::uint32_t slot = 0; slot < options_.rx_depth; ++slot) {
    if (auto posted = post_receive(slot); !posted) return posted;
  }
  return {};
}

Status SharedPingPong::exchange() {
  auto peer = exchange_addresses(*device_, options_, local_, remote_, [this] { return connect(); });
  if (!peer) return peer.error();
  peer_ = std::move(*peer);
  return {};
}

Status SharedPingPong::connect() {
  for (std::size_t i = 0; i < qps_.size(); ++i) {
    if (remote_[i].gid.is_zero()) {
      return Error{.code = Errc::kPeer, .text = "the peer has fewer QPs; give both the same -q"};
    }
    if (auto checked = check_addresses(local_[i].gid, remote_[i].gid); !checked) return checked;
    const QpAttr attr = connect_attributes(local_[i], remote_[i], path_mtu_, gid_index_);
    if (auto connected = qps_[i].connect(attr); !connected) return connected;
  }
  return {};
}

Status SharedPingPong::post_receive(std::uint32_t slot) {
  const Sge sge = memory_->sge(slot_at(slot), options_.size);
  if (options_.check) std::ranges::fill(memory_->memory().subspan(slot_at(slot), options_.size), kPoison);
  if (srq_->post_recv(RecvWr{.wr_id = slot, .sges = {&sge, 1}})) return {};
  return Error{.code = Errc::kSystem, .text = "the shared receive queue took no more work requests"};
}

Status SharedPingPong::post_send(std::size_t index) {
  const Sge sge = memory_->sge(0, options_.size);
  pending_[index] = {.send = true, .receive = true};
  if (qps_[index].post_send(SendWr{.wr_id = kSend, .sges = {&sge, 1}, .flags = send_flag::kSignaled}))
    return {};
  return Error{.code = Errc::kSystem, .text = "the send queue took no work request"};
}

std::size_t SharedPingPong::find(Qpn qpn) const noexcept {
  const auto found = std::ranges::find_if(qps_, [qpn](const Qp& qp) { return qp.qpn() == qpn; });
  return static_cast<std::size_t>(found - qps_.begin());
}

void SharedPingPong::check(const Wc& wc) {
  const auto slot = static_cast<std::uint32_t>(wc.wr_id);
  const auto message = memory_->memory().subspan(slot_at(slot), options_.size);
  data_errors_ += static_cast<std::uint64_t>(
      std::ranges::count_if(message, [](std::byte b) { return b != kOurByte && b != kFirstByte; }));
  if (wc.byte_len != options_.size) ++data_errors_;
}

/// A QP sends again when its last message has completed and the answer is there.
Status SharedPingPong::on_completion(const Wc& wc) {
  const std::size_t index = find(wc.qpn);
  if (index == qps_.size()) return Error{.code = Errc::kSystem, .text = "a completion of no QP"};
  const bool is_send = wc.wr_id == kSend;
  // A peer that has all its messages leaves, and does not repeat ACKs that were lost.
  const bool was_left = is_send && wc.status == WcStatus::kRetryExcErr && received_ >= options_.iterations;
  if (!wc.ok() && !was_left) {
    return completion_error(*device_, wc, qps_[index].error_text(), local_[index].gid, remote_[index].gid);
  }
  if (is_send) {
    ++sent_;
    pending_[index].send = false;
  } else {
    ++received_;
    pending_[index].receive = false;
    if (options_.check) check(wc);
    if (auto posted = post_receive(static_cast<std::uint32_t>(wc.wr_id)); !posted) return posted;
  }
  if (was_left || pending_[index].send || pending_[index].receive || sent_ >= options_.iterations) return {};
  return post_send(index);
}

Result<double> SharedPingPong::run() {
  const std::uint64_t begin = now_ns();
  for (std::size_t i = 0; options_.is_client() && i < qps_.size(); ++i) {
    if (auto posted = post_send(i); !posted) return posted.error();
  }
  while (received_ < options_.iterations || sent_ < options_.iterations) {
    std::array<Wc, 16> wcs;
    const auto count = next_completions(*device_, *cq_, options_, peer_, wcs);
    if (!count) return count.error();
    for (const Wc& wc : std::span(wcs).first(*count)) {
      if (auto handled = on_completion(wc); !handled) return handled.error();
    }
  }
  const double seconds = static_cast<double>(now_ns() - begin) / 1e9;
  linger(*device_, kLingerNs);
  tell_of_lost_frames(*device_);
  return seconds;
}

void print_addresses(const char* what, std::span<const QpAddress> addresses) {
  for (const QpAddress& address : addresses) fmt::print("  {} {}\n", what, to_string(address));
  std::fflush(stdout);  // a script may wait for it
}

}  // namespace

int run_shared_pingpong(const Config& config, const PingPongOptions& options, bool json) {
  auto run = SharedPingPong::create(config, options);
  if (!run) return fail(run.error());
  if (!json) print_addresses("local address: ", run->local());
  if (auto exchanged = run->exchange(); !exchanged) return fail(exchanged.error());
  if (!json) print_addresses("remote address:", run->remote());
  const auto seconds = run->run();
  if (!seconds) return fail(seconds.error());
  return report(config, options, json, *seconds, run->data_errors(), Json::object({{"qps", options.num_qp}}));
}

}  // namespace uroce::apps
