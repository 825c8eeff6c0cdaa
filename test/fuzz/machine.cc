#include "fuzz/machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "uroce/ece.h"
#include "wire/arp.h"

namespace uroce::fuzz {

namespace {

constexpr std::uint32_t kPd = 3;
constexpr Qpn kOwn{0x11};
constexpr Qpn kPeer{0x22};
constexpr MacAddress kPeerMac{{2, 0, 0, 0, 0, 2}};
constexpr std::size_t kGuard = 512;
constexpr std::uint32_t kRights = access::kAll | access::kFlushGlobal | access::kFlushPersistent;
constexpr std::size_t kInbox = 0, kSink = 1, kTarget = 2, kSource = 3, kInvalidatable = 5;
constexpr std::uint32_t kMtu = 256;

wire::FrameAddress from_peer(std::uint8_t traffic_class = 0) {
  return {.src_mac = kPeerMac,
          .dst_mac = {{2, 0, 0, 0, 0, 1}},
          .sgid = Gid::from_v4({10, 0, 0, 2}),
          .dgid = Gid::from_v4({10, 0, 0, 1}),
          .traffic_class = traffic_class};
}

}  // namespace

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

unsigned FuzzPort::rx_burst(std::span<port::RxFrame> frames) noexcept {
  shown_ = std::exchange(arrived_, {});
  const auto count = static_cast<unsigned>(std::min(frames.size(), shown_.size()));
  for (unsigned i = 0; i < count; ++i) {
    frames[i] = {.data = shown_[i].data(), .len = static_cast<std::uint32_t>(shown_[i].size())};
  }
  return count;
}

std::byte* FuzzPort::tx_claim(std::uint32_t len) noexcept {
  if (!has_room) return nullptr;
  claimed_.assign(len, std::byte{0xcc});
  return claimed_.data();
}

void FuzzPort::tx_commit() noexcept {
  wire::PacketView view;
  const auto result = wire::parse_packet(claimed_, view);
  require(!wire::is_drop(result), "a frame left that nobody can read");
  if (result != wire::ParseResult::kRoce) return;
  require(wire::icrc_ok(view), "a packet left with a bad ICRC");
  require(view.bth.dest_qpn == kPeer, "a packet left for somebody else");
  require(view.payload.size() <= kMtu, "a packet left that is longer than the path MTU");
  last = view.bth;
  ++sent;
}

Machine::Machine()
    : keys_(1, [] {}),
      addresses_({{engine::link_local_gid(port_.info().mac), 64}, {Gid::from_v4({10, 0, 0, 1}), 24}},
                 std::nullopt),
      loop_({}, port_, addresses_, 1'000'000),
      cq_(64),
      qp_(kOwn, kPd,
          {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 3, .max_recv_sge = 3, .max_inline_data = 64},
          keys_, loop_.counters(), cq_, cq_) {
  map_memory();
  loop_.add(qp_);
}

Machine::~Machine() {
  loop_.remove(qp_, Ticks{now_ns_});
  munmap(memory_, mapped_);
}

/// Inaccessible pages around everything, guard bytes around each area.
void Machine::map_memory() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  mapped_ = 64 * 1024 + 2 * page;
  void* all = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(all != MAP_FAILED, "mmap");
  memory_ = static_cast<std::byte*>(all);
  require(mprotect(memory_, page, PROT_NONE) == 0, "mprotect");
  require(mprotect(memory_ + mapped_ - page, page, PROT_NONE) == 0, "mprotect");
  areas_.push_back({.at = page});
  pristine_.resize(mapped_ - 2 * page);
  for (std::size_t i = 0; i < pristine_.size(); ++i)
    pristine_[i] = static_cast<std::byte>(i * 131 + (i >> 8));
  std::memcpy(memory_ + page, pristine_.data(), pristine_.size());
  add_area(8192, kPd, access::kLocalWrite, true);                    // kInbox
  add_area(8192, kPd, access::kLocalWrite, true);                    // kSink
  add_area(8192, kPd, kRights | access::kMwBind, true);              // kTarget
  add_area(8192, kPd, 0, false);                                     // kSource
  add_area(4096, kPd + 1, access::kAll, false);                      // of another protection domain
  add_area(4096, kPd, access::kAll | access::kInvalidatable, true);  // kInvalidatable
  add_area(4096, kPd, access::kRemoteRead, false);
  areas_.erase(areas_.begin());
  windows_ = {keys_.insert_window(MwType::kType1, kPd).value(),
              keys_.insert_window(MwType::kType2B, kPd).value()};
}

void Machine::add_area(std::size_t len, std::uint32_t pd, std::uint32_t access, bool may_change) {
  Area area{.at = areas_.back().at + areas_.back().len + kGuard, .len = len, .may_change = may_change};
  require(area.at + len < mapped_ - kGuard, "the areas do not fit");
  area.key = keys_
                 .insert({.addr = std::bit_cast<std::uint64_t>(memory_ + area.at),
                          .length = len,
                          .pd = pd,
                          .access = access})
                 .value();
  areas_.push_back(area);
}

transport::QpBounds Machine::bounds() const noexcept {
  return {.gid_count = 2,
          .max_unacked = 16,
          .hardened = hardened_,
          .credits = hardened_ % 2 == 0,
          .congestion = {.is_on = controls_rate_, .line_bps = 1'000'000'000, .cnp_gap_ns = 5'000}};
}

void Machine::connect() {
  QpAttr attr;
  attr.path_mtu = PathMtu::k256;
  attr.dest_qpn = kPeer;
  attr.rq_psn = Psn{0xff'fffa};
  attr.sq_psn = Psn{0xff'fff0};
  attr.access_flags = kRights;
  attr.dgid = Gid::from_v4({10, 0, 0, 2});
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.timeout = 4;
  qp_.grant(ece::kMaskedAtomics | ece::kJointAcks | (hardened_ % 2 == 0 ? ece::kSelectiveRepeat : 0));
  for (const auto& [state, mask] : {std::pair{QpState::kReset, qp_attr::kState},
                                    {QpState::kInit, qp_attr::kInitMask},
                                    {QpState::kRtr, qp_attr::kRtrMask},
                                    {QpState::kRts, qp_attr::kRtsMask}}) {
    attr.state = state;
    require(loop_.modify(qp_, attr, mask, bounds(), Ticks{now_ns_}).has_value(),
            "the QP cannot be connected");
  }
  if (!peer_known_) {
    const wire::LinkAddress link{.src = kPeerMac, .dst = port_.info().mac};
    std::vector<std::byte> frame(wire::arp_frame_len(link));
    wire::emit_arp_frame(frame.data(), link,
                         wire::make_arp_request(kPeerMac, attr.dgid, Gid::from_v4({10, 0, 0, 1})));
    port_.arrive(std::move(frame));
    peer_known_ = true;
  }
  settle(1000);
}

void Machine::settle(std::uint64_t ns) {
  now_ns_ += ns;
  for (int i = 0; i < 4; ++i) loop_.run_once(Ticks{now_ns_});
}

void Machine::run(std::span<const std::uint8_t> input) {
  port_.has_room = true;
  controls_rate_ = !input.empty() && input.back() % 2 != 0;
  connect();
  poll(1000);
  for (Choices choices(input); !choices.is_empty();) step(choices);
  check_memory();
  check_ping_pong();
}

void Machine::step(Choices& choices) {
  if (qp_.state() != QpState::kRts && choices.below(8) != 0) connect();
  switch (choices.below(16)) {
    case 0:
      post_send(choices);
      break;
    case 1:
    case 2:
    case 8:
    case 9:
      post_recv(choices);
      break;
    case 3:
      pass_time(choices);
      break;
    case 4:
      poll(choices.below(16));
      break;
    case 5:
      receive_raw(choices);
      break;
    case 6:
      modify(choices);
      break;
    case 7:
      port_.has_room = choices.below(4) != 0;
      break;
    default:
      receive(choices);
      break;
  }
}

Psn Machine::choose_psn(Choices& choices, bool response) {
  const Psn base = response ? qp_.requester().unacked_psn() : qp_.responder().expected_psn();
  switch (choices.below(8)) {
    case 0:
      return base + choices.below(16);
    case 1:
      return base - choices.below(16);
    case 2:
      return Psn{choices.word()};
    default:
      return base;
  }
}

std::uint32_t Machine::choose_len(Choices& choices) {
  switch (choices.below(6)) {
    case 0:
      return 0;
    case 1:
      return kMtu;
    case 2:
      return kMtu + choices.below(8);
    case 3:
      return 8;
    default:
      return choices.byte();
  }
}

std::uint32_t Machine::choose_key(Choices& choices) {
  const std::uint32_t which = choices.below(32);
  if (which == 31) return choices.word();
  if (which >= 29) return windows_[which - 29] + choices.below(3);
  return which < areas_.size() ? areas_[which].key : areas_[kTarget].key;
}

std::uint64_t Machine::choose_va(Choices& choices) {
  const Area& area = areas_[choices.below(static_cast<std::uint32_t>(areas_.size()))];
  const std::uint64_t base = std::bit_cast<std::uint64_t>(memory_ + area.at);
  switch (choices.below(24)) {
    case 0:
      return base + area.len - choices.byte();
    case 1:
      return base - 1;
    case 2:
      return std::uint64_t{choices.word()} << 32 | choices.word();
    case 3:
      return base + (choices.word() % (area.len + 16) & ~7U);
    default:
      return std::bit_cast<std::uint64_t>(memory_ + areas_[kTarget].at) + 8 * choices.byte();
  }
}

std::byte* Machine::emit_extensions(std::byte* at, const wire::OpcodeInfo& op, std::uint32_t payload,
                                    Choices& choices) {
  if (op.has_deth) at = wire::emit_at(at, wire::Deth{});
  if (op.is_flush) {
    at = wire::emit_at(at, wire::Feth{.placement = static_cast<std::uint8_t>(choices.below(5)),
                                      .selectivity = static_cast<std::uint8_t>(choices.below(3))});
  }
  if (op.has_reth) {
    std::uint32_t length = payload;
    if (op.is_write && !op.ends_message) length += 1 + choices.below(2) * kMtu + choices.byte();
    if (op.is_read_request || op.is_flush) length = choose_len(choices) * (1 + choices.below(4));
    if (choices.below(32) == 0) length = choices.word();
    write_left_ = length;
    at = wire::emit_at(
        at, wire::Reth{.va = choose_va(choices), .rkey = Rkey{choose_key(choices)}, .length = length});
  }
  if (op.is_atomic_request) {
    at = wire::emit_at(at, wire::AtomicEth{.va = choose_va(choices),
                                           .rkey = Rkey{choose_key(choices)},
                                           .swap_add = choices.word(),
                                           .compare = choices.below(2)});
  }
  if (op.is_masked()) {
    at = wire::emit_at(at, wire::AtomicMaskEth{.compare = choices.word(), .swap = choices.word()});
  }
  if (op.has_aeth) {
    const std::uint32_t kind = choices.below(4);
    const auto syndrome = static_cast<std::uint8_t>(kind == 0 ? choices.byte() : kind == 1 ? 0x60 : 0x1f);
    at = wire::emit_at(at, wire::Aeth{.syndrome = syndrome, .msn = choices.byte()});
  }
  if (op.is_atomic_ack) at = wire::emit_at(at, wire::AtomicAckEth{.original = choices.word()});
  if (op.has_imm) at = wire::emit_at(at, wire::ImmDt{.value = choices.word()});
  if (op.has_ieth)
    at = wire::emit_at(at, wire::Ieth{.rkey = Rkey{choices.below(4) == 0 ? choose_key(choices)
                                                                         : areas_[kInvalidatable].key}});
  return at;
}

/// Mostly what may follow the packet before.
std::uint8_t Machine::choose_opcode(Choices& choices) {
  using enum wire::Opcode;
  const std::uint32_t dice = choices.below(16);
  if (dice == 0) return static_cast<std::uint8_t>(choices.byte());
  const wire::OpcodeInfo& before = wire::info(last_in_);
  const bool goes_on = (before.is_send || before.is_write) && !before.ends_message;
  if (dice == 1) return static_cast<std::uint8_t>(choices.below(0x1e));
  if (!goes_on) {
    constexpr std::array kStarts{
        kRcSendFirst,  kRcSendOnly,     kRcSendOnlyImm, kRcSendOnlyInv,       kRcWriteFirst,
        kRcWriteOnly,  kRcWriteOnlyImm, kRcReadRequest, kRcCompareSwap,       kRcFetchAdd,
        kRcAck,        kRcAck,          kRcAtomicAck,   kRcReadResponseOnly,  kRcReadResponseFirst,
        kRcWriteFirst, kRcFlush,        kRcAtomicWrite, kRcMaskedCompareSwap, kRcMaskedFetchAdd,
        kCnp};
    return raw(kStarts[choices.below(kStarts.size())]);
  }
  if (before.is_send)
    return raw(std::array{kRcSendMiddle, kRcSendLast, kRcSendLastImm, kRcSendLastInv}[dice % 4]);
  return raw(write_left_ > kMtu ? kRcWriteMiddle : dice % 2 == 0 ? kRcWriteLast : kRcWriteLastImm);
}

std::uint32_t Machine::choose_payload(const wire::OpcodeInfo& op, Choices& choices) {
  const std::uint32_t dice = choices.below(32);
  if (dice == 0) return choose_len(choices);
  if (!op.has_payload) return 0;
  if (op.payload_is_mtu) return kMtu;
  if (op.is_atomic_write) return 8;
  if (op.is_write && !op.starts_message) return std::min(write_left_, kMtu);
  return choose_len(choices) % (kMtu + 1);
}

/// A packet that is right in all that is not chosen to be wrong; its ICRC is always right.
std::vector<std::byte> Machine::make_frame(Choices& choices) {
  const std::uint8_t opcode = choose_opcode(choices);
  const wire::OpcodeInfo& op = wire::info(wire::Opcode{opcode});
  const std::uint32_t payload = choose_payload(op, choices);
  const std::uint8_t pad = wire::pad_for(payload);
  const std::uint32_t headers = op.known ? op.header_bytes : wire::Bth::kSize;
  const std::uint32_t flags = choices.byte();
  const wire::FrameTemplate head{from_peer(static_cast<std::uint8_t>(flags >> 5 & wire::kEcnMask))};
  std::vector<std::byte> frame(head.frame_len(headers, payload, pad));
  const auto len = static_cast<std::uint32_t>(frame.size());
  std::byte* bth = head.emit_head(frame.data(), len - head.overhead());
  std::byte* at = wire::emit_at(
      bth, wire::Bth{.opcode = wire::Opcode{opcode},
                     .solicited = (flags & 1) != 0,
                     .mig_req = (flags & 2) != 0,
                     .pad = pad,
                     .pkey = (flags & 0xf8) == 0 ? std::uint16_t{1} : std::uint16_t{0xffff},
                     .dest_qpn = (flags & 0xf8) == 0x10 ? Qpn{choices.word() & 0xff'ffff} : kOwn,
                     .ack_req = (flags & 4) != 0,
                     .psn = choose_psn(choices, op.is_response)});
  emit_extensions(at, op, payload, choices);
  for (std::uint32_t i = choices.below(32) == 0 ? choices.below(4) : 0; i > 0; --i) {
    bth[choices.below(headers)] ^= static_cast<std::byte>(choices.byte());
  }
  head.seal(frame.data(), len);
  last_in_ = wire::Opcode{opcode};
  if (op.is_write) write_left_ -= std::min(write_left_, payload);
  return frame;
}

void Machine::receive(Choices& choices) {
  const std::uint32_t burst = 1 + (choices.below(4) == 0 ? choices.below(8) : 0);
  for (std::uint32_t i = 0; i < burst; ++i) {
    port_.arrive(make_frame(choices));
    ++packets_;
  }
  settle(100);
}

/// A frame with damage anywhere, its ICRC as it was before.
void Machine::receive_raw(Choices& choices) {
  std::vector<std::byte> frame = make_frame(choices);
  for (std::uint32_t i = choices.below(4); i > 0; --i) {
    frame[choices.word() % frame.size()] ^= static_cast<std::byte>(choices.byte());
  }
  if (choices.below(4) == 0) frame.resize(choices.word() % frame.size());
  port_.arrive(std::move(frame));
  ++packets_;
  settle(100);
}

void Machine::post_send(Choices& choices) {
  constexpr WrOpcode kOpcodes[] = {WrOpcode::kRdmaWrite,
                                   WrOpcode::kRdmaWriteWithImm,
                                   WrOpcode::kSend,
                                   WrOpcode::kSendWithImm,
                                   WrOpcode::kRdmaRead,
                                   WrOpcode::kAtomicCmpAndSwp,
                                   WrOpcode::kAtomicFetchAndAdd,
                                   WrOpcode::kSendWithInv,
                                   WrOpcode::kFlush,
                                   WrOpcode::kAtomicWrite,
                                   WrOpcode::kBindMw,
                                   WrOpcode::kLocalInv,
                                   WrOpcode::kMaskedCmpAndSwp,
                                   WrOpcode::kMaskedFetchAndAdd,
                                   WrOpcode{77}};
  SendWr wr;
  wr.opcode = kOpcodes[choices.below(std::size(kOpcodes))];
  wr.flags = static_cast<std::uint8_t>(choices.below(16));
  static const AtomicMasks masks{.compare = 0xff, .swap = 0xff00, .boundary = 0x80};
  wr.masks = &masks;
  const bool is_masked = wr.opcode == WrOpcode::kMaskedCmpAndSwp || wr.opcode == WrOpcode::kMaskedFetchAndAdd;
  const bool is_plain =
      raw(wr.opcode) >= raw(WrOpcode::kRdmaRead) && raw(wr.opcode) <= raw(WrOpcode::kAtomicFetchAndAdd);
  const bool reads = is_plain || is_masked;
  const Area& area = areas_[reads ? kSink : kSource];
  Sge sges[3];
  const bool is_word = reads ? wr.opcode != WrOpcode::kRdmaRead : wr.opcode == WrOpcode::kAtomicWrite;
  const std::uint32_t count = wr.opcode == WrOpcode::kFlush ? 0 : choices.below(4);
  for (std::uint32_t i = 0; i < count; ++i) {
    sges[i] = {.addr = std::bit_cast<std::uint64_t>(memory_ + area.at) + 16 * choices.byte(),
               .length = is_word ? 8 : choices.byte() * (1 + choices.below(8)),
               .lkey = Lkey{choices.below(16) == 0 ? choose_key(choices) : area.key}};
  }
  wr.sges = std::span(sges).first(count);
  wr.remote_addr = 0x1000;
  const Area& target = areas_[kTarget];
  const MwBind bind{.mr = Lkey{choices.below(16) == 0 ? choose_key(choices) : target.key},
                    .addr = choices.below(16) == 0
                                ? choose_va(choices)
                                : std::bit_cast<std::uint64_t>(memory_ + target.at) + 8 * choices.byte(),
                    .length = std::uint64_t{8} * choices.byte(),
                    .access = kRights & ~access::kLocalWrite};
  if (wr.opcode == WrOpcode::kBindMw || wr.opcode == WrOpcode::kLocalInv) {
    wr.sges = {};
    wr.rkey = wr.invalidate_rkey = Rkey{windows_[choices.below(2)] + choices.below(3)};
    wr.bind = &bind;
  }
  if (qp_.context().sq.put(wr, 0)) qp_.context().sq.publish(1);
  loop_.ring(qp_);
  settle(100);
}

void Machine::post_recv(Choices& choices) {
  const Area& area = areas_[kInbox];
  Sge sges[3];
  const std::uint32_t count = choices.below(4);
  for (std::uint32_t i = 0; i < count; ++i) {
    sges[i] = {.addr = std::bit_cast<std::uint64_t>(memory_ + area.at) + 16 * choices.byte(),
               .length = choices.byte() * (1 + choices.below(8)),
               .lkey = Lkey{choices.below(64) == 0 ? choose_key(choices) : area.key}};
  }
  if (qp_.context().receives.own.put({.wr_id = 1, .sges = std::span(sges).first(count)}, 0))
    qp_.context().receives.own.publish(1);
  if (qp_.must_ring_for_receives()) loop_.ring(qp_);
}

void Machine::pass_time(Choices& choices) {
  const std::uint32_t kind = choices.below(4);
  settle(kind == 0 ? 1'000'000 : kind == 1 ? 70'000 : choices.byte() * 100);
}

void Machine::modify(Choices& choices) {
  if (choices.below(8) == 0) {
    hardened_ = choices.below(4);
    connect();
    return;
  }
  QpAttr attr;
  attr.state = QpState{static_cast<std::uint8_t>(choices.below(8))};
  const std::uint32_t mask = choices.below(4) == 0 ? choices.word() & 0x1f'ffff : qp_attr::kState;
  attr.dgid = Gid::from_v4({10, 0, 0, 2});
  attr.dest_qpn = kPeer;
  attr.path_mtu = PathMtu::k256;
  attr.access_flags = kRights;
  attr.max_dest_rd_atomic = static_cast<std::uint8_t>(choices.below(8));
  attr.max_rd_atomic = static_cast<std::uint8_t>(choices.below(8));
  static_cast<void>(loop_.modify(qp_, attr, mask, bounds(), Ticks{now_ns_}));
  settle(100);
}

void Machine::poll(std::size_t most) {
  Wc wc;
  for (std::size_t i = 0; i < most && cq_.poll({&wc, 1}) == 1; ++i) {
    require(wc.qpn == kOwn, "a completion of nobody");
  }
  engine::LoopEvent event;
  while (loop_.next_event(event)) require(event.qpn == kOwn, "an event of nobody");
}

/// Only what a key allows to change may have changed.
void Machine::check_memory() const {
  const std::size_t start = areas_.front().at - kGuard;
  std::size_t at = start;
  const auto is_pristine = [&](std::size_t from, std::size_t to) {
    return std::memcmp(memory_ + from, pristine_.data() + (from - start), to - from) == 0;
  };
  for (const Area& area : areas_) {
    require(is_pristine(at, area.at), "a guard was written");
    if (!area.may_change)
      require(is_pristine(area.at, area.at + area.len), "a region was written without a right");
    at = area.at + area.len;
  }
  require(is_pristine(at, start + pristine_.size()), "the last guard was written");
}

/// Whatever has happened: after a new connection everything works.
void Machine::check_ping_pong() {
  port_.has_room = true;
  settle(10'000'000);
  poll(1000);
  connect();
  poll(1000);
  const Area& inbox = areas_[kInbox];
  const Sge sge{
      .addr = std::bit_cast<std::uint64_t>(memory_ + inbox.at), .length = 64, .lkey = Lkey{inbox.key}};
  require(qp_.context().receives.own.put({.wr_id = 5, .sges = {&sge, 1}}, 0), "no receive can be posted");
  qp_.context().receives.own.publish(1);
  const wire::FrameTemplate head{from_peer()};
  const auto send = [&](wire::Opcode opcode, Psn psn, std::uint32_t payload) {
    const wire::OpcodeInfo& op = wire::info(opcode);
    std::vector<std::byte> frame(head.frame_len(op.header_bytes, payload, 0));
    const auto len = static_cast<std::uint32_t>(frame.size());
    std::byte* at = head.emit_head(frame.data(), len - head.overhead());
    at = wire::emit_at(at, wire::Bth{.opcode = opcode, .dest_qpn = kOwn, .ack_req = true, .psn = psn});
    if (op.has_aeth) at = wire::emit_at(at, wire::Aeth{});
    for (std::uint32_t i = 0; i < payload; ++i) at[i] = static_cast<std::byte>(i + 1);
    head.seal(frame.data(), len);
    port_.arrive(std::move(frame));
    settle(1000);
  };
  Wc wc;
  send(wire::Opcode::kRcSendOnly, Psn{0xff'fffa}, 8);
  require(cq_.poll({&wc, 1}) == 1 && wc.wr_id == 5 && wc.ok() && wc.byte_len == 8, "a SEND is not received");
  require(memory_[inbox.at + 7] == std::byte{8}, "the data of a SEND are not there");
  require(port_.last && port_.last->opcode == wire::Opcode::kRcAck, "a SEND is not acknowledged");
  require(qp_.context().sq.put({.wr_id = 6, .flags = send_flag::kSignaled}, 0), "no send can be posted");
  qp_.context().sq.publish(1);
  loop_.ring(qp_);
  settle(1000);
  require(port_.last->opcode == wire::Opcode::kRcSendOnly, "a SEND is not sent");
  send(wire::Opcode::kRcAck, port_.last->psn, 0);
  require(cq_.poll({&wc, 1}) == 1 && wc.wr_id == 6 && wc.ok(), "a SEND does not complete");
  std::memcpy(memory_ + inbox.at, pristine_.data() + kGuard, inbox.len);
}

}  // namespace uroce::fuzz
