#include "apps/stat/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/common/json_text.h"
#include "apps/common/table.h"
#include "apps/stat/explain.h"
#include "apps/stat/label.h"

namespace uroce::apps {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// A counter of a device, over its loops.
struct Figure {
  std::string name;
  std::uint64_t total = 0;
  std::optional<double> per_second;  ///< none: nobody has run a loop meanwhile, or the device is new
};

std::optional<double> age_s(const LoopFigures& loop, std::uint64_t now_ns) {
  if (loop.time_ns == 0) return std::nullopt;
  return now_ns > loop.time_ns ? static_cast<double>(now_ns - loop.time_ns) / 1e9 : 0;
}

/// Of its oldest figures; none if a loop has none.
std::optional<double> age_s(const DeviceFigures& page, std::uint64_t now_ns) {
  double oldest = 0;
  for (const LoopFigures& loop : page.loops) {
    const auto age = age_s(loop, now_ns);
    if (!age) return std::nullopt;
    oldest = std::max(oldest, *age);
  }
  return oldest;
}

const DeviceFigures* earlier_of(const ProcessPage& device, const std::vector<ProcessPage>& before) {
  const auto same = std::ranges::find_if(before, [&](const ProcessPage& one) {
    return one.pid == device.pid && one.page.device == device.page.device &&
           one.page.names == device.page.names && one.page.loops.size() == device.page.loops.size();
  });
  return same == before.end() ? nullptr : &same->page;
}

void add_rate(const LoopFigures& before, const LoopFigures& now, std::size_t counter, Figure& figure) {
  const std::uint64_t first = before.values[counter];
  const std::uint64_t last = now.values[counter];
  if (before.time_ns == 0 || now.time_ns <= before.time_ns || last < first) return;
  figure.per_second = figure.per_second.value_or(0) + static_cast<double>(last - first) * 1e9 /
                                                          static_cast<double>(now.time_ns - before.time_ns);
}

std::vector<Figure> figures_of(const ProcessPage& device, const StatSample& sample, bool all) {
  const DeviceFigures& page = device.page;
  const DeviceFigures* const before = earlier_of(device, sample.before);
  std::vector<Figure> figures;
  for (std::size_t i = 0; i < page.names.size(); ++i) {
    Figure figure{.name = page.names[i], .total = 0, .per_second = {}};
    for (std::size_t loop = 0; loop < page.loops.size(); ++loop) {
      figure.total += page.loops[loop].values[i];
      if (before != nullptr) add_rate(before->loops[loop], page.loops[loop], i, figure);
    }
    if (all || figure.total != 0) figures.push_back(std::move(figure));
  }
  return figures;
}

OrderedJson json_of(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

OrderedJson loop_json(const DeviceFigures& page, const LoopFigures& loop, std::uint64_t now_ns, bool all) {
  OrderedJson counters = OrderedJson::object();
  for (std::size_t i = 0; i < page.names.size(); ++i) {
    if (all || loop.values[i] != 0) counters[page.names[i]] = loop.values[i];
  }
  return {{"age_s", json_of(age_s(loop, now_ns))}, {"counters", std::move(counters)}};
}

}  // namespace

std::string stat_text(const StatSample& sample, bool all) {
  std::string text;
  for (const ProcessPage& device : sample.now) {
    const DeviceFigures& page = device.page;
    const auto age = age_s(page, sample.now_ns);
    text += fmt::format("{}pid {} {}, {}, {}, {} loop{}, {}\n", text.empty() ? "" : "\n", device.pid,
                        device.program, page.port, fmt::join(page.addresses, " "), page.loops.size(),
                        page.loops.size() == 1 ? "" : "s",
                        age ? fmt::format("figures {:.1f} s old", *age) : "no figures: nobody runs it yet");
    Table table({"counter", "total", "per second"}, 1);
    for (const Figure& one : figures_of(device, sample, all)) {
      table.add({one.name, std::to_string(one.total),
                 one.per_second ? fmt::format("{:.0f}", *one.per_second) : "-"});
    }
    text += table.text();
  }
  return text;
}

std::string stat_json(const StatSample& sample, bool all) {
  OrderedJson devices = OrderedJson::array();
  for (const ProcessPage& device : sample.now) {
    const DeviceFigures& page = device.page;
    OrderedJson counters = OrderedJson::object();
    for (const Figure& one : figures_of(device, sample, all))
      counters[one.name] = {{"total", one.total}, {"per_second", json_of(one.per_second)}};
    OrderedJson loops = OrderedJson::array();
    for (const LoopFigures& loop : page.loops) loops.push_back(loop_json(page, loop, sample.now_ns, all));
    devices.push_back({{"pid", device.pid},
                       {"program", device.program},
                       {"device", page.device},
                       {"port", page.port},
                       {"addresses", page.addresses},
                       {"age_s", json_of(age_s(page, sample.now_ns))},
                       {"counters", std::move(counters)},
                       {"loops", std::move(loops)}});
  }
  return to_text(OrderedJson{{"schema", "uroce.stat/1"}, {"devices", std::move(devices)}}) + "\n";
}

/// The lines of a metric have to stand together.
std::string stat_prometheus(const std::vector<ProcessPage>& pages, std::uint64_t now_ns) {
  std::map<std::string, std::string> lines;  // by metric
  std::string ages;
  for (const ProcessPage& device : pages) {
    const DeviceFigures& page = device.page;
    for (std::size_t loop = 0; loop < page.loops.size(); ++loop) {
      const std::string labels =
          fmt::format("{{pid=\"{}\",program=\"{}\",device=\"{}\",port=\"{}\",loop=\"{}\"}}", device.pid,
                      label(device.program), page.device, label(page.port), loop);
      for (std::size_t i = 0; i < page.names.size(); ++i)
        lines[page.names[i]] +=
            fmt::format("uroce_{}_total{} {}\n", page.names[i], labels, page.loops[loop].values[i]);
      if (const auto age = age_s(page.loops[loop], now_ns))
        ages += fmt::format("uroce_counters_age_seconds{} {:.3f}\n", labels, *age);
    }
  }
  std::string text = fmt::format("# TYPE uroce_devices gauge\nuroce_devices {}\n", pages.size());
  text += "# TYPE uroce_counters_age_seconds gauge\n" + ages;
  for (const auto& [name, of_name] : lines) text += metric_head("uroce_", name) + of_name;
  return text;
}

}  // namespace uroce::apps
