/// A distribution as text that HdrHistogram's plotters read (.hgrm).
#pragma once

#include <string>

#include "apps/common/histogram.h"

namespace uroce::apps {

/// One line for each percentile of HdrHistogram's usual ones: five from each half of the rest to the next.
/// @param unit  what one unit of the histogram is in those of the text
[[nodiscard]] std::string percentiles_text(const Histogram& histogram, double unit);

}  // namespace uroce::apps
