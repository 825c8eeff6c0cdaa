/// Which of the project's goals the rows of `uroce bench link` speak of.
#pragma once

#include <vector>

#include "apps/common/compare.h"
#include "apps/common/goals.h"

namespace uroce::apps {

/// The goals that the rows decide, each beside what it is compared with; none for a yardstick that is
/// missing.
[[nodiscard]] std::vector<Judged> judge_rows(const std::vector<Row>& rows);

}  // namespace uroce::apps
