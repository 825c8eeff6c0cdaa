// What is told of peers that do not answer who asks for a connection.
#include "api/side.h"
#include "uroce/connection.h"

namespace uroce::api {
namespace {

std::string link_name() {
  return "shm:silence" + std::to_string(getpid());
}

TEST_CASE("who is asked and whose Ethernet address nobody tells is named, with what may be wrong",
          "[cm][neighbours]") {
  const auto [peer, gateway, wanted] = GENERATE(table<std::string, std::string, std::string>(
      {{"10.7.0.9", "", "nobody answers for the Ethernet address of 10.7.0.9"},
       {"10.8.0.9", "", "10.8.0.9 is in no prefix of this port"},
       {"10.8.0.9", "10.7.0.254", "the Ethernet address of the gateway to 10.8.0.9"}}));
  Config config;
  config.port = link_name();
  config.mode = Mode::kAuto;
  config.ip = {"10.7.0.1/24"};
  config.gateway = gateway;
  End end = End::open(config);
  Cm cm = must(Cm::open(end.device));
  Side client(end, QpType::kRc);
  const auto lost = Connection::connect(
      cm, client.qp, {.to = {*Gid::parse(peer), 1}, .timeout = std::chrono::milliseconds(200)});
  REQUIRE_FALSE(lost.has_value());
  CHECK(lost.error().code == Errc::kTimeout);
  CAPTURE(lost.error().text);
  CHECK(lost.error().text.starts_with(peer + ":1 did not answer in time; "));
  CHECK(lost.error().text.find(wanted) != std::string::npos);
}

TEST_CASE("a peer that has an Ethernet address and says nothing is told as no more than silent",
          "[cm][neighbours]") {
  End a = End::open(link_name(), Mode::kAuto, 65536, "drop opcode=UD_SEND_ONLY");
  End b = End::open(link_name(), Mode::kAuto);
  Cm cm = must(Cm::open(a.device));
  Side client(a, QpType::kRc);
  const CmAddress peer{b.gid(), 1};
  std::string text;
  for (int i = 0; i < 20 && !text.ends_with(" in time"); ++i) {  // the first may end before ARP does
    const auto lost =
        Connection::connect(cm, client.qp, {.to = peer, .timeout = std::chrono::milliseconds(200)});
    REQUIRE_FALSE(lost.has_value());
    text = lost.error().text;
  }
  CHECK(text == to_string(peer) + " did not answer in time");
}

}  // namespace
}  // namespace uroce::api
