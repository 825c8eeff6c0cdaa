// uroce: one program, several commands.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/stop.h"

namespace {

/// The commands that were named, and what there is below the last of them.
struct Chosen {
  const CLI::App* last = nullptr;
  std::string words;
  std::string others;
};

Chosen chosen(const CLI::App& program) {
  Chosen found{.last = &program, .words = program.get_name(), .others = ""};
  while (!found.last->get_subcommands().empty()) {
    found.last = found.last->get_subcommands().front();
    found.words += " " + found.last->get_name();
  }
  for (const CLI::App* other : found.last->get_subcommands([](const CLI::App*) { return true; }))
    found.others += (found.others.empty() ? "" : ", ") + other->get_name();
  return found;
}

/// What to do with words that nobody expected.
std::string unexpected(const CLI::App& program, const Chosen& named) {
  for (const CLI::App* app = &program; app != named.last; app = app->get_subcommands().front()) {
    if (const auto words = app->remaining(); !words.empty())
      return fmt::format("options follow the command: {} {}", named.words, fmt::join(words, " "));
  }
  const std::string words = fmt::format("{}", fmt::join(named.last->remaining(), " "));
  if (named.last->get_name() == "run")
    return fmt::format("a program with its options follows --: {} -- PROGRAM {}", named.words, words);
  const std::string text = fmt::format("{} does not take {}", named.words, words);
  if (!named.words.starts_with("uroce perf ")) return text;
  const std::string instead =
      uroce::apps::instead_of_perftest_option(named.last->get_name(), named.last->remaining().front());
  return instead.empty() ? text : text + ": " + instead;
}

std::string what_is_wrong(const CLI::App& program, const Chosen& named, const CLI::ParseError& error) {
  if (!named.others.empty()) {
    const auto unknown = named.last->remaining();
    if (unknown.empty()) return fmt::format("{} needs a command: {}", named.words, named.others);
    return fmt::format("{} has no {}; its commands: {}", named.words, unknown.front(), named.others);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return unexpected(program, named);
  std::string text = error.what();
  for (auto& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

/// Errors of the command line as one line; help and version as they are.
int finish(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);
  const Chosen named = chosen(program);
  fmt::print(stderr, "uroce: {}; see `{} --help`\n", what_is_wrong(program, named, error), named.words);
  return uroce::apps::kUsageExit;
}

constexpr int kStopped = 128;  // and the signal: as shells say it

/// What was printed has to arrive: on a full disk it does not.
int with_output(int exit_code) {
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_written || exit_code != 0) return exit_code;
  return uroce::apps::fail(
      {.code = uroce::Errc::kSystem, .text = "stdout cannot be written: what was printed is not all there"});
}

int run(int argc, char** argv) {
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
  read_numbers_as_decimal(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish(program, error);
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return 0;  // with_output() tells that
    fmt::print(stderr, "uroce: {}\n", error.what());
    return 1;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  uroce::apps::stop_on_signals();
  const int exit_code = with_output(run(argc, argv));
  return uroce::apps::is_stopped() ? kStopped + uroce::apps::stop_signal : exit_code;
}
