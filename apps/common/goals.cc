#include "apps/common/goals.h"

#include <fmt/format.h>

#include "apps/common/table.h"

namespace uroce::apps {
namespace {

std::string verdict(const Judged& one) {
  if (!one.goal || !one.figure) return "";
  if (one.goal->is_met_by(*one.figure, one.goal->aim)) return "aim";
  return one.goal->is_met_by(*one.figure, one.goal->must) ? "yes" : "NO";
}

std::string bound(const Judged& one, double Goal::*field) {
  return one.goal ? fmt::format("{} {:g}", one.goal->at_least ? ">=" : "<=", *one.goal.*field) : "";
}

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

Json judged_json(const std::vector<Judged>& all) {
  Json rows = Json::array();
  for (const auto& one : all) {
    const bool is_judged = one.goal && one.figure;
    rows.push_back({{"goal", one.goal ? Json(one.goal->name) : Json()},
                    {"test", one.test},
                    {"what", one.what},
                    {"unit", one.unit},
                    {"value", or_null(one.value)},
                    {"base", or_null(one.base)},
                    {"figure", or_null(one.figure)},
                    {"spread", or_null(one.spread)},
                    {"must", one.goal ? Json(one.goal->must) : Json()},
                    {"aim", one.goal ? Json(one.goal->aim) : Json()},
                    {"holds", is_judged ? Json(one.goal->is_met_by(*one.figure, one.goal->must)) : Json()}});
  }
  return rows;
}

std::string judged_table(const std::vector<Judged>& all) {
  Table table({"goal", "what", "unit", "value", "base", "spread", "figure", "must", "aim", "holds"}, 3);
  for (const auto& one : all) {
    table.add({one.goal ? one.goal->name : "", one.what, one.unit, number(one.value), number(one.base),
               one.spread ? fmt::format("{:.0f}%", *one.spread * 100) : "", number(one.figure),
               bound(one, &Goal::must), bound(one, &Goal::aim), verdict(one)});
  }
  return table.text();
}

}  // namespace uroce::apps
