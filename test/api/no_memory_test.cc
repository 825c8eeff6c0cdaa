// What is left when memory runs out in the middle of a call: nothing, and everything else works on.
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/ends.h"
#include "api/failing_new.h"
#include "drivers/pcap/capture_file.h"
#include "engine/groups.h"
#include "mem/key_table.h"
#include "support/full_at.h"
#include "transport/responder_resources.h"
#include "uroce/ah.h"
#include "uroce/ece.h"
#include "uroce/message_channel.h"
#include "uroce/rpc.h"
#include "verbs/counters_file.h"
#include "verbs/device_impl.h"

namespace uroce::api {
namespace {

/// Makes each allocation of `make` fail in turn, until there is none left to fail. What `make` returns at
/// last goes to `keep`.
template <typename Make>
auto fail_each_allocation(Make make) {
  for (long n = 0;; ++n) {
    allocations_left = n;
    auto made = make();
    const bool all_succeeded = allocations_left > 0;
    allocations_left = -1;
    if (all_succeeded) {
      REQUIRE(made.has_value());
      return std::move(*made);
    }
    if (!made) CHECK(made.error().code == Errc::kNoMemory);
    REQUIRE(n < 10000);
  }
}

}  // namespace

TEST_CASE("a device that there is no memory for leaves nothing behind", "[api][memory]") {
  Config config;
  config.port = "shm:no-memory" + std::to_string(getpid());
  config.ip = {"10.9.0.1/24", "fd00::1/64"};
  config.no_huge = true;
  config.mode = GENERATE(Mode::kApp, Mode::kAuto, Mode::kLcore);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  must(Device::open(config));  // what is made once in a process is there
  const auto before = open_files();
  fail_each_allocation([&] { return Device::open(config); });
  CHECK(open_files() == before);
}

TEST_CASE("counters that there is no memory for end no program", "[api][memory]") {
  CHECK(test::end_of([] {
          fail_for_good = true;
          append_counters("/dev/null", "a device that closes",
                          [] { return std::vector<Counter>{{.name = std::string(100, 'x'), .value = 1}}; });
          fail_for_good = false;
          return true;
        }) == "good");
}

TEST_CASE("a QP that there is no memory for leaves nothing behind", "[api][memory]") {
  Joined link(Mode::kApp);
  Cq cq = must(Cq::create(link.a.device, 256));
  Cq peer_cq = must(Cq::create(link.b.device, 256));
  Srq srq = must(Srq::create(link.a.pd, {.max_wr = 16}));
  Qp receiver = fail_each_allocation(
      [&] { return Qp::create(link.a.pd, cq, cq, srq, QpInitAttr{.type = QpType::kUc}); });
  Qp sender = must(Qp::create(link.b.pd, peer_cq, peer_cq, {.type = QpType::kUc}));
  REQUIRE(join(link.a, receiver, link.b, sender));
  // A QP that is reset within a message gives its receive back, for which there must be room.
  constexpr std::size_t kBytes = 4U << 20U;  // more than a QP sends at a time
  Mr source = must(Mr::alloc(link.b.pd, kBytes, access::kLocalWrite));
  Mr target = must(Mr::alloc(link.a.pd, kBytes, access::kLocalWrite));
  const Sge room = target.sge(0, kBytes);
  REQUIRE(srq.post_recv({.wr_id = 7, .sges = {&room, 1}}));
  const Sge large = source.sge(0, kBytes);
  REQUIRE(sender.post_send({.wr_id = 1, .sges = {&large, 1}}));
  for (int i = 0; i < 100; ++i) link.a.device.progress();
  Wc wc;
  REQUIRE(cq.poll({&wc, 1}) == 0);
  for (Qp* const qp : {&sender, &receiver}) {
    REQUIRE(qp->modify({.state = QpState::kReset}, qp_attr::kState));
  }
  REQUIRE(join(link.a, receiver, link.b, sender));
  const Sge fits = source.sge(0, 100);
  REQUIRE(sender.post_send({.wr_id = 2, .sges = {&fits, 1}}));
  REQUIRE(within(5s, [&] {
    link.b.device.progress();
    return cq.poll({&wc, 1}) == 1;
  }));
  CHECK(wc.ok());
  CHECK(wc.wr_id == 7);
}

TEST_CASE("an address handle that there is no memory for leaves nothing behind", "[api][memory]") {
  Joined link(Mode::kApp);
  const AhAttr attr{.dgid = link.b.gid()};
  const Ah other = must(Ah::create(link.a.pd, attr));
  for (int i = 0; i < 3; ++i) {
    const Ah there = fail_each_allocation([&] { return Ah::create(link.a.pd, attr); });
    CHECK(there.id() != other.id());
  }
}

TEST_CASE("a message channel that there is no memory for is an error", "[api][memory]") {
  Joined link(Mode::kApp);
  const MessageChannelAttr attr{.message_bytes = 64, .sends = 1, .receives = 1};
  const MessageChannel channel =
      fail_each_allocation([&] { return MessageChannel::create(link.a.pd, link.a.device, attr); });
}

TEST_CASE("a server of calls that there is no memory for is an error, and leaves its port", "[api][memory]") {
  Joined link(Mode::kApp);
  Cm cm = must(Cm::open(link.a.device));
  const RpcServerAttr attr{.at = {.port = 9}, .message_bytes = 64, .requests = 1};
  const RpcServer server = fail_each_allocation([&] { return RpcServer::listen(cm, link.a.pd, attr); });
  CHECK(server.port() == 9);
}

namespace {

/// With `n` allocations that succeed, and one that fails. @return whether it was reached.
template <typename Step>
bool fails_in(long n, Step step) {
  allocations_left = n;
  step();
  return std::exchange(allocations_left, -1) < 0;
}

}  // namespace

TEST_CASE("a server of calls that there is no memory in refuses clients, and lets them go",
          "[api][memory][rpc]") {
  Joined link(Mode::kApp);
  Cm cm_a = must(Cm::open(link.a.device));
  Cm cm_b = must(Cm::open(link.b.device));
  RpcServer server =
      must(RpcServer::listen(cm_b, link.b.pd, {.message_bytes = 64, .requests = 1, .clients = 1}));
  const std::string_view greeting = GENERATE("uroce rpc 1", "another kind");
  std::array<RpcRequest, 1> none;
  bool is_done = false;
  for (long n = 0; !is_done; ++n) {
    REQUIRE(n < 1000);
    bool has_failed = false;
    const auto poll = [&] {
      has_failed |= fails_in(n, [&] { return server.poll(none); });
      link.a.device.progress();
    };
    MessageChannel channel = must(
        MessageChannel::create(link.a.pd, link.a.device, {.message_bytes = 64, .sends = 1, .receives = 1}));
    CmChannel events = must(CmChannel::create(cm_a));
    const CmConnect ask{.to = {link.b.gid(), server.port()},
                        .private_data = std::as_bytes(std::span(greeting)),
                        .timeout = std::chrono::milliseconds(500)};
    REQUIRE(events.connect(must(events.create_id(PortSpace::kTcp)), ask, &channel.qp()));
    CmEvent event;
    REQUIRE(within(20s, [&] { return poll(), events.next(event); }));  // or is told of no answer
    if (event.type == CmEventType::kEstablished) {
      REQUIRE(within(20s, [&] { return poll(), server.clients() == 1; }));
      REQUIRE(events.disconnect(event.id));
      REQUIRE(within(20s, [&] { return poll(), server.clients() == 0; }));
    }
    is_done = !has_failed && event.type != CmEventType::kUnreachable;
  }
  CHECK(server.counts().refused > 0);
  CHECK((server.counts().clients > 0) == (greeting == "uroce rpc 1"));
}

TEST_CASE("a client of calls that there is no memory for finds its server when there is",
          "[api][memory][rpc]") {
  Joined link(Mode::kApp);
  Cm cm_a = must(Cm::open(link.a.device));
  Cm cm_b = must(Cm::open(link.b.device));
  const RpcServerAttr attr{.at = {.port = 9}, .message_bytes = 64, .requests = 1};
  std::optional<RpcServer> server(must(RpcServer::listen(cm_b, link.b.pd, attr)));
  std::optional<RpcClient> client;
  std::atomic<bool> is_connected = false;
  std::thread thread([&] {
    auto made = RpcClient::connect(cm_a, link.a.pd,
                                   {.to = {link.b.gid(), 9},
                                    .message_bytes = 64,
                                    .calls = 1,
                                    .longest_pause = std::chrono::milliseconds(1)});
    if (made) client.emplace(std::move(*made));
    is_connected = true;
  });
  std::array<RpcRequest, 1> none;
  while (!is_connected) (void)server->poll(none);
  thread.join();
  REQUIRE(client.has_value());
  bool has_failed = true;
  for (long n = 0; has_failed; ++n) {
    REQUIRE(n < 1000);
    has_failed = false;
    server.reset();
    server.emplace(must(RpcServer::listen(cm_b, link.b.pd, attr)));
    const std::uint64_t before = client->counts().connections;
    std::array<RpcReply, 1> no_reply;
    REQUIRE(within(20s, [&] {
      const auto poll = [&] { return client->poll(no_reply); };
      has_failed ? (void)poll() : (void)(has_failed = fails_in(n, poll));
      (void)server->poll(none);
      return client->counts().connections > before;
    }));
  }
  CHECK(client->is_connected());
}

TEST_CASE("an XRC domain that there is no memory for is an error", "[api][memory]") {
  Joined link(Mode::kApp);
  const Xrcd domain = fail_each_allocation([&] { return Xrcd::create(link.a.device); });
}

namespace {

/// The GIDs of a device that are there.
std::size_t live_gids(const Device& device) {
  std::size_t count = 0;
  for (const GidEntry& entry : device.gids()) count += entry.gid.is_zero() ? 0 : 1;
  return count;
}

/// Makes each allocation of `change` fail in turn, until it succeeds; `unchanged` holds until then.
template <typename Change, typename Unchanged>
void fail_until_changed(Change change, Unchanged unchanged) {
  for (long n = 0;; ++n) {
    allocations_left = n;
    const Status changed = change();
    allocations_left = -1;
    if (changed) return;
    CHECK(changed.error().code == Errc::kNoMemory);
    CHECK(unchanged());
    REQUIRE(n < 10000);
  }
}

}  // namespace

TEST_CASE("a QP that has no memory for what it is to remember stays in Init", "[api][memory][ece]") {
  Joined link(Mode::kApp);
  Cq cq = must(Cq::create(link.a.device, 16));
  Qp qp = must(Qp::create(link.a.pd, cq, cq, {}));
  REQUIRE(qp.set_ece({.vendor_id = ece::kVendor, .options = ece::kSelectiveRepeat}));
  QpAttr attr = towards(link.b, qp);
  attr.state = QpState::kInit;
  REQUIRE(qp.modify(attr, qp_attr::kInitMask));
  const QpAttr before = qp.query();
  attr.state = QpState::kRtr;
  fail_until_changed([&] { return qp.modify(attr, qp_attr::kRtrMask); },
                     [&] {
                       const QpAttr kept = qp.query();
                       return kept.state == QpState::kInit && kept.dest_qpn == before.dest_qpn &&
                              kept.rq_psn == before.rq_psn && kept.path_mtu == before.path_mtu &&
                              kept.dgid == before.dgid;
                     });
  CHECK(qp.query().state == QpState::kRtr);
}

TEST_CASE("a QP that has no memory for more READs in flight keeps the attributes that it has",
          "[api][memory][sqd]") {
  Joined link(Mode::kApp);
  Cq cq = must(Cq::create(link.a.device, 16));
  Qp qp = must(Qp::create(link.a.pd, cq, cq, {}));
  QpAttr attr = towards(link.b, qp);
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 2;
  REQUIRE(qp.connect(attr));
  REQUIRE(qp.modify({.state = QpState::kSqd}, qp_attr::kState));
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 16;
  fail_until_changed([&] { return qp.modify(attr, qp_attr::kMaxQpRdAtomic | qp_attr::kMaxDestRdAtomic); },
                     [&] {
                       const QpAttr kept = qp.query();
                       return kept.max_rd_atomic == 2 && kept.max_dest_rd_atomic == 2;
                     });
  CHECK(qp.query().max_dest_rd_atomic == 16);
}

TEST_CASE("a responder that has no memory to remember more requests remembers the newest ones", "[memory]") {
  transport::ResponderResources remembered;
  remembered.resize(2);
  const auto add = [&remembered](std::uint32_t psn) {
    transport::ResponderResource& request = *remembered.add();
    request.first_psn = Psn{psn};
    request.packets = 1;
  };
  for (std::uint32_t psn = 0; psn < 3; ++psn) add(psn);
  for (long n = 0; n < 2; ++n) {
    allocations_left = n;
    bool is_resized = false;
    try {
      remembered.resize(4);
      is_resized = true;
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    REQUIRE_FALSE(is_resized);
  }
  add(3);
  CHECK(remembered.find(Psn{2}) != nullptr);
  CHECK(remembered.find(Psn{1}) == nullptr);
}

TEST_CASE("a group that there is no memory for is none", "[memory][multicast]") {
  alignas(64) std::byte somewhere[64];
  auto* const member = static_cast<transport::QueuePair*>(static_cast<void*>(somewhere));
  const Gid gid = *Gid::parse("239.1.2.3");
  engine::Groups groups(2);
  bool is_attached = false;
  for (long n = 0; !is_attached; ++n) {
    allocations_left = n;
    try {
      groups.attach(gid, 0, member);
      is_attached = true;
    } catch (const std::bad_alloc&) {
      is_attached = false;
    }
    allocations_left = -1;
    CHECK(groups.is_empty() != is_attached);
  }
  CHECK(groups.find(gid)->members.size() == 1);
}

TEST_CASE("a QP that goes or is reset takes its completions along where there is no memory",
          "[api][memory][cq]") {
  Joined link(Mode::kApp);
  Cq cq = must(Cq::create(link.a.device, 64));
  Qp kept = must(Qp::create(link.a.pd, cq, cq, {}));
  std::vector<Qp> qps;
  for (int i = 0; i < 8; ++i) qps.push_back(must(Qp::create(link.a.pd, cq, cq, {})));
  const auto fail = [&](Qp& qp) {  // its receive is flushed
    QpAttr attr = towards(link.b, qp);
    attr.state = QpState::kInit;
    REQUIRE(qp.modify(attr, qp_attr::kInitMask));
    REQUIRE(qp.post_recv({.wr_id = 1}));
    REQUIRE(qp.modify({.state = QpState::kError}, qp_attr::kState));
  };
  fail(kept);
  for (Qp& qp : qps) fail(qp);
  allocations_left = 0;
  const Status reset = qps[0].modify({.state = QpState::kReset}, qp_attr::kState);
  qps.clear();
  allocations_left = -1;
  CHECK(reset);
  Wc wc;
  REQUIRE(cq.poll({&wc, 1}) == 1);
  CHECK(wc.qpn == kept.qpn());
  CHECK(cq.poll({&wc, 1}) == 0);
}

TEST_CASE("a region that there is no memory for leaves no key behind", "[api][memory][mr]") {
  Joined link(Mode::kApp);
  std::vector<std::byte> bytes(4096);
  const Mr region = fail_each_allocation([&] { return Mr::reg(link.a.pd, bytes, access::kAll); });
  CHECK(link.a.device.impl().keys.size() == 1);
}

TEST_CASE("a region goes where there is no memory, behind one that its windows have outlived",
          "[memory][mr][windows]") {
  for (long n = 0; n < 8; ++n) {
    mem::KeyTable keys(1, [] {});
    std::array<std::byte, 64> bytes{};
    const mem::Region region{.addr = std::bit_cast<std::uint64_t>(bytes.data()),
                             .length = bytes.size(),
                             .pd = 1,
                             .access = access::kAll | access::kMwBind};
    const std::uint32_t bound = keys.insert(region).value();
    const std::uint32_t window = keys.insert_window(MwType::kType1, 1).value();
    const MwBind to{
        .mr = Lkey{bound}, .addr = region.addr, .length = region.length, .access = access::kRemoteRead};
    REQUIRE(keys.bind(window + 1, {.pd = 1}, to) == mem::BindResult::kDone);
    keys.remove(bound);
    keys.remove_window(window);
    const std::uint32_t last = keys.insert(region).value();
    allocations_left = n;
    bool is_gone = false;
    try {
      keys.remove(last);
      is_gone = true;
    } catch (const std::bad_alloc&) {
      is_gone = false;
    }
    allocations_left = -1;
    CHECK(is_gone);
  }
}

TEST_CASE("a region that there is no memory to register anew goes as any other", "[api][memory][mr]") {
  Joined link(Mode::kApp);
  std::vector<std::byte> bytes(4096);
  Mr region = must(Mr::reg(link.a.pd, bytes, access::kLocalWrite));
  allocations_left = GENERATE(range(0L, 8L));
  const Status changed =
      region.rereg(mr_change::kAccess, link.a.pd, {}, access::kLocalWrite | access::kMwBind);
  allocations_left = -1;
  if (!changed) CHECK(changed.error().code == Errc::kNoMemory);
}

TEST_CASE("addresses that there is no memory for do not come, nor go half-way", "[api][memory][gid]") {
  Joined link(Mode::kApp);
  Device& device = link.a.device;
  const std::size_t before = live_gids(device);
  fail_until_changed([&] { return device.add_ip("10.9.0.1/24"); },
                     [&] { return live_gids(device) == before; });
  CHECK(live_gids(device) == before + 1);
  fail_until_changed([&] { return device.remove_ip("10.9.0.1/24"); },
                     [&] { return live_gids(device) == before + 1; });
  CHECK(live_gids(device) == before);
}

TEST_CASE("QPs join and leave groups, and go, where there is no memory", "[api][memory][multicast]") {
  Joined link(Mode::kApp);
  const Gid group = *Gid::parse("239.1.2.3");
  Cq cq = must(Cq::create(link.a.device, 16));
  std::optional<Qp> qp = must(Qp::create(link.a.pd, cq, cq, QpInitAttr{.type = QpType::kUd}));
  fail_until_changed([&] { return qp->attach_multicast(group); },
                     [&] { return !qp->detach_multicast(group).has_value(); });
  allocations_left = 0;
  const bool left = qp->detach_multicast(group).has_value();
  allocations_left = -1;
  CHECK(left);
  REQUIRE(qp->attach_multicast(group).has_value());
  allocations_left = 0;
  qp.reset();
  allocations_left = -1;
}

TEST_CASE("a capture that there is no memory for leaves no file open", "[memory][pcap]") {
  const std::string path = "/tmp/uroce-no-memory-" + std::to_string(getpid()) + ".pcapng";
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  std::shared_ptr<drivers::pcap::CaptureFile> capture;
  for (long n = 0; capture == nullptr; ++n) {
    REQUIRE(n < 100);
    CHECK(open_files() == before);
    allocations_left = n;
    try {
      if (auto made = drivers::pcap::CaptureFile::create(path)) capture = *made;
    } catch (const std::bad_alloc&) {  // one more the next time
    }
    allocations_left = -1;
  }
  capture.reset();
  std::filesystem::remove(path);
}

TEST_CASE("CQs and SRQs that cannot be resized for lack of memory stay as they are", "[api][memory]") {
  Joined link(GENERATE(Mode::kApp, Mode::kLcore));
  Cq cq = must(Cq::create(link.a.device, 16));
  allocations_left = 0;
  const Status resized = cq.resize(1024);
  allocations_left = -1;
  if (link.a.device.config().mode == Mode::kApp) {  // otherwise another thread has memory
    REQUIRE_FALSE(resized.has_value());
    CHECK(resized.error().code == Errc::kNoMemory);
    CHECK(cq.entries() == 16);
  }
}

}  // namespace uroce::api
