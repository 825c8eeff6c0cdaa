#include "apps/common/verify.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "apps/common/pattern.h"

namespace uroce::apps {
namespace {

constexpr std::uint64_t kStepReceive = 1;
constexpr std::uint64_t kDataReceive = 2;
constexpr std::uint64_t kStepSend = 3;
constexpr std::uint64_t kOperation = 4;

constexpr std::uint64_t kWaitNs = 10 * kSecond;  // for one completion
constexpr std::uint32_t kInline = 256;           // bytes
constexpr std::uint32_t kSges = 3;
constexpr std::byte kGuardByte{0xa5};
constexpr std::byte kClearByte{0xee};

constexpr std::array<std::uint32_t, 24> kSizes = {0,    1,    2,    3,     4,     7,     63,      64,
                                                  65,   255,  256,  257,   1023,  1024,  1025,    4095,
                                                  4096, 4097, 9000, 65535, 65536, 65537, 1048575, 1048576};

std::uint32_t immediate(std::uint64_t seed) noexcept {
  return static_cast<std::uint32_t>(seed * 0x9e37'79b1U);
}

}  // namespace

std::string_view Verifier::name(Op op) noexcept {
  constexpr std::array<std::string_view, 7> kNames = {
      "SEND", "SEND with immediate", "WRITE", "WRITE with immediate", "READ", "atomics", "end"};
  return kNames[static_cast<std::size_t>(op)];
}

Result<Verifier> Verifier::create(Device& device, Pd& pd, bool give_way) {
  auto memory = Mr::alloc(pd, kMemoryBytes, access::kAll);
  if (!memory) return memory.error();
  const Wiring wiring{.qp = {.max_send_wr = 16,
                             .max_recv_wr = 16,
                             .max_send_sge = kSges,
                             .max_recv_sge = 1,
                             .max_inline_data = kInline},
                      .timeout = local_link_timeout(device)};
  auto link = Link::create(device, pd, wiring);
  if (!link) return link.error();
  Verifier verifier(std::move(*memory), std::move(*link), give_way);
  return verifier;
}

Json Verifier::describe() const {
  return {{"address", to_wire(link_.address())},
          {"addr", memory_.addr() + kDataAt},
          {"rkey", raw(memory_.rkey())}};
}

Status Verifier::connect(const Json& peer) {
  const auto address = from_wire(peer.at("address").get<std::string>());
  if (!address) return Error{.code = Errc::kPeer, .text = "the other process sent no QP address"};
  peer_addr_ = peer.at("addr").get<std::uint64_t>();
  peer_rkey_ = Rkey{peer.at("rkey").get<std::uint32_t>()};
  if (auto connected = link_.connect(*address); !connected) return connected;
  return post_receive(kStepReceive, kStepIn, sizeof(Step));
}

Result<Json> Verifier::drive(std::uint64_t seed, unsigned rounds) {
  operations_ = bytes_ = errors_ = 0;
  first_error_.clear();
  for (unsigned round = 0; round < rounds; ++round) {
    for (const auto size : kSizes) {
      for (const Op op : {Op::kSend, Op::kSendImm, Op::kWrite, Op::kWriteImm, Op::kRead}) {
        if (auto done = carry_out({.op = op, .bytes = size, .seed = ++seed}); !done) return done.error();
      }
    }
    if (auto done = carry_out({.op = Op::kAtomics, .bytes = 8, .seed = ++seed, .value = seed}); !done) {
      return done.error();
    }
  }
  if (auto ended = ask({.op = Op::kEnd}); !ended) return ended.error();
  return Json{
      {"operations", operations_}, {"bytes", bytes_}, {"errors", errors_}, {"first_error", first_error_}};
}

Status Verifier::carry_out(const Step& asked) {
  Step step = asked;
  if (auto ready = ask(step); !ready) return ready.error();
  const auto done = step.op == Op::kAtomics ? atomics(step) : transfer(step);
  if (!done) return done;
  const auto answer = ask(step);  // now the other end looks at what it got
  if (!answer) return answer.error();
  count(answer->errors, step, "on the other side");
  return {};
}

Status Verifier::transfer(const Step& step) {
  const bool is_read = step.op == Op::kRead;
  clear_data(step.bytes);
  if (!is_read) fill_pattern(data(step.bytes), step.seed);

  // READs and every other transfer go through one SGE, the rest through three, of which one may be empty.
  const std::uint32_t third = is_read || step.seed % 2 == 0 ? step.bytes : step.bytes / 3;
  const std::array<Sge, kSges> sges = {memory_.sge(kDataAt, third), memory_.sge(kDataAt + third, third),
                                       memory_.sge(kDataAt + std::size_t{2} * third, step.bytes - 2 * third)};
  const bool is_split = third != step.bytes;
  const bool is_inline = !is_read && step.bytes <= kInline && step.seed % 3 == 0;
  SendWr wr{.wr_id = kOperation, .sges = std::span(sges).first(is_split ? kSges : 1)};
  wr.flags = static_cast<std::uint8_t>(send_flag::kSignaled | (is_inline ? send_flag::kInline : 0));
  constexpr std::array kOpcodes = {WrOpcode::kSend, WrOpcode::kSendWithImm, WrOpcode::kRdmaWrite,
                                   WrOpcode::kRdmaWriteWithImm, WrOpcode::kRdmaRead};
  wr.opcode = kOpcodes[static_cast<std::size_t>(step.op)];
  wr.imm_data = immediate(step.seed);
  wr.remote_addr = peer_addr_;
  wr.rkey = peer_rkey_;
  if (auto posted = post(wr); !posted) return posted;
  const auto wc = wait_for(kOperation);
  if (!wc) return wc.error();
  ++operations_;
  bytes_ += step.bytes;
  count(data_errors(step.bytes, step.seed), step, "on this side");
  return {};
}

Status Verifier::atomics(Step& step) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t addend = pattern_word(step.seed, i);
    if (auto done = atomic(step, WrOpcode::kAtomicFetchAndAdd, addend, 0, step.value); !done) return done;
    step.value += addend;
    const std::uint64_t swap = pattern_word(step.seed, 100 + i);
    if (auto done = atomic(step, WrOpcode::kAtomicCmpAndSwp, step.value, swap, step.value); !done)
      return done;
    step.value = swap;
    if (auto done = atomic(step, WrOpcode::kAtomicCmpAndSwp, ~swap, 0, swap); !done)
      return done;  // must not swap
  }
  return {};
}

Status Verifier::atomic(const Step& step, WrOpcode opcode, std::uint64_t operand, std::uint64_t swap,
                        std::uint64_t expected) {
  clear_data(8);
  const Sge sge = memory_.sge(kDataAt, 8);
  const SendWr wr{.wr_id = kOperation,
                  .sges = {&sge, 1},
                  .opcode = opcode,
                  .flags = send_flag::kSignaled,
                  .remote_addr = peer_addr_,
                  .rkey = peer_rkey_,
                  .compare_add = operand,
                  .swap = swap};
  if (auto posted = post(wr); !posted) return posted;
  const auto wc = wait_for(kOperation);
  if (!wc) return wc.error();
  std::uint64_t old = 0;
  std::memcpy(&old, data(8).data(), sizeof old);
  ++operations_;
  bytes_ += 8;
  count(old == expected ? 0 : 8, step, "in the value returned");
  return {};
}

Result<Json> Verifier::serve() {
  while (true) {
    const auto step = hear();
    if (!step) return step.error();
    if (step->op == Op::kEnd) {
      if (auto posted = post_receive(kStepReceive, kStepIn, sizeof(Step)); !posted) return posted.error();
      if (auto told = tell(*step); !told) return told.error();
      return Json::object();
    }
    if (auto served = serve_one(*step); !served) return served.error();
  }
}

Status Verifier::serve_one(const Step& step) {
  clear_data(step.bytes);
  if (step.op == Op::kRead) fill_pattern(data(step.bytes), step.seed);
  if (step.op == Op::kAtomics) std::memcpy(data(8).data(), &step.value, sizeof step.value);
  if (takes_receive(step.op)) {
    const std::uint32_t room = step.op == Op::kWriteImm ? 0 : step.bytes;
    if (auto posted = post_receive(kDataReceive, kDataAt, room); !posted) return posted;
  }
  if (auto posted = post_receive(kStepReceive, kStepIn, sizeof(Step)); !posted) return posted;
  if (auto told = tell(step); !told) return told;

  Wc received;
  if (takes_receive(step.op)) {
    auto wc = wait_for(kDataReceive);
    if (!wc) return wc.error();
    received = *wc;
  }
  auto check = hear();
  if (!check) return check.error();
  check->errors = check_served(*check, received);
  if (auto posted = post_receive(kStepReceive, kStepIn, sizeof(Step)); !posted) return posted;
  return tell(*check);
}

std::uint64_t Verifier::check_served(const Step& step, const Wc& received) const {
  if (step.op == Op::kAtomics) return std::memcmp(data(8).data(), &step.value, 8) == 0 ? 0 : 8;
  std::uint64_t errors = data_errors(step.bytes, step.seed);
  if (takes_receive(step.op) && received.byte_len != step.bytes) ++errors;
  if (has_immediate(step.op)) {
    const bool is_right =
        (received.flags & wc_flag::kWithImm) != 0 && received.imm_data == immediate(step.seed);
    errors += is_right ? 0 : 4;
  }
  return errors;
}

Status Verifier::post(SendWr wr) {
  if (link_.qp().post_send(wr)) return {};
  return Error{.code = Errc::kSystem, .text = "verification: the send queue took no work request"};
}

Status Verifier::post_receive(std::uint64_t wr_id, std::size_t offset, std::uint32_t bytes) {
  const Sge sge = memory_.sge(offset, bytes);
  if (link_.qp().post_recv(RecvWr{.wr_id = wr_id, .sges = {&sge, 1}})) return {};
  return Error{.code = Errc::kSystem, .text = "verification: the receive queue took no work request"};
}

Result<Wc> Verifier::wait_for(std::uint64_t wr_id) {
  const std::uint64_t until = now_ns() + kWaitNs;
  while (true) {
    auto wc = link_.next(until, give_way_);
    if (!wc || wc->wr_id == wr_id) return wc;
  }
}

Status Verifier::tell(const Step& step) {
  static_assert(std::is_trivially_copyable_v<Step> && sizeof(Step) <= 64);
  std::memcpy(&memory_.memory()[kStepOut], &step, sizeof step);
  const Sge sge = memory_.sge(kStepOut, sizeof step);
  if (auto posted = post(
          {.wr_id = kStepSend, .sges = {&sge, 1}, .opcode = WrOpcode::kSend, .flags = send_flag::kSignaled});
      !posted) {
    return posted;
  }
  return {};
}

Result<Verifier::Step> Verifier::hear() {
  const auto wc = wait_for(kStepReceive);
  if (!wc) return wc.error();
  Step step;
  std::memcpy(&step, &memory_.memory()[kStepIn], sizeof step);
  return step;
}

Result<Verifier::Step> Verifier::ask(const Step& step) {
  if (auto told = tell(step); !told) return told.error();
  auto answer = hear();
  if (!answer) return answer;
  if (auto posted = post_receive(kStepReceive, kStepIn, sizeof(Step)); !posted) return posted.error();
  return answer;
}

void Verifier::clear_data(std::uint32_t bytes) {
  const auto all = memory_.memory().subspan(kDataAt - kGuard, bytes + 2 * kGuard);
  std::memset(all.data(), static_cast<int>(kGuardByte), all.size());
  std::memset(data(bytes).data(), static_cast<int>(kClearByte), bytes);
}

std::uint64_t Verifier::data_errors(std::uint32_t bytes, std::uint64_t seed) const {
  std::uint64_t errors = pattern_errors(data(bytes), seed);
  for (const std::size_t offset : {kDataAt - kGuard, kDataAt + bytes}) {
    for (const auto byte : memory_.memory().subspan(offset, kGuard)) errors += byte != kGuardByte ? 1 : 0;
  }
  return errors;
}

void Verifier::count(std::uint64_t errors, const Step& step, std::string_view where) {
  errors_ += errors;
  if (errors == 0 || !first_error_.empty()) return;
  first_error_ = fmt::format("{} of {} bytes: {} bytes wrong {} (seed {})", name(step.op), step.bytes, errors,
                             where, step.seed);
}

}  // namespace uroce::apps
