/// Cores that this process may use, and pinning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "uroce/config.h"
#include "uroce/result.h"

namespace uroce::apps {

/// Where the two sides of a measurement run.
struct CorePair {
  int client = -1;
  int server = -1;
  bool shared = true;  ///< one core for both: whoever has nothing to do must give it up

  [[nodiscard]] std::string text() const;
};

/// Those that this process may use.
[[nodiscard]] std::vector<int> allowed_cores();

/// Two allowed cores, on two physical cores of one package where the machine has them and not core 0 if
/// others are left; one core for both if there is no second.
[[nodiscard]] CorePair choose_cores();

/// The first two cores of a list such as "2,4" (one for both if it names one); choose_cores() if it is empty.
Result<CorePair> cores_from(const std::string& list);

/// Pins the calling thread. A negative core does nothing.
Status pin_to_core(int core);

/// Of programs with one thread and `qps` QPs, an equal share of them on each loop: `lcores` names no more
/// cores than that. In Mode::kApp the application is the poll loop: it runs there, and one core is all that
/// it has.
Status pin_application(const Config& config, unsigned qps = 1);

/// When an application that polls gives up its core to whoever else may run there.
struct GiveWay {
  static constexpr std::uint32_t kNever = UINT32_MAX;

  std::uint32_t after = kNever;  ///< polls in a row that found nothing, and again after as many

  [[nodiscard]] static constexpr GiveWay at_once_if(bool shared) noexcept {
    return {.after = shared ? 0 : kNever};
  }
  [[nodiscard]] bool is_due(std::uint32_t polls) const noexcept {
    return polls >= after && (after == 0 || polls % after == 0);
  }
};

/// In Mode::kLcore at once, unless there is a core for the application and one for the loop, at both ends.
/// Else a program that may run on one core only may share that with its peer: it gives way when an answer
/// takes longer than it does from another core.
[[nodiscard]] GiveWay when_to_give_way(const Config& config);

}  // namespace uroce::apps
