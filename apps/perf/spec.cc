#include "apps/perf/spec.h"

#include <fmt/format.h>

#include <array>

namespace uroce::apps::perf {
namespace {

struct Range {
  std::uint32_t least = 0;
  std::uint32_t most = UINT32_MAX;
};

/// The fields of a peer's message, each within its range.
class Wishes {
 public:
  explicit Wishes(const Json& json) : json_(json) {}

  void take(const char* name, std::uint32_t& value, Range range) {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_number_unsigned()) return refuse(name);
    const auto wish = found->get<std::uint64_t>();
    if (wish < range.least || wish > range.most) return refuse(name);
    value = static_cast<std::uint32_t>(wish);
  }
  /// One that `spec` has.
  void take(const char* name, QpType& value, const TestSpec& spec) {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_string()) return refuse(name);
    const auto type = type_from(found->get<std::string>());
    if (!type || !spec.has(*type)) return refuse(name);
    value = *type;
  }
  void take(const char* name, bool& value, bool may_be_true = true) {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_boolean()) return refuse(name);
    value = found->get<bool>();
    if (value && !may_be_true) refuse(name);
  }
  /// Name of the first one that is wrong; empty: none.
  [[nodiscard]] const std::string& wrong() const noexcept { return wrong_; }

 private:
  void refuse(const char* name) {
    if (wrong_.empty()) wrong_ = name;
  }

  const Json& json_;
  std::string wrong_;
};

}  // namespace

Json TestSpec::to_json() const {
  return {{"verb", static_cast<int>(verb)},
          {"connection", to_string(type)},
          {"latency", latency},
          {"all_sizes", all_sizes},
          {"size", size},
          {"iterations", iterations},
          {"seconds", seconds},
          {"qps", qps},
          {"tx_depth", tx_depth},
          {"rx_depth", rx_depth},
          {"path_mtu", path_mtu},
          {"inline_bytes", inline_bytes},
          {"post_list", post_list},
          {"cq_mod", cq_mod},
          {"outstanding_reads", outstanding_reads},
          {"timeout", timeout},
          {"compare_swap", compare_swap},
          {"bidirectional", bidirectional},
          {"verify", verify}};
}

Result<TestSpec> TestSpec::from(const Json& json) {
  TestSpec spec;
  Wishes wishes(json);
  std::uint32_t verb = 0;
  wishes.take("verb", verb, {.most = static_cast<std::uint32_t>(Verb::kAtomic)});
  spec.verb = static_cast<Verb>(verb);
  wishes.take("connection", spec.type, spec);
  const bool is_atomic = spec.verb == Verb::kAtomic;
  constexpr std::uint32_t kAtomicBytes = 8;
  wishes.take("latency", spec.latency);
  wishes.take("all_sizes", spec.all_sizes, !is_atomic);
  Range sizes{.least = spec.is_datagram() ? 0U : 1U, .most = most::kSize};
  if (is_atomic) sizes = {.least = kAtomicBytes, .most = kAtomicBytes};
  wishes.take("size", spec.size, sizes);
  wishes.take("iterations", spec.iterations, {.least = 1, .most = most::kIterations});
  wishes.take("seconds", spec.seconds, {.most = most::kSeconds});
  wishes.take("qps", spec.qps, {.least = 1, .most = spec.latency ? 1 : most::kQps});
  wishes.take("tx_depth", spec.tx_depth, {.least = 1, .most = most::kDepth});
  wishes.take("rx_depth", spec.rx_depth, {.least = 1, .most = most::kDepth});
  wishes.take("path_mtu", spec.path_mtu, {.least = 256, .most = 4096});
  wishes.take("inline_bytes", spec.inline_bytes, {});
  wishes.take("post_list", spec.post_list, {.least = 1, .most = most::kList});
  wishes.take("cq_mod", spec.cq_mod, {.least = spec.latency ? 0U : 1U, .most = most::kDepth});
  wishes.take("outstanding_reads", spec.outstanding_reads, {.least = 1, .most = most::kReads});
  wishes.take("timeout", spec.timeout, {.most = most::kTimeout});
  wishes.take("compare_swap", spec.compare_swap);
  wishes.take("bidirectional", spec.bidirectional, !spec.latency);
  wishes.take("verify", spec.verify);
  if (wishes.wrong().empty()) return spec;
  return Error{.code = Errc::kPeer,
               .text = fmt::format("the client's \"{}\" is missing, or nothing that `uroce perf` asks for",
                                   wishes.wrong())};
}

std::optional<QpType> type_from(std::string_view text) {
  for (const auto type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    if (to_string(type) == text) return type;
  }
  return std::nullopt;
}

std::string TestSpec::name() const {
  constexpr std::array<const char*, 4> kVerbs = {"send", "write", "read", "atomic"};
  return fmt::format("{}_{}", kVerbs[static_cast<std::size_t>(verb)], latency ? "lat" : "bw");
}

}  // namespace uroce::apps::perf
