// uroce: one program, several commands.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "apps/commands.h"
#include "apps/common/cli.h"

namespace {

/// Errors of the command line as one line; help and version as they are.
int finish(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);
  std::string text = error.what();
  for (auto& c : text) c = c == '\n' ? ' ' : c;
  fmt::print(stderr, "uroce: {}; `uroce --help` lists commands and options\n", text);
  return uroce::apps::kUsageExit;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace uroce::apps;
  CLI::App program("User-space RoCE v2: RDMA between programs over any Ethernet port, without RDMA hardware.",
                   "uroce");
  program.set_version_flag("--version", "uroce " UROCE_VERSION);
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::simple);
  int exit_code = 0;
  add_demo(program, exit_code);
  add_perf(program, exit_code);
  add_ping(program, exit_code);
  add_pingpong(program, exit_code);
  add_bench(program, exit_code);
  add_info(program, exit_code);
  add_config(program, exit_code);
  add_run(program, exit_code);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish(program, error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "uroce: {}\n", error.what());
    return 1;
  }
  return exit_code;
}
