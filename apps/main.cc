// uroce: one program, several commands.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/stop.h"
#include "apps/common/tell.h"

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

/// Of a name, letters in lower case and digits.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

/// The option that differs in nothing but dashes, underlines and capitals, or that begins so; empty: none, or
/// several.
std::string likely_option(const CLI::App& command, std::string_view word) {
  if (!word.starts_with("-")) return "";
  const std::string wanted = plain(word.substr(0, word.find('=')));
  std::vector<std::string> begin_so;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (plain(name) == wanted) return "--" + name;
      if (wanted.size() > 2 && plain(name).starts_with(wanted)) begin_so.push_back("--" + name);
    }
  }
  return begin_so.size() == 1 ? begin_so.front() : "";
}

/// The command, here or below, that differs as little, also from perftest's name for it; empty: none.
std::string likely_command(const CLI::App& from, const std::string& words, const std::string& word) {
  const std::string wanted = plain(word.starts_with("ib_") ? word.substr(3) : word);
  for (const CLI::App* below : from.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string name = words + " " + below->get_name();
    if (plain(below->get_name()) == wanted) return name;
    if (std::string deeper = likely_command(*below, name, word); !deeper.empty()) return deeper;
  }
  return "";
}

/// What to do with words that nobody expected.
std::string unexpected(const CLI::App& program, const Chosen& named) {
  const bool is_run = named.last->get_name() == "run";
  for (const CLI::App* app = &program; app != named.last; app = app->get_subcommands().front()) {
    const auto words = app->remaining();
    if (words.empty()) continue;
    if (is_run && !words.front().starts_with('-'))
      return fmt::format("a program with -- among its arguments follows --: {} -- PROGRAM ...", named.words);
    return fmt::format("options follow the command: {} {}", named.words, fmt::join(words, " "));
  }
  std::vector<std::string> left = named.last->remaining();
  if (is_run) left.erase(std::ranges::find(left, "--"), left.end());  // the rest is the program's
  const std::string words = fmt::format("{}", fmt::join(left, " "));
  const std::string text = fmt::format("{} does not take {}", named.words, words);
  const std::string first = left.front();
  if (const std::string likely = likely_option(*named.last, first); !likely.empty())
    return fmt::format("{}: did you mean {}?", text, likely);
  if (is_run)
    return fmt::format("a program with its options follows --: {} -- PROGRAM {}", named.words, words);
  if (!named.words.starts_with("uroce perf ")) return text;
  const std::string instead = uroce::apps::instead_of_perftest_option(named.last->get_name(), first);
  return instead.empty() ? text : text + ": " + instead;
}

std::string what_is_wrong(const CLI::App& program, const Chosen& named, const CLI::ParseError& error) {
  if (!named.others.empty()) {
    const auto unknown = named.last->remaining();
    if (unknown.empty()) return fmt::format("{} needs a command: {}", named.words, named.others);
    const std::string likely = likely_command(*named.last, named.words, unknown.front());
    if (!likely.empty())
      return fmt::format("{} has no {}: did you mean `{}`?", named.words, unknown.front(), likely);
    return fmt::format("{} has no {}; its commands: {}", named.words, unknown.front(), named.others);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return unexpected(program, named);
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.ends_with(" missing"))
    return text.substr(0, text.find(':')) + " needs a value";
  for (auto& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

/// Errors of the command line as one line; help and version as they are.
int finish(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);
  const Chosen named = chosen(program);
  uroce::apps::tell("uroce: {}; see `{} --help`\n", what_is_wrong(program, named, error), named.words);
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

/// What was closed would be what is opened next: messages would go into a file of ours. Writing to stdout
/// goes on failing.
void open_closed_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int run(int argc, char** argv) {
  using namespace uroce::apps;
  CLI::App program("User-space RoCE v2: RDMA between programs over any Ethernet port, without RDMA hardware.",
                   "uroce");
  program.set_version_flag("--version", "uroce " UROCE_VERSION);
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::simple);
  program.option_defaults()->always_capture_default();  // of the commands' options, too
  int exit_code = 0;
  add_demo(program, exit_code);
  add_perf(program, exit_code);
  add_ping(program, exit_code);
  add_pingpong(program, exit_code);
  add_bench(program, exit_code);
  add_info(program, exit_code);
  add_config(program, exit_code);
  add_doctor(program, exit_code);
  add_stat(program, exit_code);
  add_run(program, exit_code);
  set_conventions(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish(program, error);
  } catch (const std::bad_alloc&) {
    return uroce::apps::fail({.code = uroce::Errc::kNoMemory, .text = "no memory is left"});
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return 0;  // with_output() tells that
    uroce::apps::tell("uroce: {}\n", error.what());
    return 1;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_descriptors();
  uroce::apps::stop_on_signals();
  const int exit_code = with_output(run(argc, argv));
  const bool is_cut_short = uroce::apps::is_stopped() && !uroce::apps::stop_is_success;
  return is_cut_short ? kStopped + uroce::apps::stop_signal : exit_code;
}
