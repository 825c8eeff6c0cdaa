/// Figures beside the goals of the project.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/common/worker.h"

namespace uroce::apps {

/// What a figure must reach, and what it aims at.
struct Goal {
  std::string name{};  ///< as reports call it: the number of its line in the list of goals
  double must = 0;
  double aim = 0;
  bool at_least = true;  ///< false: at most

  [[nodiscard]] bool is_met_by(double figure, double bound) const noexcept {
    return at_least ? figure >= bound : figure <= bound;
  }
};

/// A figure that was measured.
struct Judged {
  std::string test{};              ///< which test gave it
  std::string what{};              ///< in words
  std::string unit{};              ///< of `value` and `base`
  std::optional<double> value{};   ///< as measured
  std::optional<double> base{};    ///< what it is compared with
  std::optional<double> figure{};  ///< what is judged: often value / base; none: could not be measured
  std::optional<double> spread{};  ///< of the samples of `value`: (largest - least) / median
  std::optional<Goal> goal{};      ///< none: for information
};

/// An array of {"goal", "test", "what", "unit", "value", "base", "figure", "spread", "must", "aim", "holds"}.
[[nodiscard]] Json judged_json(const std::vector<Judged>& all);
/// At most 120 columns wide.
[[nodiscard]] std::string judged_table(const std::vector<Judged>& all);

}  // namespace uroce::apps
