// S9: requests as fast as somebody can send them. What is kept of them is bounded by the backlog and the
// configured number of ids; all is counted, to the byte.
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "station.h"

namespace {

std::size_t g_live_bytes = 0;  // allocated and not freed
std::size_t g_most_bytes = 0;

void* count(void* memory) noexcept {
  g_live_bytes += malloc_usable_size(memory);
  g_most_bytes = std::max(g_most_bytes, g_live_bytes);
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return count(memory);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return count(std::malloc(size));
}
void operator delete(void* memory) noexcept {
  g_live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  operator delete(memory);
}

namespace uroce::test {
namespace {

using namespace uroce::wire;

/// Per id, at most: what is remembered of it and its entries in the agent's tables.
constexpr std::size_t kBytesPerId = 1500;

CmReq random_req(Random& random) {
  CmReq req = peer_req(random.next32(), Qpn{random.next32() & 0xff'ffff});
  req.ca_guid = random.next();
  return req;
}

/// `count` requests, a microsecond apart; `act` is what the application does after each.
template <typename F>
void flood(Station& a, unsigned count, F&& act) {
  Random random(7);
  for (unsigned i = 0; i < count; ++i) {
    a.wait(1000);
    a.in(random_req(random));
    a.sent.clear();
    act();
  }
}

/// A request of somebody else, served to the end.
void check_honest(Station& a) {
  auto req = peer_req();
  req.local_gid = kElsewhere;
  req.private_data = with_ip<92>("", kElsewhere);
  a.in(req, kPeerTransaction, kElsewhere);
  const CmId id = a.event(CmEventType::kConnectRequest).id;
  a.accept(id);
  a.out<CmRep>(kElsewhere);
  a.in(CmRtu{.local_comm_id = kPeerId, .remote_comm_id = raw(id)}, kPeerTransaction, kElsewhere);
  CHECK(a.event(CmEventType::kEstablished).id == id);
  a.agent.close(id, a.now);
  a.drain();
}

}  // namespace

TEST_CASE("a flood of requests that nobody answers takes no more than the backlog", "[cm][S9]") {
  Station a;
  const CmId listener = a.listener(64);
  CmId before{};
  {
    auto req = peer_req(1, Qpn{1});
    req.ca_guid = 1;
    before = a.accepted(req);
  }
  std::vector<CmId> waiting;
  const std::size_t bytes_before = g_live_bytes;
  g_most_bytes = g_live_bytes;
  flood(a, 1'000'000, [&] {
    while (!a.events.empty()) {
      waiting.push_back(a.events.front().id);
      a.events.pop_front();
    }
  });
  CHECK(waiting.size() == 64);
  CHECK(a.agent.size() == 66);
  CHECK(a.agent.counters().rejected == 1'000'000 - 64);
  CHECK(g_most_bytes - bytes_before < 64 * kBytesPerId);
  CHECK(a.state(before) == cm::State::kEstablished);
  // As soon as the application has looked at them there is room.
  for (const CmId id : waiting) a.agent.close(id, a.now);
  a.sent.clear();
  check_honest(a);
  CHECK(a.agent.size() == 2);
  CHECK(a.agent.find(listener)->waiting == 0);
  waiting = {};
  a.sent = {};
  CHECK(g_live_bytes < bytes_before + 2 * kBytesPerId);
  a.quiet();
}

TEST_CASE("a flood that the application refuses takes no more than half of the ids", "[cm][S9]") {
  cm::AgentConfig config{.ca_guid = kOwnGuid, .max_ids = 1000};
  Station a(config);
  a.listener(64);
  const std::size_t bytes_before = g_live_bytes;
  g_most_bytes = g_live_bytes;
  std::size_t most_ids = 0;
  bool closes = false;
  flood(a, 200'000, [&] {
    while (!a.events.empty()) {
      const CmId id = a.events.front().id;
      a.events.pop_front();
      closes = !closes;
      if (!closes) REQUIRE(a.agent.reject(id, {}, a.now));
      a.agent.close(id, a.now);
    }
    a.sent.clear();
    most_ids = std::max(most_ids, a.agent.size());
  });
  CHECK(most_ids >= 500);
  CHECK(most_ids <= 503);
  CHECK(g_most_bytes - bytes_before < 503 * kBytesPerId);
  a.wait(3 * kSecond);  // so long those that were refused are remembered
  CHECK(a.agent.size() == 1);
  a.sent = {};
  CHECK(g_live_bytes < bytes_before + 10 * kBytesPerId);  // and the table that grew
  check_honest(a);
}

namespace {

/// What a peer says that no longer waits, and has not heard of us. IBA 12.6.7.2.
CmRej taken_back(const CmReq& req) {
  CmRej rej{.local_comm_id = req.local_comm_id,
            .about = CmAbout::kReq,
            .info_len = 8,
            .reason = static_cast<std::uint16_t>(CmReject::kTimeout)};
  store_be<0, 8>(std::span{rej.info}, req.ca_guid);
  return rej;
}

}  // namespace

TEST_CASE("of requests that led to nothing only the last are remembered, and nobody is refused for them",
          "[cm][sidr][S9]") {
  enum class How { kRefused, kTakenBack, kResolved };
  const How how = GENERATE(How::kRefused, How::kTakenBack, How::kResolved);
  Station a;
  a.listener(4);
  a.listener(4, PortSpace::kUdp);
  Random random(7);
  std::size_t most_ids = 0;
  for (unsigned i = 0; i < 20'000; ++i) {
    const CmReq req = random_req(random);
    if (how == How::kResolved) {
      a.in(SidrReq{.request_id = random.next32(),
                   .service_id = cm::service_id(PortSpace::kUdp, kPort),
                   .private_data = with_ip<216>("")});
      a.agent.close(a.event(CmEventType::kServiceRequest).id, a.now);
    } else {
      a.in(req);
      const CmId id = a.event(CmEventType::kConnectRequest).id;
      if (how == How::kTakenBack) {
        a.in(taken_back(req));
        CHECK(a.event(CmEventType::kRejected).id == id);
      }
      a.agent.close(id, a.now);
    }
    a.wait(1);
    a.sent.clear();
    a.events.clear();
    most_ids = std::max(most_ids, a.agent.size());
  }
  CHECK(most_ids <= 1024 + 3);
  CHECK(most_ids > 1000);
  check_honest(a);
}

TEST_CASE("a flood that the application accepts is gone when the REPs have been repeated in vain",
          "[cm][S9]") {
  cm::AgentConfig config{.ca_guid = kOwnGuid, .max_ids = 1000};
  Station a(config);
  a.listener(64);
  flood(a, 100'000, [&] {
    while (!a.events.empty()) {
      const CmEvent event = std::move(a.events.front());
      a.events.pop_front();
      if (event.type == CmEventType::kConnectRequest) a.accept(event.id);
    }
    a.sent.clear();
  });
  CHECK(a.agent.size() == 1000);
  std::size_t unreachable = 0;
  a.wait(14 * kSecond);
  for (const CmEvent& event : a.events) {
    if (event.type != CmEventType::kUnreachable) continue;
    ++unreachable;
    a.agent.close(event.id, a.now);
  }
  CHECK(unreachable == 999);
  CHECK(a.agent.size() == 1);
  a.sent.clear();
  a.events.clear();
  check_honest(a);
}

TEST_CASE("a flood of resolutions takes no more than the backlog", "[cm][sidr][S9]") {
  Station a;
  a.listener(64, PortSpace::kUdp);
  Random random(7);
  for (unsigned i = 0; i < 100'000; ++i) {
    a.wait(1000);
    a.in(SidrReq{.request_id = random.next32(),
                 .service_id = cm::service_id(PortSpace::kUdp, kPort),
                 .private_data = with_ip<216>("")});
    a.sent.clear();
  }
  CHECK(a.events.size() == 64);
  CHECK(a.agent.size() == 65);
  for (const CmEvent& event : a.events) a.agent.close(event.id, a.now);
  a.drain();
  CHECK(a.agent.size() == 1);
}

}  // namespace uroce::test
