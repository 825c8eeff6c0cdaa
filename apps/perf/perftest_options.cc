// perftest's options that `uroce perf` does not take.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "apps/commands.h"

namespace uroce::apps {
namespace {

struct Absent {
  std::string_view names;         ///< each between blanks
  std::string_view instead;       ///< empty: perftest on the drop-in
  std::string_view of_latency{};  ///< instead of that; empty: the same
};

constexpr std::array kAbsent = {
    Absent{.names = " -f --margin ",
           .instead = "-D counts from the first operation on; --perform_warm_up does some before",
           .of_latency = "-D counts from the end of the warm-up on"},
    Absent{.names = " -V --version ", .instead = "uroce --version prints it"},
    Absent{.names = " -W --report-counters ", .instead = "--counters FILE has those of the device"},
    Absent{.names = " -z --com_rdma_cm ", .instead = "-R agrees and connects by RDMA-CM"},
    Absent{.names = " -O --dualport --report-per-port ",
           .instead = "a device has one port: run a test for each"},
    Absent{.names = " --ipv6 ", .instead = "-x N takes the address of that index, see `uroce info`"},
    Absent{.names = " --source_ip ", .instead = "--ip ADDR/PREFIX is the address of this end"},
    Absent{.names = " --output ", .instead = "--json prints figures for programs"},
    Absent{.names = " --run_infinitely ", .instead = "-D takes up to 86400 seconds"},
    Absent{.names = " --reversed ", .instead = "start the server at the other end, or take -b"},
    Absent{.names = " --rate_limit --rate_units --rate_limit_type --burst_size --typical_pkt_size ",
           .instead = "it sends as fast as it may; --congestion and --line-mbps slow it down"},
    Absent{.names = " --latency_gap ", .instead = "--rate N begins one each 1/N s"},
    Absent{.names = " --dlid --pkey_index -L --hop_limit ", .instead = "leave it out, RoCE v2 needs none"},
    Absent{.names = " --odp --mmap --mmap-offset ", .instead = "leave it out, memory is uroce's own"},
    Absent{.names = " -g --mcg -M --MGID -X --vector --use-srq --inline_recv --recv_post_list "
                    "--retry_count --wait_destroy --cpu_util --report-both ",
           .instead = ""}};

}  // namespace

std::string instead_of_perftest_option(const std::string& test, const std::string& word) {
  const bool is_short = word.size() > 1 && word[1] != '-';
  const std::string name = is_short ? word.substr(0, 2) : word.substr(0, word.find('='));
  const auto found = std::ranges::find_if(
      kAbsent, [&](const Absent& one) { return one.names.find(" " + name + " ") != std::string_view::npos; });
  if (found == kAbsent.end()) return "";
  if (test.ends_with("_lat") && !found->of_latency.empty()) return std::string(found->of_latency);
  if (!found->instead.empty()) return std::string(found->instead);
  return fmt::format("perftest itself does: uroce run -- ib_{} {}", test, name);
}

}  // namespace uroce::apps
