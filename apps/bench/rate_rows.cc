// The rows of uroce bench rate.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "apps/bench/rate.h"
#include "apps/common/table.h"

namespace uroce::apps {
namespace {

constexpr double kMicrosecond = 1e-3;  // of ns
constexpr const char* kYardstick = "tcp_spin";

struct Figure {
  const char* name;
  double Reached::*field;
  double scale;
};

constexpr std::array<Figure, 3> kPercentiles = {{{"p50", &Reached::p50, kMicrosecond},
                                                 {"p99", &Reached::p99, kMicrosecond},
                                                 {"p999", &Reached::p999, kMicrosecond}}};
constexpr std::array<Figure, 6> kFigures = {{{"achieved", &Reached::rate, 1},
                                             kPercentiles[0],
                                             kPercentiles[1],
                                             kPercentiles[2],
                                             {"max", &Reached::max, kMicrosecond},
                                             {"cpu_s_per_million", &Reached::cpu_ns, 1e-3}}};

/// 0 is what was not measured.
Json or_none(double value) {
  return value > 0 ? Json(value) : Json();
}

Json figures_json(const Reached& reached) {
  Json all = Json::object();
  for (const auto& [name, field, scale] : kFigures) all[name] = or_none(reached.*field * scale);
  return all;
}

/// Medians, of what most samples have.
Json middle_json(const Samples& samples) {
  Json all = figures_json(samples.middle());
  for (const auto& [name, field, scale] : kFigures) {
    const auto has_it = [member = field](const Reached& one) { return one.*member > 0; };
    if (2 * std::ranges::count_if(samples.all, has_it) <= std::ssize(samples.all)) all[name] = nullptr;
  }
  return all;
}

Json samples_json(const Samples& samples) {
  Json all = Json::array();
  for (const auto& sample : samples.all) {
    Json one = figures_json(sample);
    one["offered"] = sample.offered;
    one["answered"] = sample.answered;
    one["saturated"] = sample.saturated;
    one["interruptions"] = sample.interruptions;
    all.push_back(std::move(one));
  }
  return all;
}

/// Of each percentile that of TCP over this one's, in the same round.
Json times_as_fast(const LoadPoint& point, const Samples& samples) {
  const auto tcp = point.carried.find(kYardstick);
  const bool has_any = tcp != point.carried.end() && !tcp->second.saturated() && !samples.saturated();
  Json all = Json::object();
  for (const auto& [name, field, scale] : kPercentiles)
    all[name] = has_any ? or_none(tcp->second.beside(samples, field)) : Json();
  return all;
}

std::string cell(const Json& value, const char* unit = "") {
  return value.is_null() ? "n/a" : number(value.get<double>()) + unit;
}

}  // namespace

Json points_json(const std::vector<LoadPoint>& points) {
  Json rows = Json::array();
  for (const auto& point : points) {
    for (const auto* system : {"uroce", kYardstick, "tcp_block"}) {
      const auto found = point.carried.find(system);
      if (found == point.carried.end()) continue;
      const Samples& samples = found->second;
      Json row = middle_json(samples);
      row["max"] = or_none(std::ranges::max(samples.all, {}, &Reached::max).max * kMicrosecond);
      Json spread = Json::object();
      for (const auto& [name, field, scale] : kFigures) spread[name] = samples.spread(field);
      row["bytes"] = point.bytes;
      row["offered"] = point.offered;
      row["system"] = system;
      row["saturated"] = samples.saturated();
      row["spread"] = std::move(spread);
      row["times_as_fast_as_tcp_spin"] = times_as_fast(point, samples);
      row["samples"] = samples_json(samples);
      if (point.ended) row["ended"] = point.ended->text;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string points_table(const Json& rows) {
  const std::map<std::string, std::string> titles = {
      {"uroce", "uroce"}, {kYardstick, "TCP spin"}, {"tcp_block", "TCP block"}};
  Table table({"system", "bytes", "due/s", "done/s", "p50 us", "spread", "p99 us", "spread", "p99.9 us",
               "max us", "CPU s/M", "p50 is", "p99 is", ""},
              1);
  for (const auto& row : rows) {
    const Json& spread = row.at("spread");
    const auto spread_cell = [&](const char* name) {
      return row.at(name).is_null() ? "" : fmt::format("{:.0f}%", spread.at(name).get<double>() * 100);
    };
    const auto times = [&](const char* name) {
      const Json& value = row.at("times_as_fast_as_tcp_spin").at(name);
      return row.at("system") == kYardstick || value.is_null() ? "" : cell(value, "x");
    };
    table.add({titles.at(row.at("system").get<std::string>()),
               std::to_string(row.at("bytes").get<std::uint32_t>()),
               std::to_string(row.at("offered").get<std::uint32_t>()), cell(row.at("achieved")),
               cell(row.at("p50")), spread_cell("p50"), cell(row.at("p99")), spread_cell("p99"),
               cell(row.at("p999")), cell(row.at("max")), cell(row.at("cpu_s_per_million")), times("p50"),
               times("p99"), row.at("saturated").get<bool>() ? "saturated" : ""});
  }
  return table.text();
}

}  // namespace uroce::apps
