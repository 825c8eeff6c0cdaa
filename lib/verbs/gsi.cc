#include "verbs/gsi.h"

#include <algorithm>

#include "transport/faults.h"
#include "verbs/device_impl.h"
#include "verbs/route_text.h"

namespace uroce {

namespace {

engine::LoopRunner& runner_of(Device& device, Qpn qpn) noexcept {
  return device.impl().runner_of(qpn);
}

/// @param source  that none of them reaches it from; unspecified: any
Error no_route(const std::vector<engine::Address>& own, const Gid& to, const Gid& source) {
  std::string has;
  bool is_own = source.is_unspecified();
  for (const engine::Address& a : own) {
    if (a.removed || a.type != GidType::kRoceV2) continue;
    is_own = is_own || a.gid == source;
    has += (has.empty() ? "" : ", ") + to_string(a.gid);
  }
  if (!is_own) return {Errc::kNotFound, to_string(source) + " is no address of this port, which has " + has};
  return {Errc::kNotFound, "no address of this port reaches " + to_string(to) +
                               ": give the port one of that family (--ip ADDR/PREFIX)"};
}

}  // namespace

unsigned gsi_loop(Device& device) noexcept {
  return raw(kGsiQpn) & static_cast<unsigned>(device.impl().runners.size() - 1);
}

void run_gsi_loop(Device& device) {
  runner_of(device, kGsiQpn).execute([](engine::PollLoop& loop, Ticks now) { (void)loop.run_once(now); });
}

Result<AhAttr> route_to(Device& device, const Gid& to, const Gid& source) {
  const engine::Addresses table = device.impl().address_table();
  const auto& own = table.own();
  const bool any = source.is_unspecified();
  const auto is_usable = [&](const engine::Address& a) {
    return a.type == GidType::kRoceV2 && engine::can_reach(a, to) && (any || a.gid == source) &&
           a.gid.is_link_local() == to.is_link_local();
  };
  enum class Way { kNone, kRouted, kByGateway, kOnLink };  // the better, the later
  const auto way = [&](std::size_t i) {
    if (!is_usable(own[i])) return Way::kNone;
    if (own[i].is_on_link(to) || to == own[i].gid) return Way::kOnLink;
    return table.has_gateway(i) ? Way::kByGateway : Way::kRouted;
  };
  std::optional<std::size_t> found;
  Way best = Way::kNone;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (const Way one = way(i); one > best) {
      best = one;
      found = i;
    }
  }
  if (!found.has_value()) return no_route(own, to, source);
  return AhAttr{.dgid = to, .sgid_index = static_cast<std::uint32_t>(*found)};
}

bool is_own_address(Device& device, const Gid& gid) {
  const auto own = device.impl().own_addresses();
  return std::any_of(own.begin(), own.end(),
                     [&](const engine::Address& a) { return a.gid == gid && !a.removed; });
}

bool is_resolved(Device& device, const Ah& ah) {
  bool resolved = false;
  runner_of(device, kGsiQpn).execute([&](engine::PollLoop& loop, Ticks) {
    resolved = loop.is_resolved(ah.id());
  });
  return resolved;
}

std::string unresolved_text(Device& device, const Ah& ah) {
  return is_resolved(device, ah) ? "" : describe_unresolved(device.impl().address_table(), ah.attr());
}

bool has_heard(Device& device, Qpn qpn) {
  bool heard = false;
  runner_of(device, qpn).execute([&](engine::PollLoop& loop, Ticks) {
    const transport::QueuePair* qp = loop.find(qpn);
    heard = qp != nullptr && qp->has_heard();
  });
  return heard;
}

void keep_alive(Device& device, Qpn qpn, std::chrono::nanoseconds silence) {
  runner_of(device, qpn).execute([&](engine::PollLoop& loop, Ticks now) {
    loop.keep_alive(qpn, static_cast<std::uint64_t>(silence.count()), now);
  });
}

bool is_polled_since(Device& device, Ticks time) noexcept {
  return std::ranges::all_of(device.impl().runners,
                             [time](const auto& runner) { return runner->last_poll() > time; });
}

void watch_failures(Device& device, int fd) {
  for (auto& runner : device.impl().runners) {
    runner->execute([fd](engine::PollLoop& loop, Ticks) { loop.watch_failures(fd); });
  }
}

std::string failure_of(Device& device, Qpn qpn) {
  std::string text;
  runner_of(device, qpn).execute([&](engine::PollLoop& loop, Ticks) {
    const transport::QueuePair* qp = loop.find(qpn);
    if (qp != nullptr && qp->state() == QpState::kError) text = transport::row(qp->context().fatal).text;
  });
  return text;
}

void take_failures(Device& device, bool has_missed, const std::function<std::vector<Qpn>()>& all,
                   const std::function<void(Qpn)>& failed) {
  for (auto& loop : device.impl().loops) {
    std::size_t taken = 0;
    for (Qpn qpn{}; loop->next_failure(qpn); ++taken) failed(qpn);
    has_missed = has_missed || taken >= engine::PollLoop::kFailures;
  }
  if (!has_missed) return;
  for (const Qpn qpn : all()) {
    if (!failure_of(device, qpn).empty()) failed(qpn);
  }
}

}  // namespace uroce
