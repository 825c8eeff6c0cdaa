#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "apps/common/json_text.h"
#include "apps/common/table.h"
#include "apps/stat/explain.h"
#include "apps/stat/label.h"
#include "apps/stat/report.h"

namespace uroce::apps {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::vector<const QpFigures*> in_order(const DeviceFigures& page) {
  std::vector<const QpFigures*> qps;
  for (const QpFigures& qp : page.qps) qps.push_back(&qp);
  std::ranges::sort(qps, {}, [](const QpFigures* qp) {
    const auto all = std::accumulate(qp->values.begin(), qp->values.end(), std::uint64_t{0});
    return std::tuple(~all, qp->qpn);
  });
  return qps;
}

std::string number_text(std::uint32_t qpn) {
  return fmt::format("0x{:06x}", qpn);
}

std::string counted_text(const DeviceFigures& page, const QpFigures& qp, bool all) {
  std::string text;
  for (std::size_t i = 0; i < page.qp_names.size(); ++i) {
    if (all || qp.values[i] != 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", page.qp_names[i], qp.values[i]);
  }
  return text.empty() ? "-" : text;
}

OrderedJson qp_json(const DeviceFigures& page, const QpFigures& qp, bool all) {
  OrderedJson counters = OrderedJson::object();
  for (std::size_t i = 0; i < page.qp_names.size(); ++i) {
    if (all || qp.values[i] != 0) counters[page.qp_names[i]] = qp.values[i];
  }
  const bool has_peer = !qp.peer.is_zero();
  return {{"qpn", qp.qpn},
          {"type", to_string(qp.type)},
          {"state", to_string(qp.state)},
          {"peer", has_peer ? OrderedJson(to_string(qp.peer)) : OrderedJson()},
          {"peer_qpn", has_peer ? OrderedJson(qp.peer_qpn) : OrderedJson()},
          {"counters", std::move(counters)}};
}

}  // namespace

std::string qps_text(const std::vector<ProcessPage>& pages, bool all) {
  std::string text;
  for (const ProcessPage& device : pages) {
    const DeviceFigures& page = device.page;
    text += fmt::format("{}pid {} {}, {}, {}, {} QP{}\n", text.empty() ? "" : "\n", device.pid,
                        device.program, page.port, fmt::join(page.addresses, " "), page.qps.size(),
                        page.qps.size() == 1 ? "" : "s");
    Table table({"QP", "type", "state", "peer", "its QP", "counted"}, 6);
    for (const QpFigures* qp : in_order(page)) {
      const bool has_peer = !qp->peer.is_zero();
      table.add({number_text(qp->qpn), std::string(to_string(qp->type)), std::string(to_string(qp->state)),
                 has_peer ? host_text(qp->peer) : "-", has_peer ? number_text(qp->peer_qpn) : "-",
                 counted_text(page, *qp, all)});
    }
    if (!page.qps.empty()) text += table.text();
  }
  return text;
}

std::string qps_json(const std::vector<ProcessPage>& pages, bool all) {
  OrderedJson devices = OrderedJson::array();
  for (const ProcessPage& device : pages) {
    OrderedJson qps = OrderedJson::array();
    for (const QpFigures* qp : in_order(device.page)) qps.push_back(qp_json(device.page, *qp, all));
    devices.push_back({{"pid", device.pid},
                       {"program", device.program},
                       {"device", device.page.device},
                       {"port", device.page.port},
                       {"addresses", device.page.addresses},
                       {"qps", std::move(qps)}});
  }
  return to_text(OrderedJson{{"schema", "uroce.stat.qps/1"}, {"devices", std::move(devices)}}) + "\n";
}

/// The state is no label: with another one it would be another QP.
std::string qps_prometheus(const std::vector<ProcessPage>& pages) {
  std::map<std::string, std::string> lines;  // by metric
  for (const ProcessPage& device : pages) {
    const DeviceFigures& page = device.page;
    for (const QpFigures* qp : in_order(page)) {
      const bool has_peer = !qp->peer.is_zero();
      const std::string labels = fmt::format(
          "{{pid=\"{}\",program=\"{}\",device=\"{}\",port=\"{}\",qp=\"{}\",type=\"{}\",peer=\"{}\",peer_qp="
          "\"{}\"}}",
          device.pid, label(device.program), page.device, label(page.port), number_text(qp->qpn),
          to_string(qp->type), has_peer ? host_text(qp->peer) : "",
          has_peer ? number_text(qp->peer_qpn) : "");
      for (std::size_t i = 0; i < page.qp_names.size(); ++i)
        lines[page.qp_names[i]] +=
            fmt::format("uroce_qp_{}_total{} {}\n", page.qp_names[i], labels, qp->values[i]);
    }
  }
  std::string text;
  for (const auto& [name, of_name] : lines) text += metric_head("uroce_qp_", name) + of_name;
  return text;
}

}  // namespace uroce::apps
