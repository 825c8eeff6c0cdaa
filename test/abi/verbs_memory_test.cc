// Registration of memory that is not there, or not all of it.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>

#include "test/abi/verbs_side.h"

namespace uroce::test {

namespace {

constexpr unsigned kWrites = IBV_ACCESS_LOCAL_WRITE;

/// Pages that are mapped as a test wants them.
class Pages {
 public:
  explicit Pages(std::size_t pages, int rights = PROT_READ | PROT_WRITE, int fd = -1)
      : bytes(pages * page()),
        memory(static_cast<std::byte*>(
            mmap(nullptr, bytes, rights, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0))) {
    REQUIRE(memory != MAP_FAILED);
  }
  ~Pages() { munmap(memory, bytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

  const std::size_t bytes;
  std::byte* const memory;
};

/// 0, or errno of what was refused.
int reg(ibv_pd* pd, std::byte* memory, std::size_t bytes, unsigned access) {
  errno = 0;
  ibv_mr* mr = ibv_reg_mr_iova2(pd, memory, bytes, 0, access);
  if (mr == nullptr) return errno;
  CHECK(ibv_dereg_mr(mr) == 0);
  return 0;
}

}  // namespace

TEST_CASE("memory that is not mapped, or without these rights, cannot be registered", "[abi][mr][errors]") {
  VerbsSide side;
  const Pages pages(4);
  const Pages read_only(2, PROT_READ);
  const Pages nothing(2, PROT_NONE);
  CHECK(reg(side.pd, pages.memory + 1, pages.bytes - 1, kWrites) == 0);
  CHECK(reg(side.pd, read_only.memory, read_only.bytes, 0) == 0);
  CHECK(reg(side.pd, read_only.memory, read_only.bytes, kWrites) == EFAULT);
  CHECK(reg(side.pd, nothing.memory, nothing.bytes, 0) == EFAULT);
  CHECK(reg(side.pd, reinterpret_cast<std::byte*>(-16), 16, 0) == EFAULT);
  REQUIRE(munmap(pages.memory + 2 * Pages::page(), Pages::page()) == 0);
  CHECK(reg(side.pd, pages.memory, pages.bytes, kWrites) == EFAULT);
  CHECK(reg(side.pd, pages.memory, 2 * Pages::page(), kWrites) == 0);
  REQUIRE(mmap(pages.memory + 2 * Pages::page(), Pages::page(), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
}

TEST_CASE("memory behind the end of a file cannot be registered", "[abi][mr][errors]") {
  VerbsSide side;
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  REQUIRE(ftruncate(fileno(file), static_cast<off_t>(Pages::page())) == 0);
  const Pages pages(2, PROT_READ | PROT_WRITE, fileno(file));
  CHECK(reg(side.pd, pages.memory, Pages::page(), kWrites) == 0);
  CHECK(reg(side.pd, pages.memory, pages.bytes, kWrites) == EFAULT);
  std::fclose(file);
}

TEST_CASE("a region that cannot become another one stays what it was", "[abi][mr][errors]") {
  VerbsSide side;
  const Pages read_only(1, PROT_READ);
  ibv_mr* mr = ibv_reg_mr(side.pd, read_only.memory, read_only.bytes, 0);
  REQUIRE(mr != nullptr);
  errno = 0;
  CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kWrites) != 0);
  CHECK(errno == EFAULT);
  errno = 0;
  CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, reinterpret_cast<void*>(0x1000), 64, 0) !=
        0);
  CHECK(errno == EFAULT);
  errno = 0;  // rights that are given and not asked to be changed
  CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, side.pd, nullptr, 0, IBV_ACCESS_REMOTE_READ) != 0);
  CHECK(errno == EINVAL);
  CHECK(mr->addr == read_only.memory);
  CHECK(ibv_dereg_mr(mr) == 0);
}

}  // namespace uroce::test
