// A test that needs EAL, which starts as UROCE_TEST_EAL says.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "eal/frames.h"
#include "eal/requirement.h"

namespace uroce::test {
namespace {

struct Refusal {
  const char* name;
  Errc code;
  const char* text;
};

constexpr std::array kRefusals = {
    Refusal{"lacks a right", Errc::kPermission, "run with sudo"},
    Refusal{"lacks hugepages", Errc::kNoHugepages, "run: sudo config/hugepages"},
    Refusal{"lacks memory", Errc::kNoMemory, "no memory for the EAL's log"},
    Refusal{"is not in this build", Errc::kUnsupported, "no DPDK port is called \"ring\""},
    Refusal{"makes no folder", Errc::kSystem, "EAL: Error creating '/var/run/dpdk': Permission denied"},
    Refusal{"has another CPU", Errc::kSystem, "EAL: unsupported cpu type."},
    Refusal{"is told nonsense", Errc::kSystem, "EAL: Invalid 'command line' arguments."},
    Refusal{"gets a wrong port", Errc::kConfig, "port \"ring\" takes no parameter"},
    Refusal{"starts a second time", Errc::kBadState, "rte_eal_init() was called before"}};

}  // namespace

std::string missing_requirement() {
  return {};
}

Result<std::unique_ptr<port::Port>> open_port(std::string_view, bool) {
  const char* set = std::getenv("UROCE_TEST_EAL");
  const std::string_view how = set == nullptr ? "" : set;
  if (how == "dies") std::abort();
  for (const Refusal& refusal : kRefusals) {
    if (how == refusal.name) return Error{refusal.code, refusal.text};
  }
  return std::unique_ptr<port::Port>();
}

TEST_CASE("EAL has started") {
  CHECK(true);
}

}  // namespace uroce::test
