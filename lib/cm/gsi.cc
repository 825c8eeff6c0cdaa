#include "cm/gsi.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <tuple>

#include "verbs/gsi.h"

namespace uroce::cm {

namespace {

constexpr auto kPatience = std::chrono::seconds(1);  // for an Ethernet address, or for room

}  // namespace

bool Gsi::Order::operator()(const AhAttr& a, const AhAttr& b) const noexcept {
  const auto key = [](const AhAttr& x) {
    return std::tie(x.dgid, x.sgid_index, x.traffic_class, x.hop_limit, x.flow_label, x.sl);
  };
  return key(a) < key(b);
}

Result<std::unique_ptr<Gsi>> Gsi::open(Device& device) {
  auto gsi = std::unique_ptr<Gsi>(new Gsi(device));
  if (Status made = gsi->make(); !made) return made.error();
  return gsi;
}

Status Gsi::make() {
  auto pd = Pd::create(device_);
  if (!pd) return pd.error();
  pd_.emplace(std::move(*pd));
  auto cq = Cq::create(device_, kReceives + kSends, gsi_loop(device_));
  if (!cq) return cq.error();
  cq_.emplace(std::move(*cq));
  const std::size_t bytes = std::size_t{kReceives} * kReceiveBytes + std::size_t{kSends} * wire::kMadBytes;
  auto memory = Mr::alloc(*pd_, bytes, access::kLocalWrite);
  if (!memory) return memory.error();
  memory_.emplace(std::move(*memory));
  auto qp = make_gsi_qp(
      *pd_, *cq_, {.type = QpType::kUd, .max_send_wr = kSends, .max_recv_wr = kReceives, .sq_sig_all = true});
  if (!qp) return qp.error();
  qp_.emplace(std::move(*qp));
  for (std::uint32_t slot = 0; slot < kReceives; ++slot) post_receive(slot);
  for (std::uint32_t slot = 0; slot < kSends; ++slot) free_sends_.push_back(slot);
  return {};
}

void Gsi::post_receive(std::uint32_t slot) {
  const Sge sge = memory_->sge(std::size_t{slot} * kReceiveBytes, kReceiveBytes);
  (void)qp_->post_recv({.wr_id = slot, .sges = {&sge, 1}});  // there is room: one is posted for one taken
}

Gsi::Peer* Gsi::peer_at(const AhAttr& to, Time now) {
  const auto known = by_address_.find(to);
  if (known != by_address_.end()) {
    peers_.splice(peers_.begin(), peers_, known->second);
    return renew(peers_.front(), now) ? &peers_.front() : nullptr;
  }
  auto ah = Ah::create(*pd_, to);
  if (!ah) return nullptr;
  if (peers_.size() >= kPeers) drop_last();
  peers_.push_front({.to = to, .ah = std::move(*ah), .made = now});
  try {
    by_address_.emplace(to, peers_.begin());
  } catch (const std::bad_alloc&) {
    peers_.pop_front();
    throw;
  }
  return &peers_.front();
}

/// A handle that is not new is made anew, which asks whether its Ethernet address is still the right one: a
/// peer that has come back elsewhere does not say so.
bool Gsi::renew(Peer& peer, Time now) {
  constexpr auto kNew = std::chrono::seconds(1);
  if (now - peer.made < kNew) return true;
  auto ah = Ah::create(*pd_, peer.to);
  if (!ah) return false;
  peer.former.emplace(std::move(peer.ah));
  peer.ah = std::move(*ah);
  peer.made = now;
  peer.resolved = false;
  return true;
}

void Gsi::drop_last() {
  Peer& last = peers_.back();
  drop(last, last.waiting.size());
  by_address_.erase(last.to);
  peers_.pop_back();
}

bool Gsi::post(const Peer& peer, const wire::Mad& mad) {
  if (free_sends_.empty()) return false;
  const std::uint32_t slot = free_sends_.back();
  const std::size_t at = std::size_t{kReceives} * kReceiveBytes + std::size_t{slot} * wire::kMadBytes;
  std::memcpy(memory_->memory().data() + at, mad.data(), mad.size());
  const Sge sge = memory_->sge(at, wire::kMadBytes);
  const SendWr wr{.wr_id = kSendMark | slot,
                  .sges = {&sge, 1},
                  .ah = peer.ah.id(),
                  .remote_qpn = kGsiQpn,
                  .remote_qkey = kGsiQkey};
  if (!qp_->post_send(wr)) return false;
  free_sends_.pop_back();
  return true;
}

void Gsi::send(const AhAttr& to, const wire::Mad& mad) noexcept {
  bool is_taken = false;
  try {
    is_taken = try_send(to, mad);
  } catch (const std::bad_alloc&) {
    is_taken = false;
  }
  if (!is_taken) ++dropped_;
}

/// Not ahead of what waits for the same peer, which may have become possible by now: a DREQ that comes before
/// its REP belongs to no connection.
/// @return whether it has left or waits.
bool Gsi::try_send(const AhAttr& to, const wire::Mad& mad) {
  const Time now = std::chrono::steady_clock::now();
  Peer* const peer = peer_at(to, now);
  if (peer == nullptr) return false;
  send_waiting(*peer, now);
  if (peer->waiting.empty() && is_ready(*peer) && post(*peer, mad)) return true;
  return keep(*peer, mad, now + kPatience);
}

bool Gsi::is_ready(Peer& peer) {
  if (!peer.resolved) peer.resolved = is_resolved(device_, peer.ah);
  return peer.resolved;
}

/// Where there is no room, he for whom most waits gets no more, or the first of it goes.
/// @return whether it waits.
bool Gsi::keep(Peer& peer, const wire::Mad& mad, Time until) {
  const auto same = std::ranges::find(peer.waiting, mad, &Waiting::mad);
  if (same != peer.waiting.end()) {
    same->until = until;  // to repeat what has not left would only keep others waiting
    return true;
  }
  if (waiting_ >= kWaiting) {
    Peer& most = *std::max_element(peers_.rbegin(), peers_.rend(), [](const Peer& a, const Peer& b) {
      return a.waiting.size() < b.waiting.size();
    });
    if (&most == &peer) return false;
    drop(most, 1);
  }
  peer.waiting.push_back({mad, until});
  ++waiting_;
  return true;
}

/// The first `count` of what waits.
void Gsi::drop(Peer& peer, std::size_t count) {
  dropped_ += count;
  forget(peer, count);
}

void Gsi::forget(Peer& peer, std::size_t count) {
  waiting_ -= count;
  peer.waiting.erase(peer.waiting.begin(), peer.waiting.begin() + static_cast<std::ptrdiff_t>(count));
}

/// Whether an address is known is asked the more seldom, the longer it is not.
void Gsi::send_waiting() {
  constexpr Time::duration kFirst = std::chrono::microseconds(100);
  constexpr Time::duration kLast = std::chrono::milliseconds(10);
  const Time now = std::chrono::steady_clock::now();
  for (Peer& peer : peers_) {
    if (peer.waiting.empty() || (!peer.resolved && now < peer.next_look)) continue;
    const Time::duration waited = now + kPatience - peer.waiting.front().until;
    send_waiting(peer, now);
    peer.next_look = now + std::clamp(waited / 4, kFirst, kLast);
  }
}

void Gsi::send_waiting(Peer& peer, Time now) {
  std::size_t sent = 0;
  while (sent < peer.waiting.size() && is_ready(peer) && post(peer, peer.waiting[sent].mad)) ++sent;
  forget(peer, sent);
  const std::size_t late =
      std::erase_if(peer.waiting, [now](const Waiting& one) { return one.until <= now; });
  waiting_ -= late;
  dropped_ += late;
  if (peer.waiting.empty()) peer.waiting.shrink_to_fit();
}

std::string Gsi::trouble(const AhAttr& to) const {
  const auto known = by_address_.find(to);
  return known == by_address_.end() ? "" : unresolved_text(device_, known->second->ah);
}

void Gsi::receive(const Wc& wc, const OnMad& on_mad) {
  const auto slot = static_cast<std::uint32_t>(wc.wr_id);
  const auto bytes = memory_->memory().subspan(std::size_t{slot} * kReceiveBytes).first<kReceiveBytes>();
  bool is_taken = wc.ok() && wc.byte_len == kReceiveBytes;
  if (is_taken) try {
      if (const auto from = way_back(device_.impl(), wc, bytes.first<kGrhBytes>()); from)
        on_mad(*from, bytes.last<wire::kMadBytes>());
    } catch (const std::bad_alloc&) {
      is_taken = false;  // who wants an answer repeats it
    }
  if (!is_taken) ++dropped_;
  post_receive(slot);
}

std::size_t Gsi::poll(const OnMad& on_mad) {
  std::array<Wc, 32> wcs;
  const std::size_t count = cq_->poll(wcs);
  for (const Wc& wc : std::span{wcs}.first(count)) {
    if ((wc.wr_id & kSendMark) != 0) {
      free_sends_.push_back(static_cast<std::uint32_t>(wc.wr_id));
    } else {
      receive(wc, on_mad);
    }
  }
  if (waiting_ != 0) send_waiting();
  return count;
}

}  // namespace uroce::cm
