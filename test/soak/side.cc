#include "soak/side.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace uroce::soak {

namespace {

constexpr std::uint32_t kWindow = 64;  // operations in flight, and receives posted
constexpr std::uint32_t kTarget = kTargetBytes + kCounters * 8;
constexpr std::uint32_t kSendSlots = kTarget;
constexpr std::uint32_t kRecvSlots = kSendSlots + kWindow * kMaxBytes;
constexpr std::uint32_t kMemory = kRecvSlots + 2 * kWindow * kMaxBytes;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

Side::Side(const Options& options, Meeting& meeting, unsigned index)
    : options_(options),
      meeting_(meeting),
      index_(index),
      own_(options.seed * 2 + index),
      peers_(options.seed * 2 + (1 - index)),
      deadline_ns_(now_ns() + options.seconds * 1'000'000'000ULL) {}

bool Side::fail(const std::string& what) {
  std::fprintf(stderr, "side %u, seed %llu: after %llu operations done, %llu received: %s\n", index_,
               static_cast<unsigned long long>(options_.seed),
               static_cast<unsigned long long>(completed_ops_), static_cast<unsigned long long>(received_),
               what.c_str());
  if (!device_.empty()) {
    for (const Counter& counter : device_.front().counters()) {
      if (counter.value != 0) {
        std::fprintf(stderr, "  %s = %llu\n", counter.name.c_str(),
                     static_cast<unsigned long long>(counter.value));
      }
    }
  }
  return false;
}

bool Side::is_late() const {
  return now_ns() > deadline_ns_;
}

bool Side::open() {
  auto device = Device::open(options_.config[index_]);
  if (!device) return fail(device.error().text);
  device_.push_back(std::move(*device));
  pd_.push_back(*Pd::create(device_.front()));
  auto cq = Cq::create(device_.front(), 4 * kWindow);
  auto mr = Mr::alloc(pd_.front(), kMemory, access::kAll);
  if (!cq || !mr) return fail(!cq ? cq.error().text : mr.error().text);
  cq_.push_back(std::move(*cq));
  memory_.push_back(std::move(*mr));
  auto qp = Qp::create(pd_.front(), cq_.front(), cq_.front(),
                       {.max_send_wr = kWindow, .max_recv_wr = 2 * kWindow, .max_inline_data = 64});
  if (!qp) return fail(qp.error().text);
  if (options_.config[index_].selective_repeat) {
    const Ece both{.vendor_id = ece::kVendor, .options = ece::kSelectiveRepeat};
    if (Status set = qp->set_ece(both); !set) return fail(set.error().text);
  }
  qp_.push_back(std::move(*qp));
  return true;
}

/// Tells the peer how far this side is, and waits until it is as far. Progress goes on meanwhile.
bool Side::meet(std::uint32_t stage) {
  meeting_.side[index_].stage.store(stage, std::memory_order_release);
  while (meeting_.side[1 - index_].stage.load(std::memory_order_acquire) < stage) {
    if (is_late()) return fail("the peer did not reach stage " + std::to_string(stage));
    if (!poll()) return false;
  }
  return true;
}

bool Side::connect() {
  Meeting::Side& own = meeting_.side[index_];
  own.qpn = raw(qp_.front().qpn());
  own.rkey = raw(memory_.front().rkey());
  own.addr = memory_.front().addr();
  own.gid = device_.front().gids().at(1).gid;
  if (!meet(1)) return false;
  const Meeting::Side& peer = meeting_.side[1 - index_];
  const Psn first[2] = {Psn{0xff'ff00}, Psn{0x12'3456}};  // one side wraps soon
  const Status connected = qp_.front().connect({.path_mtu = path_mtu_from_bytes(options_.mtu).value(),
                                                .dest_qpn = Qpn{peer.qpn},
                                                .rq_psn = first[1 - index_],
                                                .sq_psn = first[index_],
                                                .access_flags = access::kAll & ~access::kLocalWrite,
                                                .dgid = peer.gid,
                                                .max_rd_atomic = 8,
                                                .max_dest_rd_atomic = 8,
                                                .min_rnr_timer = 1,
                                                .timeout = options_.timeout});
  if (!connected) return fail(connected.error().text);
  return post_receives() && meet(2);
}

bool Side::post_receives() {
  while (receives_.size() < 2 * kWindow) {
    const auto slot = static_cast<std::uint32_t>((received_ + receives_.size()) % (2 * kWindow));
    const Sge sge = memory_.front().sge(kRecvSlots + slot * kMaxBytes, kMaxBytes);
    if (!qp_.front().post_recv({.wr_id = slot, .sges = {&sge, 1}})) return fail("post_recv refused");
    receives_.push_back(slot);
  }
  return true;
}

/// Whether a READ in flight looks at what `op` is going to write: without a fence it may see the new bytes.
/// IBA table 79.
bool Side::overlaps_read(const Op& op) const {
  return op.is_write() && std::any_of(posted_.begin(), posted_.end(), [&](const Posted& other) {
           return other.op.opcode == WrOpcode::kRdmaRead && other.op.offset < op.offset + op.bytes &&
                  op.offset < other.op.offset + other.op.bytes;
         });
}

bool Side::post(const Op& op) {
  const Meeting::Side& peer = meeting_.side[1 - index_];
  const std::uint32_t slot = next_slot_++ % kWindow;
  Mr& mr = memory_.front();
  const auto data = mr.memory().subspan(kSendSlots + slot * kMaxBytes, op.bytes);
  Posted posted{.op = op, .wr_id = posted_ops_, .slot = slot, .original = 0, .expected = {}};
  const Sge sge = mr.sge(kSendSlots + slot * kMaxBytes, op.bytes);
  SendWr wr{.wr_id = posted_ops_,
            .sges = {&sge, 1},
            .opcode = op.opcode,
            .flags = send_flag::kSignaled,
            .imm_data = op.imm,
            .remote_addr = peer.addr + op.offset,
            .rkey = Rkey{peer.rkey}};
  if (op.is_send() || op.is_write()) {
    fill(op.content, data);
    if (op.bytes <= 64) wr.flags |= send_flag::kInline;
    if (overlaps_read(op)) wr.flags |= send_flag::kFence;
  } else if (op.is_atomic()) {
    wr.remote_addr = peer.addr + kTargetBytes + op.offset * 8;
    wr.compare_add = op.opcode == WrOpcode::kAtomicFetchAndAdd ? op.operand : own_.compare_for(op);
    wr.swap = op.operand;
    posted.original = own_.apply_atomic(op, wr.compare_add);
  } else {
    std::memset(data.data(), 0xee, data.size());
    const auto expected = own_.target().subspan(op.offset, op.bytes);
    posted.expected.assign(expected.begin(), expected.end());
  }
  if (!qp_.front().post_send(wr)) return fail("post_send refused");
  posted_.push_back(std::move(posted));
  ++posted_ops_;
  return true;
}

bool Side::post_some() {
  while (posted_ops_ < options_.ops && posted_.size() < kWindow) {
    if (!post(own_.next())) return false;
  }
  return true;
}

bool Side::on_sent(const Wc& wc) {
  if (posted_.empty() || wc.wr_id != posted_.front().wr_id) {
    return fail("completion of request " + std::to_string(wc.wr_id) + " out of order");
  }
  const Posted& posted = posted_.front();
  const std::byte* data = memory_.front().memory().data() + kSendSlots + posted.slot * kMaxBytes;
  if (posted.op.opcode == WrOpcode::kRdmaRead &&
      (wc.byte_len != posted.op.bytes || !std::equal(posted.expected.begin(), posted.expected.end(), data))) {
    return fail("READ " + std::to_string(wc.wr_id) + " returned other bytes than were written");
  }
  if (posted.op.is_atomic() && std::memcmp(data, &posted.original, 8) != 0) {
    return fail("atomic " + std::to_string(wc.wr_id) + " returned another value than was there");
  }
  posted_.pop_front();
  ++completed_ops_;
  return true;
}

bool Side::on_received(const Wc& wc) {
  if (receives_.empty() || wc.wr_id != receives_.front()) return fail("receive completed out of order");
  Op op = peers_.next();
  for (++peers_ops_; !op.takes_recv(); ++peers_ops_) {
    if (op.is_atomic()) peers_.apply_atomic(op, peers_.compare_for(op));
    op = peers_.next();
  }
  if (peers_ops_ > options_.ops) return fail("more was received than the peer sent");
  const bool with_imm = op.opcode != WrOpcode::kSend;
  const bool flagged = (wc.flags & wc_flag::kWithImm) != 0;
  if (wc.byte_len != op.bytes || with_imm != flagged || (with_imm && wc.imm_data != op.imm)) {
    return fail("receive " + std::to_string(received_) + " has a wrong length or immediate");
  }
  if (op.is_send()) {
    std::vector<std::byte> expected(op.bytes);
    fill(op.content, expected);
    const std::byte* data = memory_.front().memory().data() + kRecvSlots + wc.wr_id * kMaxBytes;
    if (!std::equal(expected.begin(), expected.end(), data)) {
      return fail("receive " + std::to_string(received_) + " has wrong bytes");
    }
  }
  receives_.pop_front();
  ++received_;
  return post_receives();
}

bool Side::handle(const Wc& wc) {
  if (!wc.ok()) {
    return fail("completion with status '" + std::string(to_string(wc.status)) +
                "': " + std::string(describe_vendor_err(wc.vendor_err)));
  }
  return raw(wc.opcode) >= raw(WcOpcode::kRecv) ? on_received(wc) : on_sent(wc);
}

bool Side::poll() {
  if (cq_.empty()) return true;
  Wc wcs[32];
  std::size_t count = 0;
  do {  // until all have been taken: an end that was stopped for a while has more of them
    count = cq_.front().poll(wcs);
    for (std::size_t i = 0; i < count; ++i) {
      if (!handle(wcs[i])) return false;
    }
  } while (count == std::size(wcs));
  return true;
}

/// Generates the rest of the peer's workload and compares what it leaves with what is there.
bool Side::check_target() {
  for (; peers_ops_ < options_.ops; ++peers_ops_) {
    const Op op = peers_.next();
    if (op.takes_recv()) return fail("a message of the peer never arrived");
    if (op.is_atomic()) peers_.apply_atomic(op, peers_.compare_for(op));
  }
  const std::byte* memory = memory_.front().memory().data();
  if (std::memcmp(memory, peers_.target().data(), kTargetBytes) != 0)
    return fail("the target's bytes are wrong");
  if (std::memcmp(memory + kTargetBytes, peers_.counters().data(), kCounters * 8) != 0) {
    return fail("the atomic counters are wrong");
  }
  return true;
}

/// Rules that hit nothing show nothing.
bool Side::check_faults() {
  if (options_.config[index_].fault.empty()) return true;
  const std::vector<Counter> all = device_.front().counters();
  const auto injected = std::ranges::find(all, "port_faults_injected", &Counter::name);
  return (injected != all.end() && injected->value > 0) || fail("no fault was injected");
}

int Side::run() {
  if (!open() || !connect()) return 1;
  while (completed_ops_ < options_.ops) {
    if (!post_some() || !poll()) return 1;
    if (is_late()) {
      fail("time is over: it hangs or is too slow");
      return 1;
    }
  }
  if (!meet(3)) return 1;
  if (!poll() || !check_target() || !check_faults()) return 1;
  std::printf("side %u: %llu operations done, %llu messages received, every byte right\n", index_,
              static_cast<unsigned long long>(completed_ops_), static_cast<unsigned long long>(received_));
  return 0;
}

}  // namespace uroce::soak
