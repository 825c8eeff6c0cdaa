#include "sim/flow.h"

#include <algorithm>
#include <cstring>

#include "support/completion_opcode.h"

namespace uroce::sim {

namespace {

constexpr std::uint64_t kAskIntervalNs = 100'000;
constexpr std::uint32_t kPd = 3;
constexpr std::uint64_t kLockKeepsNothing = 0;

std::uint64_t load_word(std::span<const std::byte> bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), 8);
  return word;
}

std::span<const std::byte> bytes_of(const std::uint64_t& word) {
  return std::as_bytes(std::span{&word, 1});
}

/// Field by field, each up to a set bit of `boundary` or the end.
std::uint64_t sum_of_fields(std::uint64_t a, std::uint64_t b, std::uint64_t boundary) {
  std::uint64_t sum = 0;
  unsigned first = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (bit != 63 && (boundary >> bit & 1) == 0) continue;
    const std::uint64_t field = ~std::uint64_t{0} >> (63 - (bit - first)) << first;
    sum |= ((a & field) + (b & field)) & field;
    first = bit + 1;
  }
  return sum;
}

/// Index 1 is the one in use; the one after it is not, and is of another kind of frames.
engine::Addresses addresses_of(const Gid& gid, unsigned index, const LinkPlan& link) {
  const unsigned prefix_len = gid.is_v4() ? 24 : 64;
  const std::uint16_t other_vlan = link.vlan == 1 ? 0 : 1;
  return engine::Addresses({{engine::link_local_gid(Net::mac(index)), 64},
                            {gid, prefix_len, link.vlan, link.type},
                            {gid, prefix_len, other_vlan, link.type}},
                           std::nullopt);
}

}  // namespace

Endpoint::Endpoint(const Plan& plan, unsigned index, Net& net)
    : memory(plan.endpoints[index]),
      port(net.open(index)),
      addresses(addresses_of(memory.gid, index, plan.link)),
      keys(plan.seed ^ (index + 1), [] {}),
      loop({}, *port, addresses, kAskIntervalNs),
      first_cq(1 << 12),
      second_cq(1 << 12),
      send_cq(first_cq),
      recv_cq(plan.one_cq ? first_cq : second_cq) {
  memory.source.open(keys, kPd, plan.seed + 1);
  memory.sink.open(keys, kPd, plan.seed + 2);
  memory.inbox.open(keys, kPd, plan.seed + 3);
  memory.remote.open(keys, kPd, plan.seed + 4);
  const std::uint64_t zero = 0;
  memory.remote.store(memory.ticket_at, bytes_of(zero));
  memory.remote.store(memory.lock_at, bytes_of(kLockKeepsNothing));
}

Flow::Flow(const FlowPlan& plan, Endpoint& from, Endpoint& to, transport::RcQp& qp, transport::RcQp& peer)
    : plan_(plan),
      from_(from),
      to_(to),
      qp_(qp),
      peer_(peer),
      running_(plan.messages.size()),
      window_(from.keys.insert_window(MwType::kType1, kPd).value()),
      local_window_(from.keys.insert_window(MwType::kType2B, kPd).value()) {
  for (std::size_t i = 0; i < plan_.messages.size(); ++i) {
    const Message& message = plan_.messages[i];
    if (message.takes_receive()) receives_.push_back(i);
    if (message.opcode != WrOpcode::kSendWithInv) continue;
    const mem::Region region{.addr = to_.memory.remote.addr(0),
                             .length = 64,
                             .pd = kPd,
                             .access = access::kAll | access::kInvalidatable};
    running_[i].invalidate_key = to_.keys.insert(region).value();
  }
}

std::string Flow::name(const char* what, std::size_t index) const {
  return "flow " + std::to_string(plan_.from) + " -> " + std::to_string(plan_.to) + " qpn " +
         std::to_string(raw(plan_.qpn)) + ", message " + std::to_string(index) + " (opcode " +
         std::to_string(raw(plan_.messages[index].opcode)) + ", " +
         std::to_string(plan_.messages[index].length) + " bytes): " + what;
}

std::string Flow::progress(Ticks now) const {
  return "flow " + std::to_string(plan_.from) + " -> " + std::to_string(plan_.to) + " qpn " +
         std::to_string(raw(plan_.qpn)) + ": posted " + std::to_string(posted_) + ", completed " +
         std::to_string(completed_) + " of " + std::to_string(plan_.messages.size()) + ", received " +
         std::to_string(received_) + " of " + std::to_string(receives_.size()) + ", state " +
         std::string(to_string(qp_.state())) + " " + std::string(transport::row(qp_.context().fatal).text) +
         ", gate " + std::to_string(raw(qp_.requester().gate(now))) + ", deadline " +
         std::to_string(qp_.deadline().ns()) + ", in the wheel " +
         std::to_string(qp_.context().TimerNode::due.ns()) + (qp_.context().is_ready ? ", ready" : "");
}

std::uint64_t Flow::sent_messages() const noexcept {
  return static_cast<std::uint64_t>(
      std::count_if(plan_.messages.begin(), plan_.messages.end(),
                    [](const Message& message) { return !message.is_local(); }));
}

std::uint64_t Flow::wire_messages(std::uint32_t mtu, std::uint32_t max_unacked) const noexcept {
  const std::uint32_t chunk = std::max(1U, max_unacked / 2) * mtu;
  std::uint64_t count = 0;
  for (const Message& message : plan_.messages) {
    if (message.is_local()) continue;
    count += message.is_read() ? std::max(1U, (message.length + chunk - 1) / chunk) : 1;
  }
  return count;
}

std::vector<Sge> Flow::sges(const Bank& bank, const std::vector<Piece>& pieces) {
  std::vector<Sge> list;
  for (const Piece& piece : pieces) list.push_back({bank.addr(piece.at), piece.len, Lkey{bank.key()}});
  return list;
}

bool Flow::may_post() const noexcept {
  return posted_ < plan_.messages.size() && posted_ - completed_ < plan_.init.max_send_wr &&
         posted_ - completed_ < plan_.outstanding;
}

bool Flow::post_sends(std::uint64_t now_ns, Random& random) {
  if (now_ns < next_post_ns_ || !may_post()) return false;
  bool any = false;
  while (may_post() && post(plan_.messages[posted_], posted_)) {
    any = true;
    if (plan_.pause_ns == 0 || random.below(2) == 0) continue;
    next_post_ns_ = now_ns + 1 + random.below(plan_.pause_ns);
    break;
  }
  if (any) from_.loop.ring(qp_);
  return any;
}

/// Posts one work request and works out what it will have done.
bool Flow::post(const Message& message, std::size_t index) {
  Running& running = running_[index];
  const bool reads = message.is_read() || message.is_atomic();
  if (!reads) {
    scratch_.resize(message.length);
    fill(scratch_, message.seed);
    scatter(from_.memory.source, message.local, scratch_);
  }
  running.posted_ns = from_.now_ns;
  running.compare = message.compare_add;
  if (message.sharing == Sharing::kLock) running.compare = lock_seen_;
  if (message.is_swap() && message.sharing == Sharing::kNone && message.seed % 2 == 0) {
    running.compare = load_word(to_.memory.remote.image(message.remote_at, 8));
  }
  const std::vector<Sge> list = sges(reads ? from_.memory.sink : from_.memory.source, message.local);
  SendWr wr{.wr_id = index,
            .sges = list,
            .opcode = message.opcode,
            .flags = message.flags,
            .imm_data = message.imm,
            .invalidate_rkey = Rkey{running.invalidate_key},
            .remote_addr = to_.memory.remote.addr(message.remote_at),
            .rkey = Rkey{to_.memory.remote.key()},
            .compare_add = running.compare,
            .swap = message.swap,
            .masks = &message.masks,
            .flush = {.length = message.length,
                      .placement = static_cast<std::uint8_t>(1 + message.seed % 3),
                      .scope = FlushScope{static_cast<std::uint8_t>(message.seed / 3 % 2)}}};
  const MwBind to{.mr = Lkey{from_.memory.remote.key()},
                  .addr = from_.memory.remote.addr(0),
                  .length = 64,
                  .access = access::kRemoteRead};
  if (message.is_local()) aim_local(wr, to, running);
  if (!qp_.context().sq.put(wr, 0)) return false;
  if (wr.opcode == WrOpcode::kBindMw && message.opcode == WrOpcode::kBindMw) ++binds_;
  if (message.opcode == WrOpcode::kLocalInv) is_bound_ = running.binds;
  qp_.context().sq.publish(1);
  ++posted_;
  apply(message, running);
  if ((message.flags & send_flag::kInline) != 0) scribble(from_.memory.source, message.local);
  return true;
}

/// Windows of type 1 are bound again and again, those of type 2 in turns with invalidates: none of it may be
/// done twice.
void Flow::aim_local(SendWr& wr, const MwBind& to, Running& running) {
  running.binds = wr.opcode == WrOpcode::kBindMw || !is_bound_;
  wr.rkey = Rkey{wr.opcode == WrOpcode::kBindMw ? window_ + ((binds_ + 1) & 0xff) : local_window_ + 5};
  wr.invalidate_rkey = Rkey{local_window_ + 5};
  wr.opcode = running.binds ? WrOpcode::kBindMw : WrOpcode::kLocalInv;
  wr.bind = &to;
}

/// Once all has completed that was posted.
void Flow::check_windows(std::size_t index) {
  if (completed_ != posted_) return;
  const auto gives = [this](std::uint32_t key) {
    mem::KeyFault fault{};
    return from_.keys.resolve_remote(key, qp_.context().user(), access::kRemoteRead,
                                     from_.memory.remote.addr(0), 64, fault) != nullptr;
  };
  require(gives(window_ + (binds_ & 0xff)) == (binds_ > 0), name("the window of type 1 is wrong", index));
  require(gives(local_window_ + 5) == is_bound_, name("the window of type 2 is wrong", index));
}

/// Work requests take effect in the order in which they are posted: what each will leave behind is known now.
void Flow::apply(const Message& message, Running& running) {
  Bank& remote = to_.memory.remote;
  if (message.is_atomic()) {
    apply_atomic(message, running);
  } else if (message.is_read()) {
    const auto data = remote.image(message.remote_at, message.length);
    std::size_t at = 0;
    for (const Piece& piece : message.local) {
      const auto part = data.subspan(at, piece.len);
      std::copy(part.begin(), part.end(), from_.memory.sink.image(piece.at, piece.len).begin());
      at += piece.len;
    }
  } else if (!message.is_send() && !message.is_flush() && !message.is_local()) {
    std::copy(scratch_.begin(), scratch_.end(), remote.image(message.remote_at, message.length).begin());
  }
}

void Flow::apply_atomic(const Message& message, Running& running) {
  if (message.sharing != Sharing::kNone) return;  // the order among flows is not known
  const auto word = to_.memory.remote.image(message.remote_at, 8);
  const std::uint64_t original = load_word(word);
  const AtomicMasks masks = message.is_masked() ? message.masks : AtomicMasks{};
  std::uint64_t value = original;
  if (!message.is_swap())
    value = sum_of_fields(original, message.compare_add, masks.boundary);
  else if (((original ^ running.compare) & masks.compare) == 0)
    value = (original & ~masks.swap) | (message.swap & masks.swap);
  std::memcpy(word.data(), &value, 8);
  const auto data = bytes_of(original);
  std::size_t at = 0;
  for (const Piece& piece : message.local) {
    const auto part = data.subspan(at, piece.len);
    std::copy(part.begin(), part.end(), from_.memory.sink.image(piece.at, piece.len).begin());
    at += piece.len;
  }
}

void Flow::scatter(Bank& bank, const std::vector<Piece>& pieces, std::span<const std::byte> data) {
  for (const Piece& piece : pieces) {
    bank.store(piece.at, data.first(piece.len));
    data = data.subspan(piece.len);
  }
}

/// The application uses the memory for something else: whoever still reads or writes it is found out.
void Flow::scribble(Bank& bank, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    const auto image = bank.image(piece.at, piece.len);
    for (std::byte& byte : image) byte ^= std::byte{0x5a};
    std::copy(image.begin(), image.end(), bank.bytes(piece.at, piece.len).begin());
  }
}

void Flow::on_send_completion(const Wc& wc) {
  ++from_.completions;
  require(completed_ < posted_, "a completion although nothing is outstanding: " + progress(Ticks{}));
  require(wc.status == WcStatus::kSuccess,
          name("failed: ", completed_) + std::string(transport::row(transport::Fault{wc.vendor_err}).text));
  std::size_t index = completed_;
  const auto is_signaled = [this](std::size_t i) {
    return plan_.init.sq_sig_all || (plan_.messages[i].flags & send_flag::kSignaled) != 0;
  };
  while (index + 1 < posted_ && !is_signaled(index)) ++index;
  require(wc.wr_id == index, name("expected to complete, but it was ", index) + std::to_string(wc.wr_id));
  const Message& message = plan_.messages[index];
  require(is_signaled(index), name("completed although it was not signaled", index));
  const WrOpcode opcode = message.is_local() && running_[index].binds ? WrOpcode::kBindMw : message.opcode;
  require(wc.opcode == test::completion_opcode(opcode), name("wrong opcode in the completion", index));
  const bool reads = message.is_read() || message.is_atomic();
  require(wc.byte_len == (reads ? message.length : 0), name("wrong byte_len in the completion", index));
  while (completed_ <= index) finish(completed_++);
  check_windows(index);
}

void Flow::finish(std::size_t index) {
  const Message& message = plan_.messages[index];
  if (message.is_atomic() && message.sharing != Sharing::kNone) finish_atomic(message, running_[index]);
  if (message.is_read() || message.is_atomic()) {
    for (const Piece& piece : message.local) {
      require(from_.memory.sink.is_right(piece.at, piece.len), name("wrong data read", index));
    }
    scribble(from_.memory.sink, message.local);
  } else if ((message.flags & send_flag::kInline) == 0) {
    scribble(from_.memory.source, message.local);
  }
}

void Flow::finish_atomic(const Message& message, const Running& running) {
  std::uint64_t original = 0;
  std::byte* out = std::as_writable_bytes(std::span{&original, 1}).data();
  for (const Piece& piece : message.local) {
    const auto part = from_.memory.sink.bytes(piece.at, piece.len);
    out = std::copy(part.begin(), part.end(), out);
    std::copy(part.begin(), part.end(), from_.memory.sink.image(piece.at, piece.len).begin());
  }
  if (message.sharing == Sharing::kTicket) {
    require(to_.tickets.insert(original).second,
            "the ticket " + std::to_string(original) + " was drawn twice");
  } else {
    to_.lock_swaps.push_back({running.compare, message.swap, original, running.posted_ns, from_.now_ns});
    lock_seen_ = original == running.compare ? message.swap : original;
  }
}

bool Flow::post_receives(std::uint64_t now_ns, Random& random) {
  if (now_ns < next_receive_ns_ || receives_posted_ == receives_.size()) return false;
  bool any = false;
  transport::RecvQueue& rq = peer_.context().receives.own;
  while (receives_posted_ < receives_.size() && receives_posted_ - received_ < plan_.receives) {
    const Message& message = plan_.messages[receives_[receives_posted_]];
    const std::vector<Sge> list = sges(to_.memory.inbox, message.receive);
    if (!rq.put({.wr_id = receives_posted_, .sges = list}, 0)) break;
    rq.publish(1);
    ++receives_posted_;
    any = true;
    if (peer_.must_ring_for_receives()) to_.loop.ring(peer_);
    if (plan_.receive_pause_ns == 0 || random.below(2) == 0) continue;
    next_receive_ns_ = now_ns + 1 + random.below(plan_.receive_pause_ns);
    break;
  }
  return any;
}

void Flow::on_receive_completion(const Wc& wc) {
  ++to_.completions;
  require(received_ < receives_posted_, "a receive completed although none is posted: " + progress(Ticks{}));
  const std::size_t index = receives_[received_];
  const Message& message = plan_.messages[index];
  require(wc.status == WcStatus::kSuccess, name("its receive failed", index));
  require(wc.wr_id == received_, name("another receive completed: ", index) + std::to_string(wc.wr_id));
  require(wc.byte_len == message.length, name("wrong byte_len received", index));
  const bool has_imm =
      message.opcode == WrOpcode::kSendWithImm || message.opcode == WrOpcode::kRdmaWriteWithImm;
  const bool has_inv = message.opcode == WrOpcode::kSendWithInv;
  require(wc.flags == (has_imm   ? wc_flag::kWithImm
                       : has_inv ? wc_flag::kWithInv
                                 : 0),
          name("wrong flags", index));
  require(wc.opcode == (message.is_send() ? WcOpcode::kRecv : WcOpcode::kRecvRdmaWithImm),
          name("wrong opcode received", index));
  if (has_imm) require(wc.imm_data == message.imm, name("wrong immediate data", index));
  if (has_inv) {
    require(wc.imm_data == running_[index].invalidate_key, name("wrong key invalidated", index));
    mem::KeyFault fault{};
    require(to_.keys.resolve(wc.imm_data, kPd, 0, to_.memory.remote.addr(0), 1, fault) == nullptr,
            name("its key is still valid", index));
  }
  Bank& inbox = to_.memory.inbox;
  if (message.is_send()) {
    scratch_.resize(message.length);
    fill(scratch_, message.seed);
    std::span<const std::byte> data = scratch_;
    for (const Piece& piece : message.receive) {
      const auto part = data.first(std::min<std::size_t>(piece.len, data.size()));
      std::copy(part.begin(), part.end(), inbox.image(piece.at, piece.len).begin());
      data = data.subspan(part.size());
    }
  }
  for (const Piece& piece : message.receive) {
    require(inbox.is_right(piece.at, piece.len), name("wrong data received", index));
  }
  scribble(inbox, message.receive);
  ++received_;
}

std::uint64_t Flow::next_send_ns() const noexcept {
  return may_post() ? next_post_ns_ : 0;
}

std::uint64_t Flow::next_receive_ns() const noexcept {
  const bool may = receives_posted_ < receives_.size() && receives_posted_ - received_ < plan_.receives;
  return may ? next_receive_ns_ : 0;
}

}  // namespace uroce::sim
