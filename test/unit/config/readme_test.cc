#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "uroce/config.h"

using namespace uroce;

namespace {

std::string readme() {
  std::ifstream file(CONFIG_DIR "/../README.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string table_row(const ConfigKey& key) {
  const auto value = key.get(Config{});
  std::string row = "| `--" + std::string(key.name);
  if (!key.is_flag) row += " " + std::string(key.metavar);
  row += "` | " + (value.empty() ? "" : "`" + value + "` ");
  return row + "| " + std::string(key.help) + " |\n";
}

}  // namespace

TEST_CASE("README lists each option with its default and meaning", "[config][readme]") {
  const auto text = readme();
  for (const auto& key : config_keys()) CHECK_THAT(text, Catch::Contains(table_row(key)));
}

TEST_CASE("README lists each exit code", "[config][readme]") {
  const auto text = readme();
  constexpr Errc kLast = Errc::kOtherLoop;
  for (int code = exit_code(Errc::kInvalid); code <= exit_code(kLast); ++code) {
    CHECK_THAT(text, Catch::Contains("\n| " + std::to_string(code) + " | "));
  }
  CHECK_THAT(text, !Catch::Contains("\n| " + std::to_string(exit_code(kLast) + 1) + " | "));
}
