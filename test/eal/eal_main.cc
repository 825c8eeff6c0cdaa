// main() of the tests that need EAL. Ends with 77 (skipped), and says why, where this machine cannot run
// them. An EAL that does not start for any other reason is a failure.
#include <algorithm>
#include <array>
#include <iostream>

#include "eal/frames.h"
#include "eal/requirement.h"
#include "support/skip.h"

namespace {

using namespace uroce;
using namespace uroce::test;

constexpr int kSkipped = 77;

/// Whether an error is about the machine: rights, hugepages, memory or a CPU that are missing. The EAL tells
/// of them in words only.
bool is_of_machine(const Error& error) {
  constexpr std::array kCodes = {Errc::kPermission, Errc::kNoHugepages, Errc::kNoMemory, Errc::kUnsupported};
  constexpr std::array kWords = {"Permission denied", "Operation not permitted", "Cannot allocate memory",
                                 "unsupported cpu type"};
  return std::ranges::find(kCodes, error.code) != kCodes.end() ||
         std::ranges::any_of(kWords,
                             [&](const char* words) { return error.text.find(words) != std::string::npos; });
}

/// Starts the EAL in a process of its own: this one forks others, which start it themselves.
/// @return 0, or the status to end with; says why
int try_eal() {
  Child probe([](const Report& report) {
    const auto port = open_port("ring");
    report.line(port ? "started" : port.error().text);
    return port ? 0 : is_of_machine(port.error()) ? kSkipped : 1;
  });
  const std::string said = probe.next_line(in_seconds(30));
  const int status = said.empty() ? -1 : probe.wait(in_seconds(10));
  if (status == 0) return 0;
  std::cout << (status == kSkipped ? "skipped: " : "FAILED: ")
            << (said.empty() ? "EAL dies or hangs at its start" : said) << '\n';
  return status == kSkipped ? kSkipped : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string reason = missing_requirement(); !reason.empty()) {
    std::cout << "skipped: " << reason << '\n';
    return kSkipped;
  }
  if (const int status = try_eal(); status != 0) return status;
  return run_cases(argc, argv);
}
