/// Cases of Catch2 that cannot run everywhere.
#pragma once

#include <string_view>

namespace uroce::test {

/// Says why the case that runs cannot do so here. It returns then, and counts as skipped instead of passed.
void skip(std::string_view why);

/// Runs the cases that the command line names. If some were skipped, the last line counts all of them in the
/// words that config/tally.py reads.
/// @return the exit code of the program: 77 if nothing but skips is left
int run_cases(int argc, char** argv);

}  // namespace uroce::test
