/// The subcommands of `uroce`: each adds itself to the program; when chosen, its exit code goes to
/// `exit_code`.
#pragma once

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
void add_run(CLI::App& program, int& exit_code);

}  // namespace uroce::apps
