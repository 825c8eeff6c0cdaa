#include "base/due_bell.h"

#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

namespace uroce {
namespace {

struct Pipe {
  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
  ~Pipe() {
    for (const int end : ends) ::close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int bell() const { return ends[1]; }
  [[nodiscard]] bool has_rung() const { return is_readable(ends[0]); }

  std::array<int, 2> ends{};
};

TEST_CASE("a bell that is due rings when it is told to, or when another one takes its place",
          "[base][bell]") {
  const Pipe first;
  const Pipe second;
  DueBell due;
  CHECK(due.take() == -1);
  due.put(first.bell());
  due.put(first.bell());
  CHECK_FALSE(first.has_rung());
  due.put(second.bell());
  CHECK(first.has_rung());
  CHECK_FALSE(second.has_rung());
  CHECK(due.take() == second.bell());
  CHECK(due.take() == -1);
  DueBell::ring(second.bell());
  CHECK(second.has_rung());
}

}  // namespace
}  // namespace uroce
