#include "apps/perf/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "apps/common/json_text.h"
#include "apps/common/pieces.h"
#include "apps/common/tell.h"

namespace uroce::apps::perf {
namespace {

constexpr std::size_t kMemoryBudget = 64U << 20U;  // bytes for all areas, unless one message needs more

Error too_much(const std::string& what) {
  return {.code = Errc::kInvalid, .text = what};
}

/// 0 if there is none of that name.
std::uint64_t counted(const std::vector<Counter>& counters, std::string_view name) {
  const auto found = std::ranges::find(counters, name, &Counter::name);
  return found == counters.end() ? 0 : found->value;
}

/// Bytes.
std::size_t memory_of_machine() noexcept {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::uint64_t memory_available() {
  std::ifstream info("/proc/meminfo");
  std::uint64_t kib = 0;
  for (std::string word; info >> word;) {
    if (word == "MemAvailable:" && info >> kib) return kib << 10U;
  }
  return memory_of_machine();
}

Result<std::unique_ptr<Session>> Session::open(const Config& config, const LocalOptions& local,
                                               const TestSpec& wish, const OnReady& on_ready) {
  auto device = Device::open(config);
  if (!device) return device.error();
  std::unique_ptr<Session> session(new Session(std::move(*device), local, wish));
  if (auto checked = session->check(); !checked) return checked.error();
  if (auto memory = try_memory(*session->device_); !memory) return memory.error();
  auto control = (local.by_cm ? meet_by_cm : meet_over_tcp)(*session->device_, local, on_ready);
  if (!control) return control.error();
  session->control_ = std::move(*control);
  for (const auto step : {&Session::agree, &Session::make_queues, &Session::make_memory,
                          &Session::await_server, &Session::exchange, &Session::post_receives}) {
    if (auto done = (session.get()->*step)(); !done) {
      if (!session->is_client()) (void)session->say({{"error", done.error().text}});
      return done.error();
    }
  }
  return session;
}

Status Session::check() const {
  if (const auto gid_index = choose_gid(*device_, local_.gid_index); !gid_index) return gid_index.error();
  if (auto checked = check_datagram(); !checked) return checked;
  const std::uint32_t largest = device_->limits().max_inline;
  if (spec_.inline_bytes <= largest) return {};
  return too_much(fmt::format("-I {}: messages of {} bytes at most are posted inline, see `uroce info`",
                              spec_.inline_bytes, largest));
}

Status Session::check_datagram() const {
  if (!spec_.is_datagram() || spec_.all_sizes) return {};
  const std::uint32_t own = uroce::bytes(device_->active_mtu());
  const std::uint32_t most = spec_.path_mtu == 0 ? own : std::min(own, spec_.path_mtu);
  if (spec_.size <= most) return {};
  return too_much(fmt::format(
      "-s {}: a message of UD is one packet, of {} bytes at most on this path; take -s {}, -c UC, "
      "or a larger --mtu at both ends",
      spec_.size, most, most));
}

/// The client's wishes become the server's; the path MTU is what both ports allow, and options are what both
/// ends offer.
Status Session::agree() {
  const std::uint32_t own_mtu = uroce::bytes(device_->active_mtu());
  if (is_client() && spec_.path_mtu == 0) spec_.path_mtu = own_mtu;
  if (auto agreed = is_client() ? ask() : answer(); !agreed) return agreed;
  path_mtu_ = path_mtu_from_bytes(spec_.path_mtu);
  if (!path_mtu_ || spec_.path_mtu > own_mtu) {
    return too_much(
        fmt::format("path MTU {} does not fit the port, which takes {} at most", spec_.path_mtu, own_mtu));
  }
  if (spec_.size == 0) spec_.size = spec_.path_mtu;
  return {};
}

Status Session::ask() {
  Json wish = spec_.to_json();
  wish["ece"] = device_->config().offer().options;
  if (auto said = say(wish); !said) return said;
  const auto answer = hear(kAnswerNs);
  if (!answer) return answer.error();
  if (answer->value("connection", "RC") != to_string(spec_.type)) {
    return Error{.code = Errc::kPeer,
                 .text = fmt::format("the server takes no -c {}: is it an older `uroce perf`?",
                                     to_string(spec_.type))};
  }
  const auto agreed = answer->at("path_mtu").get<std::uint32_t>();
  if (agreed < std::min(spec_.path_mtu, uroce::bytes(device_->active_mtu())))
    tell("uroce: note: path MTU {}: the server's port takes no larger one\n", agreed);
  spec_.path_mtu = agreed;
  options_ = answer->value("ece", 0U);
  return {};
}

Status Session::answer() {
  auto wish = hear(kAnswerNs);
  if (!wish) return wish.error();
  const auto asked = TestSpec::from(*wish);
  if (!asked) return asked.error();
  if (asked->name() != spec_.name()) {
    return Error{.code = Errc::kPeer,
                 .text = fmt::format("the server runs {}, the client {}", spec_.name(), asked->name())};
  }
  if (asked->is_datagram() && local_.by_cm) {
    return Error{.code = Errc::kPeer, .text = "the client wants UD, which RDMA-CM does not connect"};
  }
  spec_ = *asked;
  spec_.path_mtu = std::min(spec_.path_mtu, uroce::bytes(device_->active_mtu()));
  options_ = device_->config().offer().options & wish->value("ece", 0U);
  return say({{"path_mtu", spec_.path_mtu}, {"connection", to_string(spec_.type)}, {"ece", options_}});
}

Status Session::make_queues() {
  if (auto checked = check(); !checked) return checked;  // now for the client's wishes
  const Limits& limits = device_->limits();
  const std::uint64_t entries = std::uint64_t{spec_.qps} * (spec_.tx_depth + spec_.rx_depth);
  if (entries > limits.max_cqe) {
    return too_much(fmt::format("{} QPs of depth {} and {} need more completions than the device holds ({})",
                                spec_.qps, spec_.tx_depth, spec_.rx_depth, limits.max_cqe));
  }
  auto pd = Pd::create(*device_);
  if (!pd) return pd.error();
  pd_.emplace(std::move(*pd));
  const unsigned loops = std::min(device_->loops(), spec_.qps);
  for (unsigned loop = 0; loop < loops; ++loop) {
    const std::uint32_t share = (spec_.qps + loops - 1) / loops;
    auto cq = Cq::create(*device_, share * (spec_.tx_depth + spec_.rx_depth), loop);
    if (!cq) return cq.error();
    cqs_.push_back(std::move(*cq));
  }
  const QpInitAttr attr{.type = spec_.type,
                        .max_send_wr = spec_.tx_depth,
                        .max_recv_wr = spec_.rx_depth,
                        .max_inline_data = spec_.inline_bytes};
  for (std::uint32_t i = 0; i < spec_.qps; ++i) {
    Cq& cq = cqs_[i % loops];
    auto qp = Qp::create(*pd_, cq, cq, attr);
    if (!qp) return qp.error();
    if (spec_.is_reliable()) {
      const Ece agreed{.vendor_id = ece::kVendor, .options = options_};
      if (auto set = qp->set_ece(agreed); !set) return set;
    }
    inline_limit_ = std::min(qp->attr().max_inline_data, spec_.inline_bytes);
    qps_.push_back(std::move(*qp));
  }
  return {};
}

Status Session::make_memory() {
  const std::size_t one = Area::stride(spec_.receive_bytes());
  const std::size_t share = kMemoryBudget / 2 / spec_.qps;
  const std::size_t wanted = one * std::max(spec_.tx_depth, spec_.rx_depth);
  const std::size_t bytes = std::max(one, std::min(wanted, share / 64 * 64));
  for (std::size_t i = 0; i < spec_.qps; ++i) {
    areas_.push_back({.tx = 2 * i * bytes, .rx = (2 * i + 1) * bytes, .bytes = bytes});
  }
  const std::size_t all = 2 * bytes * spec_.qps;
  if (const std::size_t machine = memory_of_machine(); all > machine) {
    return Error{.code = Errc::kNoMemory,
                 .text = fmt::format("{} QPs with messages of {} bytes need {} MiB, this machine has {}",
                                     spec_.qps, spec_.largest(), all >> 20U, machine >> 20U)};
  }
  auto memory = Mr::alloc(*pd_, all, access::kAll);
  if (!memory) return memory.error();
  memory_.emplace(std::move(*memory));
  fill_all(*device_, memory_->memory(), std::byte{0});
  return {};
}

/// While QPs are connected a client hears nothing of why its server cannot go on.
Status Session::await_server() {
  if (!is_client()) return say({{"ready", true}});
  const auto ready = hear(kAnswerNs);
  return ready ? Status{} : ready.error();
}

std::size_t Session::poll(std::span<Wc> out) noexcept {
  Cq& cq = cqs_[next_cq_];
  next_cq_ = next_cq_ + 1 == cqs_.size() ? 0 : next_cq_ + 1;
  const std::size_t count = cq.poll(out);
  if (count != 0) is_armed_ = false;
  return count;
}

/// What came before a CQ was armed brings no event: all of them are polled once more in between.
bool Session::sleep(std::chrono::milliseconds at_most) {
  if (!std::exchange(is_armed_, true)) {
    for (Cq& cq : cqs_) cq.arm();
    empty_since_armed_ = 0;
    return true;
  }
  if (++empty_since_armed_ < cqs_.size()) return true;
  std::vector<pollfd> events;
  for (const Cq& cq : cqs_) events.push_back({.fd = cq.fd(), .events = POLLIN, .revents = 0});
  const bool is_over = ::poll(events.data(), events.size(), static_cast<int>(at_most.count())) == 0;
  for (Cq& cq : cqs_) cq.clear_event();
  is_armed_ = false;
  return !is_over;
}

bool Session::post_receive(std::size_t qp, std::uint64_t slot) noexcept {
  const Sge sge = memory_->sge(receive_slot_offset(qp, slot), spec_.receive_bytes());
  return qps_[qp].post_recv(
      RecvWr{.wr_id = kReceiveFlag | std::uint64_t{qp} << 32U | slot, .sges = {&sge, 1}});
}

/// With --verify no two receives share a slot.
Status Session::post_receives() {
  if (spec_.verb != Verb::kSend) return {};
  for (std::size_t qp = 0; qp < qps_.size(); ++qp) {
    const std::uint64_t slots = areas_[qp].slots(spec_.receive_bytes());
    const std::uint64_t count =
        spec_.verify ? std::min<std::uint64_t>(slots, spec_.rx_depth) : spec_.rx_depth;
    for (std::uint64_t slot = 0; slot < count; ++slot) {
      if (post_receive(qp, slot)) continue;
      return Error{.code = Errc::kSystem, .text = "the receive queue took no more work requests"};
    }
  }
  return {};
}

Status Session::exchange() {
  const auto gid_index = choose_gid(*device_, local_.gid_index);
  if (!gid_index) return gid_index.error();
  const Connecting with{
      .path_mtu = *path_mtu_,
      .depth = static_cast<std::uint8_t>(std::min(spec_.outstanding_reads, device_->limits().max_rd_atomic)),
      .timeout = static_cast<std::uint8_t>(spec_.timeout),
      .gid_index = *gid_index,
      .service_level = static_cast<std::uint8_t>(local_.service_level),
      .traffic_class = static_cast<std::uint8_t>(local_.traffic_class)};
  const auto peers = control_->connect(qps_, with, now_ns() + kAnswerNs);
  if (!peers) return peers.error();
  if (spec_.is_datagram()) {
    if (auto addressed = address_peers(*peers, with); !addressed) return addressed;
  }
  gid_ = device_->gids().at(*gid_index).gid;
  const Json mine = {{"addr", memory_->addr()}, {"rkey", raw(memory_->rkey())}, {"gid", to_string(gid_)}};
  if (auto said = say(mine); !said) return said;
  const auto peer = hear(kAnswerNs);
  if (!peer) return peer.error();
  peer_addr_ = peer->at("addr").get<std::uint64_t>();
  peer_rkey_ = Rkey{peer->at("rkey").get<std::uint32_t>()};
  peer_gid_ = Gid::parse(peer->value("gid", "")).value_or(Gid{});
  return {};
}

Status Session::address_peers(const std::vector<QpAddress>& peers, const Connecting& with) {
  auto ah = Ah::create(*pd_, {.dgid = peers.front().gid,
                              .sgid_index = with.gid_index,
                              .traffic_class = with.traffic_class,
                              .sl = with.service_level});
  if (!ah) return ah.error();
  ah_.emplace(std::move(*ah));
  for (const QpAddress& peer : peers) peer_qpns_.push_back(peer.qpn);
  return {};
}

std::uint64_t Session::messages_come() const {
  return counted(device_->counters(), "responder_messages") - control_->counted_messages();
}

std::uint64_t Session::packets_moved() const {
  const auto all = device_->counters();
  return counted(all, "requester_packets") - counted(all, "requester_repeated_packets") +
         counted(all, "responder_packets");
}

Error Session::undelivered(std::string text) const {
  if (const auto trouble = delivery_trouble(*device_, gid_, peer_gid_); !trouble.empty())
    text += "; " + trouble;
  return {.code = Errc::kPeer, .text = std::move(text)};
}

Status Session::say(const Json& message) {
  return control_->send(to_text(message), now_ns() + kAnswerNs);
}

Result<Json> Session::hear(std::uint64_t timeout_ns) {
  if (is_stopped()) return stopped();
  auto line = control_->receive(now_ns() + timeout_ns);
  if (!line) return line.error();
  Json message = Json::parse(*line, nullptr, false);
  if (!message.is_object()) {
    return Error{.code = Errc::kPeer,
                 .text = "the peer speaks another protocol; is it the same `uroce perf`?"};
  }
  if (message.contains("error")) {
    return Error{.code = Errc::kPeer, .text = "the peer: " + message.at("error").get<std::string>()};
  }
  return message;
}

Error Session::failure(const Wc& wc) const {
  const auto qp = std::ranges::find(qps_, wc.qpn, &Qp::qpn);
  return completion_error(*device_, wc, qp == qps_.end() ? "" : qp->error_text(), gid_, peer_gid_);
}

void Watch::give_way() {
  constexpr auto kNap = std::chrono::milliseconds(5);
  if (!session_.local().sleeps) {
    ::sched_yield();
  } else if (!session_.sleep(kNap)) {
    polls_ |= kPollsMask;  // nothing came: the peer is asked now
  }
}

void Watch::look_for_packets(std::uint64_t now) {
  if (!moved_) {
    moved_ = session_.packets_moved();
  } else if (is_silent() && session_.packets_moved() != moved_) {
    still_since_ = now;
    still_ns_ = 0;
    moved_.reset();
  }
}

}  // namespace uroce::apps::perf
