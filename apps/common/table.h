/// A table of text for terminals: columns as wide as their cells.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace uroce::apps {

/// Three significant digits or so; "-" for none.
[[nodiscard]] std::string number(const std::optional<double>& value);

class Table {
 public:
  /// `left` columns are aligned to the left, the others to the right.
  explicit Table(std::vector<std::string> head, std::size_t left = 0);

  void add(std::vector<std::string> row);
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::size_t left_;
};

}  // namespace uroce::apps
