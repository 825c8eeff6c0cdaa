#include <catch2/catch.hpp>

#include <initializer_list>

#include "drivers/dpdk/eal.h"

namespace uroce::drivers::dpdk {
namespace {

std::string argument_for(std::initializer_list<std::size_t> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::size_t cpu : cpus) CPU_SET(cpu, &set);
  return lcore_argument(set);
}

}  // namespace

TEST_CASE("DPDK's one lcore may run on every CPU that the process may, whatever its number", "[dpdk]") {
  CHECK(argument_for({0}) == "--lcores=0@(0)");
  CHECK(argument_for({2, 5, 6}) == "--lcores=0@(2,5,6)");
  CHECK(argument_for({127, 128}) == "--lcores=0@(127,128)");
  CHECK(argument_for({130, 131}) == "--lcores=0@(130,131)");
  CHECK(argument_for({1023}) == "--lcores=0@(1023)");
  CHECK(argument_for({}) == "--lcores=0@(0)");
}

}  // namespace uroce::drivers::dpdk
