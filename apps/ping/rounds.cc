#include "apps/ping/rounds.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "apps/common/cores.h"
#include "apps/common/stop.h"

namespace uroce::apps::ping {
namespace {

constexpr std::uint32_t kSends = 16;

template <typename T>
void put_be(std::byte* out, T value) noexcept {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out[i] = static_cast<std::byte>(value >> 8 * (sizeof value - 1 - i));
  }
}

template <typename T>
T get_be(const std::byte* in) noexcept {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    value = static_cast<T>(value << 8 | std::to_integer<T>(in[i]));
  }
  return value;
}

Error full(const char* queue) {
  return {.code = Errc::kSystem, .text = fmt::format("the {} queue took no work request", queue)};
}

}  // namespace

Offer Offer::parse(std::span<const std::byte, kSize> in) noexcept {
  return {.addr = get_be<std::uint64_t>(in.data()),
          .rkey = Rkey{get_be<std::uint32_t>(in.data() + 8)},
          .bytes = get_be<std::uint32_t>(in.data() + 12)};
}

void Offer::emit(std::span<std::byte, kSize> out) const noexcept {
  put_be(out.data(), addr);
  put_be(out.data() + 8, raw(rkey));
  put_be(out.data() + 12, bytes);
}

void fill_text(std::span<std::byte> out, std::uint64_t number) noexcept {
  constexpr char kFirst = 'A';
  constexpr char kLast = 'z';
  constexpr unsigned kLetters = kLast - kFirst + 1;
  std::array<char, 40> head{};
  const auto end = fmt::format_to_n(head.data(), head.size(), "rdma-ping-{}: ", number % 2'147'483'648U);
  const std::size_t length = std::min(end.size, out.size());
  std::memcpy(out.data(), head.data(), length);
  auto letter = static_cast<unsigned>(number % kLetters);
  for (auto& byte : out.subspan(length)) {
    byte = static_cast<std::byte>(static_cast<unsigned>(kFirst) + letter);
    letter = (letter + 1) % kLetters;
  }
  out.back() = std::byte{0};
}

Side::Side(Device& device, std::uint32_t bytes, bool is_client)
    : bytes_(bytes), is_client_(is_client), give_way_(when_to_give_way(device.config())) {}

Result<std::unique_ptr<Side>> Side::create(Device& device, std::uint32_t bytes, bool is_client) {
  std::unique_ptr<Side> side(new Side(device, bytes, is_client));
  if (auto made = side->make(device); !made) return made.error();
  return side;
}

Status Side::make(Device& device) {
  auto pd = Pd::create(device);
  if (!pd) return pd.error();
  pd_.emplace(std::move(*pd));
  auto cq = Cq::create(device, 2 * kSends + kSlots);
  if (!cq) return cq.error();
  cq_.emplace(std::move(*cq));
  const std::uint32_t shared = access::kRemoteRead | access::kRemoteWrite;
  auto memory = Mr::alloc(*pd_, std::size_t{bytes_} * (is_client_ ? 2 : 1),
                          access::kLocalWrite | (is_client_ ? shared : 0));
  if (!memory) return memory.error();
  memory_.emplace(std::move(*memory));
  auto slots = Mr::alloc(*pd_, kSlots * Offer::kSize, access::kLocalWrite);
  if (!slots) return slots.error();
  slots_.emplace(std::move(*slots));
  auto qp = Qp::create(
      *pd_, *cq_, *cq_,
      {.max_send_wr = kSends, .max_recv_wr = kSlots, .max_inline_data = Offer::kSize, .sq_sig_all = true});
  if (!qp) return qp.error();
  qp_.emplace(std::move(*qp));
  if (auto moved = qp_->modify({.state = QpState::kInit}, qp_attr::kInitMask); !moved) return moved;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (auto posted = post_receive(slot); !posted) return posted;
  }
  return {};
}

Status Side::post_receive(std::uint32_t slot) {
  const Sge sge = slots_->sge(slot * Offer::kSize, Offer::kSize);
  if (qp_->post_recv(RecvWr{.wr_id = slot, .sges = {&sge, 1}})) return {};
  return full("receive");
}

Status Side::send(const Offer& offer) {
  std::array<std::byte, Offer::kSize> bytes{};
  offer.emit(bytes);
  const Sge sge{.addr = reinterpret_cast<std::uint64_t>(bytes.data()), .length = Offer::kSize};
  if (qp_->post_send(SendWr{.sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = send_flag::kInline}))
    return {};
  return full("send");
}

Status Side::post_rdma(WrOpcode opcode, const Offer& with) {
  const Sge sge = memory_->sge(0, used_);
  if (qp_->post_send(
          SendWr{.sges = {&sge, 1}, .opcode = opcode, .remote_addr = with.addr, .rkey = with.rkey}))
    return {};
  return full("send");
}

Status Side::on_completion(const Wc& wc) {
  if (!wc.ok()) {
    auto why = qp_->error_text();
    if (why.empty()) why = describe_vendor_err(wc.vendor_err);
    return Error{.code = Errc::kPeer,
                 .text = fmt::format("{}{}{}", to_string(wc.status), why.empty() ? "" : ": ", why)};
  }
  if (wc.opcode != WcOpcode::kRecv) return {};
  if (wc.byte_len != Offer::kSize) {
    return Error{
        .code = Errc::kPeer,
        .text = fmt::format("the peer sent {} bytes where rping sends {}: it speaks another protocol",
                            wc.byte_len, Offer::kSize)};
  }
  const auto slot = static_cast<std::uint32_t>(wc.wr_id);
  offer_ = Offer::parse(slots_->memory().subspan(slot * Offer::kSize).first<Offer::kSize>());
  return post_receive(slot);
}

/// The QP's requests are flushed: because the peer wants no more, or is gone.
Result<Side::Outcome> Side::end() {
  if (!connection_->wait_end(std::chrono::seconds(1)))
    return Error{.code = Errc::kPeer, .text = "the connection has failed: " + qp_->error_text()};
  if (!connection_->end_text().empty()) return Error{.code = Errc::kPeer, .text = connection_->end_text()};
  return Outcome::kEnded;
}

Result<Side::Outcome> Side::wait_for(WcOpcode wanted) {
  constexpr unsigned kLook = 1024;  // polls between looks at the connection
  for (std::uint32_t polls = 1;; ++polls) {
    if (wanted == WcOpcode::kRecv && offer_) return Outcome::kDone;
    Wc wc;
    if (cq_->poll({&wc, 1}) == 1) {
      if (wc.status == WcStatus::kWrFlushErr) return end();
      if (auto handled = on_completion(wc); !handled) return handled.error();
      if (wc.opcode == wanted && wanted != WcOpcode::kRecv) return Outcome::kDone;
      continue;
    }
    if (give_way_.is_due(polls)) ::sched_yield();
    if (polls % kLook != 0) continue;
    if (is_stopped()) return Outcome::kStopped;
    if (!connection_->is_connected()) return end();
  }
}

Result<Side::Outcome> Side::ask(std::uint64_t number) {
  fill_text(source(), number);
  used_ = bytes_;
  const Sge from = memory_->sge(0, bytes_);
  const Sge to = memory_->sge(bytes_, bytes_);
  const std::uint64_t begin = now_ns();
  for (const Sge& sge : {from, to}) {
    if (auto sent = send({.addr = sge.addr, .rkey = memory_->rkey(), .bytes = bytes_}); !sent)
      return sent.error();
    const auto answered = wait_for(WcOpcode::kRecv);
    if (!answered || *answered != Outcome::kDone) return answered;
    offer_.reset();
  }
  took_ = now_ns() - begin;
  return Outcome::kDone;
}

Result<Side::Outcome> Side::answer() {
  for (const WrOpcode opcode : {WrOpcode::kRdmaRead, WrOpcode::kRdmaWrite}) {
    const auto offered = wait_for(WcOpcode::kRecv);
    if (!offered || *offered != Outcome::kDone) return offered;
    const Offer offer = *std::exchange(offer_, std::nullopt);
    if (opcode == WrOpcode::kRdmaRead) used_ = offer.bytes;
    if (offer.bytes > bytes_ || offer.bytes < used_) {
      return Error{.code = Errc::kPeer,
                   .text = fmt::format("the client offers {} bytes, this server has {}; start it with -S {}",
                                       offer.bytes, bytes_, offer.bytes)};
    }
    if (auto posted = post_rdma(opcode, offer); !posted) return posted.error();
    const bool is_read = opcode == WrOpcode::kRdmaRead;
    const auto done = wait_for(is_read ? WcOpcode::kRdmaRead : WcOpcode::kRdmaWrite);
    if (!done || *done != Outcome::kDone) return done;
    if (auto sent = send({}); !sent) return sent.error();
  }
  return Outcome::kDone;
}

}  // namespace uroce::apps::ping
