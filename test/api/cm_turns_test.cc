// How often the manager's thread takes the core from an application that has it in Mode::kApp.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "api/side.h"
#include "uroce/connection.h"

namespace uroce::api {
namespace {

/// How often the manager's thread has gone to sleep so far; nullopt: it has not told its name yet.
std::optional<unsigned> sleeps_of_manager() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name != "uroce-cm") continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      unsigned count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) return count;
    }
  }
  return std::nullopt;
}

/// In so much time, of which the application does `meanwhile` all the time.
template <typename F>
unsigned sleeps_while(std::chrono::milliseconds time, F&& meanwhile) {
  const unsigned before = sleeps_of_manager().value();
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) meanwhile();
  return sleeps_of_manager().value() - before;
}

/// Others may want the cores: in one of a few tries.
template <typename F>
bool once(F&& is_true) {
  for (int i = 0; i < 20; ++i) {
    if (is_true()) return true;
  }
  return false;
}

TEST_CASE("the manager leaves the loops to an application that polls, and runs them when it does not",
          "[cm][turns]") {
  End end = End::open("shm:turns" + std::to_string(getpid()), Mode::kApp);
  Cm cm = must(Cm::open(end.device));
  const Listener listener = must(Listener::create(cm, {{}, 9}));
  REQUIRE(within(5s, [] { return sleeps_of_manager().has_value(); }));
  const auto polls = [&] { end.device.progress(); };
  CHECK(once([&] { return sleeps_while(200ms, polls) < 60; }));  // each 8 ms; each 1.1 ms are 180
  CHECK(once([&] { return sleeps_while(200ms, [] { usleep(1000); }) > 90; }));
  CHECK(once([&] { return sleeps_while(200ms, polls) < 60; }));
}

}  // namespace
}  // namespace uroce::api
