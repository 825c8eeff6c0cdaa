#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "drivers/fault/rules.h"

using namespace uroce;
using namespace uroce::drivers::fault;

TEST_CASE("rules are read from text", "[fault][rules]") {
  const auto rules = parse_rules(
      "loss=1%, tx.dup=0.5 ,delay=2%:20us,reorder=1e-3:7; drop opcode=UD_SEND_ONLY nth=3;"
      "tx.delay=1ms psn=5 every=2 all; mark-ce; drop larger=1500");
  REQUIRE(rules);
  REQUIRE(rules->size() == 8);
  const auto& r = *rules;
  CHECK((r[0].action == Action::kDrop && r[0].direction == Direction::kRx && r[0].probability == 0.01));
  CHECK((r[1].action == Action::kDuplicate && r[1].direction == Direction::kTx && r[1].probability == 0.5));
  CHECK((r[2].action == Action::kDelay && r[2].amount == 20'000));
  CHECK((r[3].action == Action::kReorder && r[3].amount == 7 && r[3].probability == 0.001));
  CHECK((r[4].opcode == 0x64 && r[4].nth == 3 && !r[4].probability && !r[4].any_frame));
  CHECK((r[5].direction == Direction::kTx && r[5].amount == 1'000'000 && r[5].psn == 5U && r[5].every == 2));
  CHECK(r[5].any_frame);
  CHECK(r[6].action == Action::kMarkCe);
  const uroce::drivers::RoceFields any;
  CHECK_FALSE(r[7].fits(&any, 1500));
  CHECK(r[7].fits(&any, 1501));
  CHECK_FALSE(r[7].fits(nullptr, 1501));
}

TEST_CASE("no text is no rules", "[fault][rules]") {
  CHECK(parse_rules("").value().empty());
  CHECK(parse_rules(" ; ;").value().empty());
}

TEST_CASE("rules are read from a file, and a wrong one is found by its line", "[fault][rules]") {
  const std::string path = "fault_rules_test_" + std::to_string(::getpid()) + ".rules";
  const auto write = [&path](const char* text) { std::ofstream(path) << text; };
  write(
      "# the third packet of a WRITE, and its first repetition\n"
      "drop opcode=RC_WRITE_MIDDLE nth=1 ; drop opcode=RC_WRITE_MIDDLE nth=4\n"
      "\n"
      "mark-ce every=100   # congestion\n");
  const auto rules = parse_rules("@" + path);
  REQUIRE(rules);
  REQUIRE(rules->size() == 3);
  CHECK((*rules)[1].nth == 4);
  CHECK(((*rules)[2].action == Action::kMarkCe && (*rules)[2].every == 100));
  write("loss=1%\nlose=1%\n");
  CHECK(parse_rules("@" + path).error().text.starts_with(path + ":2: "));
  std::remove(path.c_str());
  CHECK(parse_rules("@" + path).error().code == Errc::kNotFound);
}

TEST_CASE("a rule file that cannot be read is refused, a folder too", "[fault][rules]") {
  for (const char* text : {"@/no/such/file", "@/tmp"}) {
    INFO(text);
    const auto rules = parse_rules(text);
    REQUIRE_FALSE(rules);
    CHECK(rules.error().code == Errc::kNotFound);
  }
}

TEST_CASE("an amount behind what takes none is told as that", "[fault][rules]") {
  for (const char* text : {"loss=1%:3", "ce=5%:1us", "drop=3 nth=1", "corrupt=2 nth=1"}) {
    INFO(text);
    const auto rules = parse_rules(text);
    REQUIRE_FALSE(rules);
    CHECK_THAT(rules.error().text, Catch::Contains("takes no amount; reorder takes frames, delay a time"));
  }
}

TEST_CASE("wrong rules are refused with what is allowed", "[fault][rules]") {
  for (const char* text : {"loss",
                           "loss=",
                           "loss=101%",
                           "loss=-1%",
                           "loss=x",
                           "loss=nan",
                           "lose=1%",
                           "delay=1%:fast",
                           "delay=5us",
                           "reorder=1%:0",
                           "loss=1%:3",
                           "drop nth=0",
                           "drop nth=-1",
                           "drop larger=0",
                           "drop psn=0x1000000",
                           "drop opcode=RC_NOTHING",
                           "drop opcode=RC_",
                           "drop opcode=0x100",
                           "drop opcode=UD_READ_REQUEST",
                           "drop opcode=UC_ACK",
                           "all",
                           "drop aeth=maybe",
                           "drop sometimes",
                           "explode nth=1",
                           "drop=3 nth=1"}) {
    INFO(text);
    const auto rules = parse_rules(text);
    REQUIRE_FALSE(rules);
    CHECK(rules.error().code == Errc::kConfig);
    CHECK(rules.error().text.find("fault rule") == 0);
  }
  CHECK(parse_rules("loss=1%;drop opcode=FOO").error().text ==
        "fault rule \"drop opcode=FOO\": no opcode \"FOO\"; e.g. RC_WRITE_MIDDLE, 0x07");
}

TEST_CASE("opcodes are known by name and by number", "[fault][rules]") {
  CHECK(opcode_by_name("RC_SEND_FIRST") == 0x00);
  CHECK(opcode_by_name("RC_WRITE_ONLY_IMM") == 0x0b);
  CHECK(opcode_by_name("RC_READ_RESPONSE_MIDDLE") == 0x0e);
  CHECK(opcode_by_name("RC_ACK") == 0x11);
  CHECK(opcode_by_name("RC_FETCH_ADD") == 0x14);
  CHECK(opcode_by_name("RC_SEND_ONLY_INV") == 0x17);
  CHECK(opcode_by_name("UC_WRITE_LAST") == 0x28);
  CHECK(opcode_by_name("XRC_ACK") == 0xb1);
  CHECK(opcode_by_name("CNP") == 0x81);
  CHECK(opcode_by_name("0x07") == 7);
  CHECK(opcode_by_name("WRITE_FIRST") == std::nullopt);
}
