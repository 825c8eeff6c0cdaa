#include "config/text.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace uroce::config {
namespace {

/// Letters to insert, delete or replace to turn one word into the other (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

const ConfigKey* find_key(std::string_view name) noexcept {
  const auto keys = config_keys();
  const auto row = std::ranges::find(keys, name, &ConfigKey::name);
  return row == keys.end() ? nullptr : &*row;
}

std::string unknown_key_text(std::string_view name) {
  const auto keys = config_keys();
  const auto near = std::ranges::min_element(
      keys, {}, [name](const ConfigKey& key) { return edit_distance(name, key.name); });
  std::string text = "unknown key";
  if (edit_distance(name, near->name) <= 2) text += ", did you mean " + std::string(near->name) + "?";
  text += "; allowed";
  for (const auto& key : keys) text += (&key == &keys.front() ? " " : ", ") + std::string(key.name);
  return text;
}

}  // namespace uroce::config
