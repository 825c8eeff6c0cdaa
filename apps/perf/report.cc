#include "apps/perf/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/common/machine_json.h"
#include "apps/common/percentiles.h"
#include "apps/common/table.h"

namespace uroce::apps::perf {
namespace {

/// What latencies are told in.
struct Unit {
  const char* name;
  double ticks = 0;  ///< units in one
};

Unit latency_unit(const LocalOptions& local, const TickClock& clock) {
  if (local.cycles) return {.name = "cycles", .ticks = 1};
  return {.name = "usec", .ticks = clock.ns(1) / 1000.0};
}

/// Figures of one latency row.
struct Figures {
  double min = 0;
  double max = 0;
  double typical = 0;
  double average = 0;
  double stdev = 0;
  std::optional<double> p99;
  std::optional<double> p999;
  std::optional<double> p9999;
};

/// @param part  1 for round trips, 0.5 for half of them
Figures figures_of(const LocalOptions& local, const Latency& latency, double part) {
  const Histogram& ticks = *latency.ticks;
  const double unit = latency_unit(local, latency.clock).ticks * part;
  const auto scaled = [&](std::optional<double> value) {
    return value ? std::optional(*value * unit) : std::nullopt;
  };
  return {.min = static_cast<double>(ticks.min()) * unit,
          .max = static_cast<double>(ticks.max()) * unit,
          .typical = ticks.percentile(50) * unit,
          .average = ticks.mean() * unit,
          .stdev = ticks.stdev() * unit,
          .p99 = scaled(ticks.sound_percentile(99)),
          .p999 = scaled(ticks.sound_percentile(99.9)),
          .p9999 = scaled(ticks.sound_percentile(99.99))};
}

std::string figure_text(std::optional<double> value) {
  return value ? fmt::format("{:.3f}", *value) : "n/a";
}

std::string latency_table(const LocalOptions& local, const Results& results, double part) {
  std::vector<std::string> head = {"#bytes", "#iterations"};
  for (const char* name :
       {"t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99% percentile", "99.9% percentile"})
    head.push_back(fmt::format("{}[{}]", name, latency_unit(local, {}).name));
  Table table(std::move(head));
  for (const auto& [size, latency] : results.latency) {
    const Figures f = figures_of(local, latency, part);
    table.add({std::to_string(size), std::to_string(latency.ticks->count()), figure_text(f.min),
               figure_text(f.max), figure_text(f.typical), figure_text(f.average), figure_text(f.stdev),
               figure_text(f.p99), figure_text(f.p999)});
  }
  return table.text();
}

bool is_too_much(const LocalOptions& local, const Latency& latency) {
  return is_saturated({.offered = local.rate,
                       .achieved = latency.rate,
                       .messages = latency.backlog.messages(),
                       .missing = latency.missing,
                       .backlog = latency.backlog.marks()});
}

std::string saturation_text(const LocalOptions& local, const Latency& latency) {
  if (!is_too_much(local, latency)) return "";
  const std::string text = "; SATURATED: the link is not that fast";
  return latency.missing == 0 ? text : fmt::format("{}, {} were never begun", text, latency.missing);
}

/// With --rate: how much of it there was.
std::string rate_text(const LocalOptions& local, const Results& results) {
  std::string text;
  if (local.rate == 0) return text;
  for (const auto& [size, latency] : results.latency)
    text += fmt::format("{} bytes: {:.0f} of {:.0f} a second, each from the time when it was due{}\n", size,
                        latency.rate, local.rate, saturation_text(local, latency));
  return text;
}

/// Over UC and UD.
std::string repeated_text(const TestSpec& spec, const Results& results) {
  std::string text;
  if (spec.is_reliable()) return text;
  for (const auto& [size, latency] : results.latency)
    text += fmt::format("{} bytes: {} of {} messages found no answer, were sent again and are not timed\n",
                        size, latency.repeated, latency.repeated + latency.ticks->count());
  return text;
}

std::string latency_text(const TestSpec& spec, const LocalOptions& local, const Results& results) {
  if (!spec.is_ping_pong()) {
    return "RTT: from posting to the completion with the answer (what perftest prints)\n" +
           latency_table(local, results, 1) + "RTT/2: half of it\n" + latency_table(local, results, 0.5);
  }
  return "RTT/2: half of the time there and back (what perftest prints)\n" +
         latency_table(local, results, 0.5) + "RTT: there and back\n" + latency_table(local, results, 1);
}

/// perftest's MB is 2^20 bytes, its Gb is 10^9 bits.
double bandwidth_unit(const LocalOptions& local) {
  return local.gigabits ? 1e9 / 8 : 1048576.0;
}

const char* bandwidth_unit_name(const LocalOptions& local) {
  return local.gigabits ? "Gb/sec" : "MB/sec";
}

std::string bandwidth_text(const TestSpec& spec, const LocalOptions& local, const Results& results) {
  const std::string unit = bandwidth_unit_name(local);
  std::vector<std::string> head = {"#bytes", "#iterations", fmt::format("BW peak[{}]", unit),
                                   fmt::format("BW average[{}]", unit), "MsgRate[Mpps]"};
  if (!spec.is_reliable()) head.insert(head.end(), {"#lost", fmt::format("BW received[{}]", unit)});
  Table table(std::move(head));
  for (const auto& [size, bandwidth] : results.bandwidth) {
    std::vector<std::string> row = {
        std::to_string(size), std::to_string(bandwidth.messages),
        fmt::format("{:.2f}", local.no_peak ? 0.0 : bandwidth.peak / bandwidth_unit(local)),
        fmt::format("{:.2f}", bandwidth.average / bandwidth_unit(local)),
        fmt::format("{:.6f}", bandwidth.rate / 1e6)};
    if (!spec.is_reliable()) {
      row.push_back(std::to_string(bandwidth.lost));
      row.push_back(fmt::format("{:.2f}", bandwidth.average * bandwidth.share() / bandwidth_unit(local)));
    }
    table.add(std::move(row));
  }
  return table.text() + (local.gigabits ? "" : "MB = 2^20 bytes\n");
}

Json rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

Json figures_json(const Figures& f) {
  return {{"t_min", rounded(f.min)},
          {"t_max", rounded(f.max)},
          {"t_typical", rounded(f.typical)},
          {"t_avg", rounded(f.average)},
          {"t_stdev", rounded(f.stdev)},
          {"percentile_99", f.p99 ? rounded(*f.p99) : Json()},
          {"percentile_99.9", f.p999 ? rounded(*f.p999) : Json()},
          {"percentile_99.99", f.p9999 ? rounded(*f.p9999) : Json()}};
}

}  // namespace

std::uint64_t Results::data_errors() const {
  std::uint64_t errors = 0;
  for (const auto& [size, one] : latency) errors += one.data_errors;
  for (const auto& [size, one] : bandwidth) errors += one.data_errors;
  return errors;
}

bool Results::is_whole() const {
  const auto has_ended = [](const auto& row) { return row.second.ended.has_value(); };
  return std::ranges::none_of(latency, has_ended) && std::ranges::none_of(bandwidth, has_ended);
}

void print_samples(const TestSpec& spec, const LocalOptions& local, const Results& results) {
  for (const auto& [size, latency] : results.latency) {
    const Unit unit = latency_unit(local, latency.clock);
    const double scale = unit.ticks * (spec.is_ping_pong() ? 0.5 : 1);
    std::uint64_t number = 0;
    const auto head = [&, size = size] {
      fmt::print("{}#, {}\n", spec.all_sizes ? fmt::format("# {} bytes\n", size) : "", unit.name);
      number = 0;
    };
    const auto line = [&](double ticks) { fmt::print("{}, {:g}\n", ++number, ticks * scale); };
    if (local.as_it_came) {
      head();
      for (const auto ticks : latency.as_it_came) line(static_cast<double>(ticks));
    }
    if (local.sorted) {
      head();
      latency.ticks->for_each([&](double ticks, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) line(ticks);
      });
    }
  }
}

/// Which rows tell less than was asked for.
template <typename Rows>
std::string ended_text(const Rows& rows) {
  std::string text;
  for (const auto& [size, one] : rows) {
    if (one.ended) text += fmt::format("{} bytes: ended before its time: {}\n", size, one.ended->text);
  }
  return text;
}

std::string results_text(const TestSpec& spec, const LocalOptions& local, const Results& results) {
  std::string text = fmt::format(
      "{}: {}, path MTU {}, {} QP{}, {}{}{}\n", spec.name(), to_string(spec.type), spec.path_mtu, spec.qps,
      spec.qps == 1 ? "" : "s", spec.latency ? "one at a time" : fmt::format("TX depth {}", spec.tx_depth),
      spec.bidirectional ? ", both directions" : "", spec.verify ? ", data verified" : "");
  text += spec.latency
              ? latency_text(spec, local, results) + repeated_text(spec, results) + rate_text(local, results)
              : bandwidth_text(spec, local, results);
  if (spec.verify) {
    text += fmt::format("{} data errors{}\n", results.data_errors(),
                        results.is_whole() ? "" : ", but not all data were looked at");
  }
  return text + ended_text(results.latency) + ended_text(results.bandwidth);
}

std::string second_text(const TestSpec& spec, const LocalOptions& local, std::uint32_t size,
                        const Second& second) {
  const double rate = static_cast<double>(second.operations) / second.seconds;
  const std::string done =
      spec.latency
          ? fmt::format("{:.0f} round trips a second", rate)
          : fmt::format("{:.2f} {}, {:.6f} Mpps{}", rate * size / bandwidth_unit(local),
                        bandwidth_unit_name(local), rate / 1e6, spec.bidirectional ? ", one way" : "");
  return fmt::format("{}: {} s: {} bytes: {}", spec.name(), second.number, size, done);
}

std::string below_limit(const LocalOptions& local, const Results& results) {
  for (const auto& [size, bandwidth] : results.bandwidth) {
    const double average = bandwidth.average * bandwidth.share() / bandwidth_unit(local);
    const double rate = bandwidth.rate * bandwidth.share() / 1e6;
    if (average < local.least_bandwidth) {
      return fmt::format("{} bytes: {:.2f} {} are below the limit, -w {:g}", size, average,
                         bandwidth_unit_name(local), local.least_bandwidth);
    }
    if (rate < local.least_rate) {
      return fmt::format("{} bytes: {:.6f} Mpps are below the limit, -y {:g}", size, rate, local.least_rate);
    }
  }
  return "";
}

std::string hgrm_text(const Results& results) {
  if (results.latency.empty()) return "";
  const Latency& latency = results.latency.front().second;
  return percentiles_text(*latency.ticks, latency.clock.ns(1) / 1000.0);
}

std::string served_text(const TestSpec& spec, const Served& served) {
  if (spec.is_reliable() || spec.latency) return fmt::format("{}: served one client\n", spec.name());
  return fmt::format("{}: served one client; {} messages came, {} were lost\n", spec.name(), served.received,
                     served.lost);
}

Json served_json(Session& session, const Served& served) {
  const TestSpec& spec = session.spec();
  Json told = run_json("uroce.perf.served/1", session.config());
  told["served"] = spec.name();
  if (spec.is_reliable() || spec.latency) return told;
  told["n_received"] = served.received;
  told["n_lost"] = served.lost;
  return told;
}

Json results_json(Session& session, const Results& results, const std::vector<int>& cores) {
  const TestSpec& spec = session.spec();
  const LocalOptions& local = session.local();
  Json rows = Json::array();
  for (const auto& [size, latency] : results.latency) {
    // The figures of the row itself are those that perftest prints; "rtt" and "half_rtt" say which is which.
    Json row = figures_json(figures_of(local, latency, spec.is_ping_pong() ? 0.5 : 1));
    row["MsgSize"] = size;
    row["n_iterations"] = latency.ticks->count();
    row["rtt"] = figures_json(figures_of(local, latency, 1));
    if (!spec.is_reliable()) row["n_sent_again"] = latency.repeated;
    row["half_rtt"] = figures_json(figures_of(local, latency, 0.5));
    if (local.rate > 0) {
      row["rate_offered"] = rounded(local.rate);
      row["rate_achieved"] = rounded(latency.rate);
      row["saturated"] = is_too_much(local, latency);
      row["n_never_begun"] = latency.missing;
    }
    if (latency.ended) row["ended"] = latency.ended->text;
    rows.push_back(std::move(row));
  }
  for (const auto& [size, bandwidth] : results.bandwidth) {
    Json row = {{"MsgSize", size},
                {"n_iterations", bandwidth.messages},
                {"BW_peak", rounded(local.no_peak ? 0.0 : bandwidth.peak / bandwidth_unit(local))},
                {"BW_average", rounded(bandwidth.average / bandwidth_unit(local))},
                {"MsgRate", std::round(bandwidth.rate) / 1e6}};
    if (!spec.is_reliable()) {
      row["n_lost"] = bandwidth.lost;
      row["BW_received"] = rounded(bandwidth.average * bandwidth.share() / bandwidth_unit(local));
    }
    if (bandwidth.ended) row["ended"] = bandwidth.ended->text;
    rows.push_back(std::move(row));
  }
  Json info = spec.to_json();
  info.erase("verb");
  info["test"] = spec.name();
  info["row_is"] = spec.latency ? (spec.is_ping_pong() ? "half_rtt" : "rtt") : "bandwidth";
  const char* bandwidth_name = local.gigabits ? "Gb/sec" : "MB/sec (2^20 bytes)";
  info["unit"] = spec.latency ? latency_unit(local, {}).name : bandwidth_name;
  info["host"] = local.host;
  if (const auto index = choose_gid(session.device(), local.gid_index))
    info["gid"] = to_string(session.device().gids().at(*index).gid);
  Json all = run_json("uroce.perf/1", session.config());
  all["machine"] = machine_json(cores);
  all["test_info"] = std::move(info);
  all["results"] = std::move(rows);
  const bool is_known = spec.verify && (results.is_whole() || results.data_errors() > 0);
  all["verified"] = is_known ? Json(results.data_errors() == 0) : Json();
  all["data_errors"] = results.data_errors();
  return all;
}

}  // namespace uroce::apps::perf
