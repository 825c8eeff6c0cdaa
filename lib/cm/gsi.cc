#include "cm/gsi.h"

#include <algorithm>
#include <cstring>
#include <set>
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

/// One that is not new is made anew, which asks whether its Ethernet address is still the right one: a peer
/// that has come back elsewhere does not say so.
Gsi::Handle* Gsi::handle_to(const AhAttr& to) {
  constexpr auto kNew = std::chrono::seconds(1);
  const auto now = std::chrono::steady_clock::now();
  const auto known = handles_.find(to);
  if (known != handles_.end() && now - known->second.made < kNew) {
    known->second.used = ++uses_;
    return &known->second;
  }
  auto ah = Ah::create(*pd_, to);
  if (!ah) return nullptr;
  if (known == handles_.end() && handles_.size() >= kHandles) {
    handles_.erase(std::min_element(handles_.begin(), handles_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  Handle made{std::move(*ah), now, false, ++uses_};
  if (known != handles_.end()) made.former.emplace(std::move(known->second.ah));
  return &handles_.insert_or_assign(to, std::move(made)).first->second;
}

bool Gsi::post(const Handle& handle, const wire::Mad& mad) {
  if (free_sends_.empty()) return false;
  const std::uint32_t slot = free_sends_.back();
  const std::size_t at = std::size_t{kReceives} * kReceiveBytes + std::size_t{slot} * wire::kMadBytes;
  std::memcpy(memory_->memory().data() + at, mad.data(), mad.size());
  const Sge sge = memory_->sge(at, wire::kMadBytes);
  const SendWr wr{.wr_id = kSendMark | slot,
                  .sges = {&sge, 1},
                  .ah = handle.ah.id(),
                  .remote_qpn = kGsiQpn,
                  .remote_qkey = kGsiQkey};
  if (!qp_->post_send(wr)) return false;
  free_sends_.pop_back();
  return true;
}

/// Not ahead of what waits for the same peer, which may have become possible by now: a DREQ that comes before
/// its REP belongs to no connection.
void Gsi::send(const AhAttr& to, const wire::Mad& mad) {
  if (waits_for(to)) send_waiting();
  Handle* handle = handle_to(to);
  if (handle == nullptr) {
    ++dropped_;
    return;
  }
  if (!waits_for(to) && is_ready(*handle) && post(*handle, mad)) return;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  const auto same = [&](const Waiting& one) { return one.to == to && one.mad == mad; };
  if (const auto former = std::ranges::find_if(waiting_, same); former != waiting_.end()) {
    former->until = until;  // to repeat what has not left would only keep others waiting
  } else if (waiting_.size() < kWaiting) {
    waiting_.push_back({to, mad, until});
  } else {
    ++dropped_;
  }
}

bool Gsi::waits_for(const AhAttr& to) const {
  return std::ranges::find(waiting_, to, &Waiting::to) != waiting_.end();
}

bool Gsi::is_ready(Handle& handle) {
  if (!handle.resolved) handle.resolved = is_resolved(device_, handle.ah);
  return handle.resolved;
}

void Gsi::send_waiting() {
  const auto now = std::chrono::steady_clock::now();
  std::set<AhAttr, Order> stuck;  // nothing overtakes what stays
  std::erase_if(waiting_, [&](const Waiting& one) {
    Handle* handle = stuck.contains(one.to) ? nullptr : handle_to(one.to);
    if (handle != nullptr && is_ready(*handle) && post(*handle, one.mad)) return true;
    stuck.insert(one.to);
    const bool is_late = one.until <= now;
    dropped_ += is_late ? 1 : 0;
    return is_late;
  });
}

std::string Gsi::trouble(const AhAttr& to) const {
  const auto known = handles_.find(to);
  return known == handles_.end() ? "" : unresolved_text(device_, known->second.ah);
}

void Gsi::receive(const Wc& wc, const OnMad& on_mad) {
  const auto slot = static_cast<std::uint32_t>(wc.wr_id);
  const auto bytes = memory_->memory().subspan(std::size_t{slot} * kReceiveBytes).first<kReceiveBytes>();
  const bool is_mad = wc.ok() && wc.byte_len == kReceiveBytes;
  if (is_mad) {
    if (const auto from = way_back(device_.impl(), wc, bytes.first<kGrhBytes>()); from) {
      on_mad(*from, bytes.last<wire::kMadBytes>());
    }
  } else {
    ++dropped_;
  }
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
  if (!waiting_.empty()) send_waiting();
  return count;
}

}  // namespace uroce::cm
