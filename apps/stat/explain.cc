#include "apps/stat/explain.h"

#include <fmt/format.h>

#include "apps/common/table.h"
#include "lib/base/counters.h"
#include "lib/port/port.h"

namespace uroce::apps {

namespace {

/// Empty: there is no such counter.
std::string_view help_of(std::string_view name) {
  for (const CounterText& one : kCounterTexts)
    if (one.name == name) return one.help;
  for (const port::PortCounterName& one : port::kPortCounterNames)
    if (one.name == name) return one.help;
  return "";
}

}  // namespace

std::string counters_explained() {
  Table table({"counter", "what has been counted"}, 2);
  for (const CounterText& one : kCounterTexts) table.add({std::string(one.name), std::string(one.help)});
  for (const port::PortCounterName& one : port::kPortCounterNames) table.add({one.name, one.help});
  return table.text();
}

std::string metric_head(std::string_view prefix, std::string_view name) {
  std::string text;
  if (const auto help = help_of(name); !help.empty())
    text = fmt::format("# HELP {}{}_total {}\n", prefix, name, help);
  return text + fmt::format("# TYPE {}{}_total counter\n", prefix, name);
}

}  // namespace uroce::apps
