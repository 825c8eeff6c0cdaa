/// Random sequences of public API calls on two devices of one process, against a model of what the headers
/// say.
///
/// api_fuzz [--sequences N] [--seed S]
///
/// Sequence i has the seed S + i. Devices serve all sequences whose seeds share all but the low 8 bits. The
/// first sequence that breaks a promise, crashes or hangs ends the run, and the command that replays it is
/// printed. Time is the real one, so a failure that needs a timer may take several replays.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "api/fuzz_world.h"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

constexpr std::uint64_t kBatch = 256;  // sequences on the same devices
constexpr unsigned kHangSeconds = 60;

volatile std::uint64_t running_seed = 0;
volatile std::uint64_t batch_seed = 0;

void tell_replay() {
  char text[256];
  const auto seed = static_cast<unsigned long long>(running_seed);
  const auto batch = static_cast<unsigned long long>(batch_seed);
  const int length = std::snprintf(text, sizeof text,
                                   "seed %llu\nreplay: api_fuzz --sequences 1 --seed %llu\n"
                                   "or, with what came before: api_fuzz --sequences %llu --seed %llu\n",
                                   seed, seed, seed - batch + 1, batch);
  if (length > 0 && write(STDOUT_FILENO, text, static_cast<std::size_t>(length)) < 0) return;
}

void on_signal(int number) {
  tell_replay();
  signal(number, SIG_DFL);
  raise(number);
}

void catch_signals() {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) signal(number, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(tell_replay);
}

bool run(std::uint64_t first, std::uint64_t sequences, uroce::api::Totals& totals) {
  const std::string link = "api-fuzz" + std::to_string(getpid());
  std::unique_ptr<uroce::api::World> world;
  try {
    for (std::uint64_t i = 0; i < sequences; ++i) {
      running_seed = first + i;
      if (world == nullptr || running_seed % kBatch == 0) {
        batch_seed = running_seed;
        if (world != nullptr) totals = world->totals();
        world.reset();  // its ends of the link before the new ones
        world = std::make_unique<uroce::api::World>(link, running_seed);
        world->resume(totals);
        alarm(kHangSeconds);
      }
      world->run_sequence(running_seed);
    }
    if (world != nullptr) totals = world->totals();
    return true;
  } catch (const std::exception& error) {
    std::printf("broken: %s\n", error.what());
    std::fflush(stdout);
    tell_replay();
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t sequences = 10'000;
  std::uint64_t seed = 1;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--sequences" && name != "--seed")) {
      std::fprintf(stderr, "usage: api_fuzz [--sequences N] [--seed S]\n");
      return 2;
    }
    (name == "--seed" ? seed : sequences) = std::strtoull(argv[i + 1], nullptr, 0);
  }
  catch_signals();
  std::printf("%llu sequences, seed %llu\n", static_cast<unsigned long long>(sequences),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  uroce::api::Totals totals;
  const auto start = std::chrono::steady_clock::now();
  if (!run(seed, sequences, totals)) return 1;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu calls, %llu of them refused; %llu connections; %llu work requests, %llu completions, %llu with "
      "an "
      "error; %llu events; %llu shared receives; %llu datagrams; %llu addresses came or went\n"
      "%.1f s, %.0f sequences/s\n",
      number(totals.calls), number(totals.errors), number(totals.connections), number(totals.posted),
      number(totals.completions), number(totals.failures), number(totals.events), number(totals.shared),
      number(totals.datagrams), number(totals.addresses), seconds, static_cast<double>(sequences) / seconds);
  return 0;
}
