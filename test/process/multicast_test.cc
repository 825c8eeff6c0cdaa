// Multicast between two processes: every member on both sides gets each datagram once.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "process/counters.h"
#include "process/processes.h"
#include "uroce/ah.h"
#include "uroce/mr.h"
#include "uroce/qp.h"

namespace uroce::test {
namespace {

constexpr std::uint32_t kQkey = 0x0123'4567;
constexpr std::uint32_t kMessages = 64;
constexpr std::uint32_t kSlot = 512;
constexpr std::uint32_t kBytes = 200;

struct Meeting {
  std::atomic<bool> child_listens;
  std::atomic<bool> all_is_said;
};

/// A UD QP that is a member of the group and has a receive for each message.
struct Member {
  static std::unique_ptr<Member> make(Device& device, Pd& pd, const Gid& group, std::uint32_t qkey) {
    auto cq = Cq::create(device, 2 * kMessages);
    if (!cq) return nullptr;
    auto made = std::make_unique<Member>(Member{std::move(*cq), {}, {}});
    auto qp = Qp::create(pd, made->cq, made->cq, {.type = QpType::kUd, .max_recv_wr = kMessages});
    auto mr = Mr::alloc(pd, kSlot * (kMessages + 1), access::kAll);
    if (!qp || !mr || !qp->connect({.qkey = qkey}) || !qp->attach_multicast(group)) return nullptr;
    made->qp = std::make_unique<Qp>(std::move(*qp));
    made->mr = std::make_unique<Mr>(std::move(*mr));
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const Sge sge = made->mr->sge(i * kSlot, kGrhBytes + kBytes);
      if (!made->qp->post_recv({.wr_id = i, .sges = {&sge, 1}})) return nullptr;
    }
    return made;
  }

  /// Takes every message, in order and undamaged. @return how many came.
  std::uint32_t take_all(Device& device) {
    std::uint32_t next = 0;
    (void)await(
        [&] {
          device.progress();
          Wc wc;
          while (cq.poll({&wc, 1}) == 1) {
            if (wc.opcode != WcOpcode::kRecv) continue;
            const auto bytes = mr->memory().subspan(wc.wr_id * kSlot + kGrhBytes, kBytes);
            if (!wc.ok() || bytes[0] != std::byte(next) || bytes[kBytes - 1] != std::byte(next + 1))
              return true;
            ++next;
          }
          return next >= kMessages;
        },
        20);
    return next;
  }

  Cq cq;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Mr> mr;
};

Result<Device> open(const std::string& port) {
  Config config;
  config.port = port;
  config.no_huge = true;
  return Device::open(config);
}

int listen(const std::string& port, const Gid& group, Meeting& meeting) {
  auto device = open(port);
  if (!device) return 1;
  auto pd = Pd::create(*device);
  if (!pd) return 2;
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 3; ++i) members.push_back(Member::make(*device, *pd, group, kQkey));
  auto stranger = Member::make(*device, *pd, group, kQkey + 1);
  for (const auto& member : members) {
    if (member == nullptr) return 3;
  }
  if (stranger == nullptr) return 3;
  meeting.child_listens.store(true);
  for (auto& member : members) {
    if (member->take_all(*device) != kMessages) return 4;
  }
  Wc wc;
  if (stranger->cq.poll({&wc, 1}) != 0) return 5;
  if (counter(*device, "multicast_copies") != 3 * kMessages) return 6;
  if (counter(*device, "drop_bad_qkey") != kMessages) return 7;
  return await([&] { return meeting.all_is_said.load(); }, 20) ? 0 : 8;
}

}  // namespace

TEST_CASE("members in two processes receive each datagram to their group once", "[process][multicast]") {
  const char* const text = GENERATE("239.1.2.3", "ff1e::1234:5678");
  const Gid group = *Gid::parse(text);
  RuntimeDir runtime;
  Shared<Meeting> meeting;
  const std::string port = "shm:mc" + std::to_string(::getpid());
  Child child([&] { return listen(port, group, *meeting); });
  auto device = open(port);
  REQUIRE(device.has_value());
  auto pd = Pd::create(*device);
  REQUIRE(pd.has_value());
  auto member = Member::make(*device, *pd, group, kQkey);
  REQUIRE(member != nullptr);
  const auto ah = Ah::create(*pd, {.dgid = group, .sgid_index = group.is_v4() ? 1U : 0U});
  REQUIRE(ah.has_value());
  REQUIRE(await(
      [&] {
        device->progress();
        return meeting->child_listens.load() || child.has_ended();
      },
      20));
  const auto memory = member->mr->memory().subspan(kMessages * kSlot, kBytes);
  const Sge sge = member->mr->sge(kMessages * kSlot, kBytes);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    memory[0] = std::byte(i);
    memory[kBytes - 1] = std::byte(i + 1);
    REQUIRE(member->qp->post_send(
        {.sges = {&sge, 1}, .ah = ah->id(), .remote_qpn = Qpn{0xff'ffff}, .remote_qkey = kQkey}));
    REQUIRE(await(
        [&] {
          device->progress();
          return counter(*device, "requester_messages") > i;
        },
        20));
  }
  CHECK(member->take_all(*device) == kMessages);  // its own, too
  meeting->all_is_said.store(true);
  CHECK(child.wait(30) == 0);
}

}  // namespace uroce::test
