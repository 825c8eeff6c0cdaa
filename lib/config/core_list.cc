#include <algorithm>
#include <charconv>
#include <optional>

#include "uroce/config.h"

namespace uroce {
namespace {

constexpr unsigned kMaxCore = 1023;  // CPU_SETSIZE - 1

Error refused(std::string_view text, std::string_view why) {
  return {.code = Errc::kConfig,
          .text = "core list '" + std::string(text) + "' " + std::string(why) +
                  "; allowed are cores 0..1023 and ranges such as \"2-5,8\""};
}

std::optional<unsigned> core_number(std::string_view text) {
  unsigned core = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (error != std::errc{} || end != text.data() + text.size() || core > kMaxCore) return std::nullopt;
  return core;
}

struct Range {
  unsigned first = 0;
  unsigned last = 0;
};

std::optional<Range> core_range(std::string_view text) {
  const auto dash = text.find('-');
  const auto first = core_number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : core_number(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return Range{.first = *first, .last = *last};
}

}  // namespace

Result<std::vector<unsigned>> parse_core_list(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) return refused(text, "is a mask");

  std::vector<unsigned> cores;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    const auto range = core_range(text.substr(begin, comma - begin));
    if (!range) return refused(text, "is not a list of cores");
    for (unsigned core = range->first; core <= range->last; ++core) cores.push_back(core);
    begin = comma + 1;
  }
  std::ranges::sort(cores);
  if (std::ranges::adjacent_find(cores) != cores.end()) return refused(text, "names a core twice");
  return cores;
}

}  // namespace uroce
