#include "support/skip.h"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <iostream>
#include <utility>

namespace uroce::test {
namespace {

constexpr int kSkipped = 77;

bool is_skipped = false;  // the case that runs
std::size_t skipped = 0;
std::size_t others = 0;

/// Catch's own, with a line for skips. A listener would have each assertion told, and there are millions.
class Reporter : public Catch::ConsoleReporter {
 public:
  using ConsoleReporter::ConsoleReporter;

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ConsoleReporter::testCaseEnded(stats);
    ++(is_skipped && stats.totals.assertions.allOk() ? skipped : others);
    is_skipped = false;
  }
  void testRunEnded(const Catch::TestRunStats& stats) override {
    ConsoleReporter::testRunEnded(stats);
    if (skipped == 0) return;
    const std::size_t failed = stats.totals.testCases.failed;
    stream << others - failed << " passed, " << failed << " failed, " << skipped << " skipped" << std::endl;
  }
};

CATCH_REGISTER_REPORTER("uroce", Reporter)

}  // namespace

void skip(std::string_view why) {
  if (std::exchange(is_skipped, true)) return;  // with other values of its generators
  std::cout << "skip  " << Catch::getResultCapture().getCurrentTestName() << "  " << why << std::endl;
}

int run_cases(int argc, char** argv) {
  Catch::Session session;
  session.configData().reporterName = "uroce";
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  const int failures = session.run();
  return failures == 0 && others == 0 && skipped != 0 ? kSkipped : failures;
}

}  // namespace uroce::test
