// main() of the tests that need EAL. Ends with 77 (skipped), and says why, where it cannot start.
#include <iostream>

#include "eal/frames.h"
#include "eal/requirement.h"
#include "support/skip.h"

int main(int argc, char** argv) {
  using namespace uroce::test;
  std::string reason = missing_requirement();
  if (reason.empty()) {
    Child probe([](const Report& report) {
      const auto port = open_port("ring");
      report.line(port ? "started" : port.error().text);
      return 0;
    });
    const std::string said = probe.next_line(in_seconds(30));
    if (said != "started") reason = said.empty() ? "EAL dies or hangs at its start" : said;
  }
  if (!reason.empty()) {
    std::cout << "skipped: " << reason << '\n';
    return 77;
  }
  return run_cases(argc, argv);
}
