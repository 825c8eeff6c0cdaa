/// The subcommands of `uroce`: each adds itself to the program; when chosen, its exit code goes to
/// `exit_code`.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace uroce::apps {

void add_demo(CLI::App& program, int& exit_code);
void add_perf(CLI::App& program, int& exit_code);
void add_ping(CLI::App& program, int& exit_code);
void add_pingpong(CLI::App& program, int& exit_code);
void add_bench(CLI::App& program, int& exit_code);
void add_info(CLI::App& program, int& exit_code);
void add_config(CLI::App& program, int& exit_code);
void add_doctor(CLI::App& program, int& exit_code);
void add_stat(CLI::App& program, int& exit_code);
void add_run(CLI::App& program, int& exit_code);

/// What to do instead of an option of perftest that `uroce perf TEST` does not take; empty: perftest has none
/// of that name, either.
[[nodiscard]] std::string instead_of_perftest_option(const std::string& test, const std::string& word);

}  // namespace uroce::apps
