#include "apps/common/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace uroce::apps {

std::string number(const std::optional<double>& value) {
  if (!value) return "-";
  return fmt::format("{:.{}f}", *value, *value >= 100 ? 0 : *value >= 10 ? 1 : *value >= 1 ? 2 : 3);
}

Table::Table(std::vector<std::string> head, std::size_t left) : left_(left) {
  rows_.push_back(std::move(head));
}

void Table::add(std::vector<std::string> row) {
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> width;
  for (const auto& row : rows_) {
    width.resize(std::max(width.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap(width[i] - row[i].size(), ' ');
      line += i == 0 ? " " : "  ";
      line += i < left_ ? row[i] + gap : gap + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace uroce::apps
