// Registration of memory that is not there, or not all of it, or not any more.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

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

namespace {

/// Two ends, of which the second one has registered pages that are then unmapped.
struct GonePages {
  GonePages() {
    join(a, b);
    REQUIRE(mr != nullptr);
    std::memset(pages.memory, 0x5a, pages.bytes);
    REQUIRE(munmap(pages.memory, pages.bytes) == 0);
  }
  ~GonePages() { CHECK(ibv_dereg_mr(mr) == 0); }
  GonePages(const GonePages&) = delete;
  GonePages& operator=(const GonePages&) = delete;

  /// A WRITE into them, or a READ from them, over the border of two.
  ibv_wc access(ibv_wr_opcode opcode) {
    a.post(1, a.sge(0, 512), opcode,
           {reinterpret_cast<std::uintptr_t>(pages.memory) + Pages::page() - 256, 512, mr->rkey});
    return a.take();
  }

  VerbsSide a;
  VerbsSide b;
  Pages pages{4};
  ibv_mr* mr = ibv_reg_mr(b.pd, pages.memory, pages.bytes,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
};

const auto* const kNowhere = reinterpret_cast<const std::byte*>(64);

/// The program's own handler of faults, while this lives.
class OwnHandler {
 public:
  OwnHandler() {
    struct sigaction action {};
    action.sa_handler = [](int) { siglongjmp(back_, 1); };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~OwnHandler() { sigaction(SIGSEGV, &before_, nullptr); }
  OwnHandler(const OwnHandler&) = delete;
  OwnHandler& operator=(const OwnHandler&) = delete;

  /// Whether it is called for a look at that byte.
  static bool gets_fault(const std::byte* address) {
    if (sigsetjmp(back_, 1) != 0) return true;
    [[maybe_unused]] const std::byte seen = *const_cast<const volatile std::byte*>(address);
    return false;
  }

 private:
  static inline sigjmp_buf back_;
  struct sigaction before_ {};
};

/// How a child ends that installs this handler of SIGSEGV, opens a device and goes on with `then`.
template <typename Then>
int end_of_child(void (*handler)(int), int flags, Then&& then) {
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGSEGV, &action, nullptr);
    const VerbsSide side;
    then();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

void look_nowhere() {
  [[maybe_unused]] const std::byte seen = *const_cast<const volatile std::byte*>(kNowhere);
}

}  // namespace

TEST_CASE("registered memory that is unmapped is as if nobody saw it any more", "[abi][mr][unmapped]") {
  GonePages gone;
  gone.b.post_receive(1, {reinterpret_cast<std::uintptr_t>(gone.pages.memory), 512, gone.mr->lkey});
  const Said said;
  gone.a.post(1, gone.a.sge(0, 512));
  CHECK(gone.a.take().status == IBV_WC_SUCCESS);
  CHECK(gone.b.take().byte_len == 512);
  gone.a.memory.fill(std::byte{0x77});
  CHECK(gone.access(IBV_WR_RDMA_READ).status == IBV_WC_SUCCESS);
  CHECK(gone.a.memory[0] == std::byte{0});  // what the page had is lost
  CHECK(gone.access(IBV_WR_RDMA_WRITE).status == IBV_WC_SUCCESS);
  const std::string text = said.text();
  CHECK(text.find("registered memory was unmapped") != std::string::npos);
  CHECK(text.find('\n') == text.size() - 1);  // once
}

TEST_CASE("faults of the program go to its own handler, also in registered memory", "[abi][mr][unmapped]") {
  const OwnHandler own;
  GonePages gone;
  CHECK(OwnHandler::gets_fault(gone.pages.memory));
  CHECK(OwnHandler::gets_fault(kNowhere));
  CHECK(gone.access(IBV_WR_RDMA_WRITE).status == IBV_WC_SUCCESS);
  CHECK(OwnHandler::gets_fault(gone.pages.memory + 3 * Pages::page()));  // the pages that nobody needed
}

TEST_CASE("a handler that the program installed later stays before the engine's", "[abi][mr][unmapped]") {
  std::optional<VerbsSide> first(std::in_place);
  {
    const OwnHandler own;
    first.reset();
    const GonePages gone;  // the device is opened once more
    CHECK(OwnHandler::gets_fault(kNowhere));
  }
  CHECK(GonePages().access(IBV_WR_RDMA_WRITE).status == IBV_WC_SUCCESS);
}

TEST_CASE("a handler of SIGSEGV that is to be called once is, and the program then ends by the fault",
          "[abi][mr][unmapped]") {
  static int calls = 0;
  const int status = end_of_child(
      [](int) {
        if (++calls == 2) _exit(2);
      },
      static_cast<int>(SA_RESETHAND), look_nowhere);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("a handler of SIGSEGV that jumps out with the signal unblocked is called each time",
          "[abi][mr][unmapped]") {
  static std::jmp_buf back;
  static int faults = 0;
  const int status = end_of_child([](int) { std::longjmp(back, 1); }, SA_NODEFER,
                                  [] {
                                    for (; faults < 3; ++faults) {
                                      if (setjmp(back) == 0) look_nowhere();
                                    }
                                  });
  CHECK(WIFEXITED(status));
}

TEST_CASE("the handler of SIGSEGV that a program had is there again without a device",
          "[abi][mr][unmapped]") {
  struct sigaction before {};
  struct sigaction during {};
  struct sigaction after {};
  sigaction(SIGSEGV, nullptr, &before);
  {
    VerbsSide side;
    sigaction(SIGSEGV, nullptr, &during);
  }
  sigaction(SIGSEGV, nullptr, &after);
  CHECK(during.sa_sigaction != before.sa_sigaction);
  CHECK(after.sa_sigaction == before.sa_sigaction);
}

}  // namespace uroce::test
