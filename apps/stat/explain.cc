#include "apps/stat/explain.h"

#include "apps/common/table.h"
#include "lib/base/counters.h"
#include "lib/port/port.h"

namespace uroce::apps {

std::string counters_explained() {
  Table table({"counter", "what has been counted"}, 2);
  for (const CounterText& one : kCounterTexts) table.add({std::string(one.name), std::string(one.help)});
  for (const port::PortCounterName& one : port::kPortCounterNames) table.add({one.name, one.help});
  return table.text();
}

}  // namespace uroce::apps
