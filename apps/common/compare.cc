#include "apps/common/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/common/table.h"
#include "apps/common/ucx.h"
#include "apps/common/udp.h"

namespace uroce::apps {
namespace {

struct Contender {
  std::string name;
  Pair* pair = nullptr;
  Style style{};
};

/// The bare link is left out where a message takes several frames, TCP where memory is cold: its memory is
/// not.
std::vector<Contender> contenders(LinkUnderTest& link, TcpUnderTest& tcp, const Plan& plan,
                                  const Sample& sample) {
  std::vector<Contender> all = {{"uroce", &link.uroce, Style::kSpin}};
  const bool fits_frame = sample.kind == Kind::kStream || sample.bytes <= link.path_mtu;
  if (fits_frame) all.push_back({"raw", &link.raw, Style::kRaw});
  if (fits_frame && plan.with_all) all.push_back({"ref", &link.raw, Style::kRef});
  if (sample.is_cold()) return all;
  if (plan.with_all && !plan.cores.shared && fits_udp(sample.kind, sample.bytes))
    all.push_back({"udp_spin", &tcp.pair, Style::kUdp});
  if (!plan.cores.shared) all.push_back({"tcp_spin", &tcp.pair, Style::kSpin});
  all.push_back({"tcp_block", &tcp.pair, Style::kBlock});
  return all;
}

std::string case_name(const Case& one) {
  switch (one.kind) {
    case Kind::kRtt:
      return fmt::format("round trip of {} B", one.bytes);
    case Kind::kRate:
      return fmt::format("messages of {} B", one.bytes);
    case Kind::kStream:
      return fmt::format("WRITE of {} KiB", one.bytes / 1024);
    case Kind::kOpen:
      break;  // has rows of its own
  }
  return "";
}

/// Three significant digits or so; enough for what repeats.
double rounded(double value) {
  if (value == 0) return 0;
  const double scale = std::pow(10.0, 3.0 - std::ceil(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

std::vector<Row> rows_of(const LinkUnderTest& link, const Case& one,
                         const std::map<std::string, Samples>& samples) {
  const auto row = [&](const char* test, const char* unit, double Reached::*field, double scale) {
    Row made{.link = link.name,
             .test = test,
             .bytes = one.bytes,
             .unit = unit,
             .more_is_better = one.kind != Kind::kRtt,
             .list = one.kind == Kind::kRate ? Sample::kList : 0,
             .value = {}};
    for (const auto& [name, all] : samples) {
      const double scaled = rounded(all.middle().*field * scale);
      made.value[name] = scaled > 0 ? std::optional(scaled) : std::nullopt;
      if (scaled > 0) made.spread[name] = all.spread(field);
      for (const Reached& sample : all.all) made.interruptions[name] += sample.interruptions;
    }
    return made;
  };
  switch (one.kind) {
    case Kind::kRtt:
      return {row("rtt_p50", "us", &Reached::p50, 1e-3), row("rtt_p99", "us", &Reached::p99, 1e-3)};
    case Kind::kRate:
      return {row("send_rate", "M/s", &Reached::rate, 1e-6)};
    case Kind::kStream:
      return {row("write_goodput", "Gb/s", &Reached::rate, 8e-9)};
    case Kind::kOpen:
      break;
  }
  return {};
}

std::optional<double> value_of(const Row& row, const std::string& name) {
  const auto found = row.value.find(name);
  return found == row.value.end() ? std::nullopt : found->second;
}

std::string spread_of(const Row& row, const std::string& name) {
  const auto found = row.spread.find(name);
  return found == row.spread.end() ? "" : fmt::format("{:.0f}%", found->second * 100);
}

std::string times_faster(const Row& row, const std::string& name) {
  const auto ours = value_of(row, "uroce");
  const auto theirs = value_of(row, name);
  if (!ours || !theirs) return "-";
  const double ratio = row.more_is_better ? *ours / *theirs : *theirs / *ours;
  return fmt::format("{:.{}f}x", ratio, ratio >= 10 ? 0 : ratio >= 2 ? 1 : 2);
}

}  // namespace

Result<std::vector<Row>> measure(LinkUnderTest& link, TcpUnderTest& tcp, const Case& one, const Plan& plan,
                                 const std::function<void(const std::string&)>& on_step) {
  std::map<std::string, Samples> samples;
  static std::uint32_t next_id = 0;
  for (unsigned round = 0; round < plan.rounds; ++round) {
    Sample sample{.kind = one.kind,
                  .style = Style::kSpin,
                  .bytes = one.bytes,
                  .frame_payload = std::min(link.path_mtu, one.bytes),
                  .run_ns = plan.run_ns};
    for (const auto& contender : contenders(link, tcp, plan, sample)) {
      on_step(fmt::format("{}: {}, {} ({}/{})", link.name, case_name(one), contender.name, round + 1,
                          plan.rounds));
      sample.style = contender.style;
      sample.id = ++next_id;
      if (contender.pair->broken && contender.pair != &link.uroce) continue;
      if (plan.with_all) link.looks.push_back(look_at_cores(plan.cores));
      const auto reached = take({.name = contender.name,
                                 .pair = contender.pair,
                                 .client = sample.request(true),
                                 .server = sample.request(false),
                                 .limit_ns = sample.limit_ns()});
      if (!reached && contender.pair == &link.uroce) return reached.error();
      if (!reached) {
        link.notes.push_back(reached.error().text);
        continue;
      }
      if (reached->p50 == 0 && reached->rate == 0)
        link.notes.push_back(fmt::format("{}: nothing was measured", contender.name));
      if (contender.pair == &link.uroce) link.interruptions += reached->interruptions;
      samples[contender.name].all.push_back(*reached);
    }
    if (!plan.with_all || plan.cores.shared || sample.is_cold() || !has_ucx()) continue;
    on_step(fmt::format("{}: {}, UCX ({}/{})", link.name, case_name(one), round + 1, plan.rounds));
    link.looks.push_back(look_at_cores(plan.cores));
    if (const auto reached = take_ucx(one.kind, one.bytes, plan.cores)) {
      samples["ucx"].all.push_back(*reached);
    } else {
      link.notes.push_back(reached.error().text);
    }
  }
  return rows_of(link, one, samples);
}

Json rows_json(const std::vector<Row>& rows) {
  Json all = Json::array();
  for (const auto& row : rows) {
    Json one = {{"link", row.link}, {"test", row.test}, {"bytes", row.bytes}, {"unit", row.unit}};
    if (row.list > 0) one["list"] = row.list;
    for (const char* name : {"uroce", "raw", "tcp_spin", "tcp_block"}) one[name] = nullptr;
    for (const auto& [name, value] : row.value) {
      if (value) one[name] = *value;
    }
    one["spread"] = row.spread;
    one["interruptions"] = row.interruptions;
    all.push_back(std::move(one));
  }
  return all;
}

std::string rows_table(const std::vector<Row>& rows, bool with_spread) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"raw", "raw link"},      {"ref", "REF"},           {"ucx", "UCX shm"},
      {"udp_spin", "UDP spin"}, {"tcp_spin", "TCP spin"}, {"tcp_block", "TCP block"}};
  std::vector<std::string> names;
  std::map<std::string, std::string> titles;
  for (const auto& [name, title] : all) {
    const auto has_it = [&name = name](const Row& row) { return row.value.contains(name); };
    if (std::none_of(rows.begin(), rows.end(), has_it)) continue;
    names.push_back(name);
    titles[name] = title;
  }
  std::vector<std::string> head = {"link", "test", "bytes", "unit", "uroce"};
  if (with_spread) head.emplace_back("spread");
  for (const auto& name : names) {
    head.push_back(titles.at(name));
    if (with_spread) head.emplace_back("spread");
    head.emplace_back("uroce is");
  }
  Table table(std::move(head), 2);
  for (const auto& row : rows) {
    std::vector<std::string> cells = {row.link, row.test, std::to_string(row.bytes), row.unit,
                                      number(value_of(row, "uroce"))};
    if (with_spread) cells.push_back(spread_of(row, "uroce"));
    for (const auto& name : names) {
      cells.push_back(number(value_of(row, name)));
      if (with_spread) cells.push_back(spread_of(row, name));
      cells.push_back(times_faster(row, name));
    }
    table.add(std::move(cells));
  }
  return table.text();
}

std::string rates_text(const std::vector<Row>& rows) {
  std::string text;
  const auto sends = std::ranges::find_if(rows, [](const Row& row) { return row.list > 0; });
  if (sends != rows.end()) {
    text += fmt::format(
        "send_rate: uroce posts lists of {} with one completion each, the raw link sends bursts;\n"
        "by TCP and UDP each message is a call of its own.\n",
        sends->list);
  }
  const auto has_ucx = [](const Row& row) { return row.more_is_better && row.value.contains("ucx"); };
  if (std::ranges::any_of(rows, has_ucx)) {
    text +=
        "Rates are medians of windows of a millisecond or more; UCX's are means of whole runs of "
        "ucx_perftest.\n";
  }
  return text;
}

}  // namespace uroce::apps
