#include "apps/common/measured_end.h"

#include <algorithm>

namespace uroce::apps {

// Memory: receive slots, two messages to send (an ordinary one and the last of a sample), the stream area.

Result<MeasuredEnd> MeasuredEnd::create(Device& device, Pd& pd, bool give_way, std::uint32_t largest_write) {
  auto memory = Mr::alloc(pd, kStreamAt + std::max(largest_write, Sample::kHotBytes), access::kAll);
  if (!memory) return memory.error();
  Wiring wiring{.qp = {.max_send_wr = kSends, .max_recv_wr = kReceives},
                .timeout = local_link_timeout(device)};
  auto link = Link::create(device, pd, wiring);
  if (!link) return link.error();
  if (auto taken = link->qp().set_ece(device.config().offer()); !taken) return taken.error();
  MeasuredEnd end(std::move(*memory), std::move(*link), give_way);
  std::ranges::fill(end.memory_.memory(), std::byte{0x5a});
  end.memory_.memory()[kSendAt] = std::byte{0};
  end.memory_.memory()[kLastAt] = kLastMark;
  return end;
}

Json MeasuredEnd::describe() const {
  return {{"address", to_wire(link_.address())},
          {"addr", memory_.addr() + kStreamAt},
          {"rkey", raw(memory_.rkey())},
          {"ece", link_.qp().query_ece().options},
          {"path_mtu", bytes(link_.path_mtu())}};
}

Status MeasuredEnd::connect(const Json& peer) {
  const auto address = from_wire(peer.at("address").get<std::string>());
  if (!address) return Error{.code = Errc::kPeer, .text = "the other process sent no QP address"};
  peer_addr_ = peer.at("addr").get<std::uint64_t>();
  peer_rkey_ = Rkey{peer.at("rkey").get<std::uint32_t>()};
  const Ece agreed{.vendor_id = ece::kVendor,
                   .options = link_.qp().query_ece().options & peer.at("ece").get<std::uint32_t>()};
  if (auto taken = link_.qp().set_ece(agreed); !taken) return taken;
  if (auto connected = link_.connect(*address); !connected) return connected;
  for (std::uint32_t first = 0; first < kReceives; first += kRefill) {
    std::array<std::uint32_t, kRefill> slots{};
    for (std::uint32_t i = 0; i < kRefill; ++i) slots[i] = first + i;
    if (!post_receives(slots)) return ring_full();
  }
  return {};
}

Result<Json> MeasuredEnd::run(const Sample& sample, bool client) {
  switch (sample.kind) {
    case Kind::kRtt:
      return client ? rtt_client(sample) : rtt_server(sample);
    case Kind::kRate:
      return client ? rate_client(sample) : rate_server(sample);
    case Kind::kStream:
      return client ? stream_client(sample) : stream_server(sample);
    case Kind::kOpen:
      return client ? open_client(sample) : open_server(sample);
  }
  return Error{.code = Errc::kInvalid, .text = "unknown kind of sample"};
}

bool MeasuredEnd::post_receives(std::span<const std::uint32_t> slots) noexcept {
  std::array<Sge, kRefill> sges;
  std::array<RecvWr, kRefill> wrs;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    sges[i] = memory_.sge(slots[i] * kSlotBytes, kMessageBytes);
    wrs[i] = {.wr_id = slots[i], .sges = {&sges[i], 1}};
  }
  return link_.qp().post_recv(std::span(wrs).first(slots.size())) == slots.size();
}

bool MeasuredEnd::repost(std::uint64_t slot, bool at_once) noexcept {
  used_slots_[used_++] = static_cast<std::uint32_t>(slot);
  if (used_ < kRefill && !at_once) return true;
  const bool posted = post_receives(std::span(used_slots_).first(used_));
  used_ = 0;
  return posted;
}

bool MeasuredEnd::post_message(std::size_t offset, std::uint32_t bytes, bool signaled) noexcept {
  const Sge sge = memory_.sge(offset, bytes);
  return link_.qp().post_send(SendWr{.wr_id = kSendId,
                                     .sges = {&sge, 1},
                                     .opcode = WrOpcode::kSend,
                                     .flags = signaled ? send_flag::kSignaled : std::uint8_t{0}});
}

bool MeasuredEnd::post_messages(std::uint32_t bytes) noexcept {
  const Sge sge = memory_.sge(kSendAt, bytes);
  std::array<SendWr, kBatch> wrs;
  wrs.fill({.wr_id = kSendId, .sges = {&sge, 1}, .opcode = WrOpcode::kSend});
  wrs.back().flags = send_flag::kSignaled;
  return link_.qp().post_send(std::span<const SendWr>(wrs)) == wrs.size();
}

bool MeasuredEnd::post_list(std::span<const std::size_t> offsets, std::uint32_t bytes,
                            std::uint64_t number) noexcept {
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const bool signaled = ++number % kSignalEvery == 0;
    sges_[i] = memory_.sge(offsets[i], bytes);
    wrs_[i] = {.wr_id = kSendId,
               .sges = {&sges_[i], 1},
               .opcode = WrOpcode::kSend,
               .flags = signaled ? send_flag::kSignaled : std::uint8_t{0}};
  }
  return link_.qp().post_send(std::span<const SendWr>(wrs_).first(offsets.size())) == offsets.size();
}

bool MeasuredEnd::post_last(std::uint32_t bytes) noexcept {
  const Sge sge = memory_.sge(kLastAt, bytes);
  last_done_ = false;
  return link_.qp().post_send(
      SendWr{.wr_id = kLastId, .sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = send_flag::kSignaled});
}

bool MeasuredEnd::post_write(std::uint32_t bytes, std::uint64_t number) noexcept {
  const std::uint64_t offset = bytes < Sample::kHotWindow ? number % (Sample::kHotWindow / bytes) * bytes : 0;
  const Sge sge = memory_.sge(kStreamAt + offset, bytes);
  return link_.qp().post_send(SendWr{.wr_id = kWriteId,
                                     .sges = {&sge, 1},
                                     .opcode = WrOpcode::kRdmaWrite,
                                     .flags = send_flag::kSignaled,
                                     .remote_addr = peer_addr_ + offset,
                                     .rkey = peer_rkey_});
}

bool MeasuredEnd::next_message(Wc& wc, Patience& patience) noexcept {
  while (true) {
    if (link_.cq().poll({&wc, 1}) == 0) {
      if (patience.is_over()) return false;
    } else if (!wc.ok() || is_receive(wc)) {
      return wc.ok();
    } else if (wc.wr_id == kLastId) {
      last_done_ = true;
    }
  }
}

Status MeasuredEnd::finish(Patience& patience) noexcept {
  Wc wc;
  while (!last_done_) {
    if (link_.cq().poll({&wc, 1}) == 0) {
      if (patience.is_over()) return stopped({});
    } else if (!wc.ok()) {
      return stopped(wc);
    } else if (wc.wr_id == kLastId) {
      last_done_ = true;
    }
  }
  return {};
}

Status MeasuredEnd::end_stream(Patience& patience) noexcept {
  if (!post_last(1)) return ring_full();
  return finish(patience);
}

Error MeasuredEnd::stopped(const Wc& wc) const {
  if (!wc.ok()) return link_.failure(wc);
  return {.code = Errc::kTimeout, .text = "the other process did not answer in time"};
}

Error MeasuredEnd::ring_full() const {
  const auto why = link_.qp().error_text();
  return {.code = Errc::kSystem, .text = why.empty() ? "a queue of the QP took no more work requests" : why};
}

}  // namespace uroce::apps
