#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/hugepage_pool.h"
#include "drivers/dpdk/open_name.h"
#include "eal/frames.h"
#include "eal/requirement.h"
#include "support/skip.h"

namespace uroce::test {

std::string missing_requirement() {
  return {};
}

namespace {

struct Outcome {
  std::string code;     ///< of the error; "open"
  std::string text;     ///< of the error
  std::string printed;  ///< by EAL, drivers and everybody else
};

/// Opens a port in a process of its own, EAL's start included.
Outcome outcome_of(const std::string& spec, bool no_huge = true, const std::function<void()>& prepare = {}) {
  Child child([&](const Report& report) {
    if (prepare) prepare();
    std::string code = "open";
    std::string text;
    const std::string printed = printed_by([&] {
      const auto port = open_port(spec, no_huge);
      if (!port) code = std::to_string(raw(port.error().code));
      if (!port) text = port.error().text;
    });
    report.line(code);
    report.line("text " + text);
    report.line("printed " + printed);
    return 0;
  });
  Outcome outcome;
  outcome.code = child.next_line(in_seconds(30));
  outcome.text = child.next_line(in_seconds(5));
  outcome.printed = child.next_line(in_seconds(5));
  return outcome;
}

std::string code(Errc errc) {
  return std::to_string(raw(errc));
}

void check_silent(const Outcome& outcome) {
  CHECK(outcome.printed == "printed ");
}

/// In a child: an empty folder over the one in which the system counts them. @return whether that may be
bool hides_hugepages() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/sys/kernel/mm/hugepages", "tmpfs", MS_RDONLY, nullptr) == 0;
}

/// @return the limit as it was
rlimit leave_no_descriptors() {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = dup(0);
  close(next);
  const rlimit files{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) abort();
  return before;
}

std::string temporary_folder() {
  char name[] = "/tmp/uroce-errors-XXXXXX";
  return mkdtemp(name);
}

}  // namespace

TEST_CASE("a port that opens prints nothing", "[eal][errors]") {
  const Outcome outcome = outcome_of("ring");
  CHECK(outcome.code == "open");
  CHECK(outcome.text == "text ");
  check_silent(outcome);
}

TEST_CASE("a missing interface is named beside those that exist", "[eal][errors]") {
  const std::string driver = GENERATE("af_packet", "af_xdp");
  const Outcome outcome = outcome_of(driver + ":eng0nope");
  CHECK(outcome.code == code(Errc::kNotFound));
  CHECK_THAT(outcome.text, Catch::Contains("no network interface 'eng0nope'; existing: ") &&
                               Catch::Contains("lo") && Catch::Contains("ip link"));
  check_silent(outcome);
}

TEST_CASE("raw sockets without the right to them are refused with the capability's name", "[eal][errors]") {
  const auto become_nobody = [] {
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) abort();
  };
  const Outcome outcome = outcome_of("af_packet:lo", true, become_nobody);
  CHECK(outcome.code == code(Errc::kPermission));
  CHECK_THAT(outcome.text, Catch::Contains("CAP_NET_RAW") && Catch::Contains("setcap"));
  check_silent(outcome);
}

TEST_CASE("under `uroce run` the right to raw sockets is no file capability", "[eal][errors]") {
  const auto become_nobody = [] {
    setenv("LD_PRELOAD", "/x/liburoce-preload.so", 1);
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) abort();
  };
  const Outcome outcome = outcome_of("af_packet:lo", true, become_nobody);
  CHECK(outcome.code == code(Errc::kPermission));
  CHECK_THAT(outcome.text, Catch::Contains("--ambient-caps +net_raw") && !Catch::Contains("setcap"));
}

TEST_CASE("missing hugepages are counted, with the command that sets them up", "[eal][errors]") {
  Child able([](const Report&) { return hides_hugepages() ? 0 : 1; });
  const bool hides = able.wait(in_seconds(5)) == 0;
  if (!hides && hugepages_free() > 0) return skip("there are free hugepages, and only root may hide them");
  const Outcome outcome = outcome_of("ring", false, [hides] {
    if (hides && !hides_hugepages()) abort();
  });
  CHECK(outcome.code == code(Errc::kNoHugepages));
  CHECK_THAT(outcome.text,
             Catch::Contains("hugepages of 2 MiB are needed, 0 are free; run: sudo config/hugepages ") &&
                 Catch::Contains("or add --no-huge (UROCE_NO_HUGE=1)"));
  check_silent(outcome);
}

TEST_CASE("a memif name held by a live server is refused, a dead server's is taken over", "[eal][errors]") {
  const std::string folder = temporary_folder();
  const std::string spec = "memif:" + folder + "/link.sock,role=server";
  {
    Child holder([&](const Report& report) {
      const auto port = open_port(spec);
      report.line(port ? "open" : port.error().text);
      pause();
      return 0;
    });
    REQUIRE(holder.next_line(in_seconds(20)) == "open");
    const Outcome outcome = outcome_of(spec);
    CHECK(outcome.code == code(Errc::kNameInUse));
    CHECK_THAT(outcome.text, Catch::Contains(folder + "/link.sock") && Catch::Contains("role=client"));
    check_silent(outcome);
    holder.kill9();
  }
  CHECK(std::filesystem::exists(folder + "/link.sock"));
  const Outcome outcome = outcome_of(spec);
  CHECK(outcome.code == "open");
  check_silent(outcome);
  CHECK_FALSE(std::filesystem::exists(folder + "/link.sock"));  // closed in an orderly way
  std::filesystem::remove_all(folder);
}

TEST_CASE("a memif socket of another user is refused to every role", "[eal][errors]") {
  if (getuid() != 0) return skip("only root may become another user");
  const std::string folder = temporary_folder();
  const std::string path = folder + "/link.sock";
  constexpr uid_t kNobody = 65534;
  if (chown(folder.c_str(), kNobody, kNobody) != 0) return skip("there is but one user here");
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  REQUIRE(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(server, 1) == 0);
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  for (const char* role : {"auto", "client", "server"}) {
    CAPTURE(role);
    const Outcome outcome = outcome_of("memif:" + path + ",role=" + role, true, [] {
      if (setresuid(kNobody, kNobody, kNobody) != 0) abort();
    });
    CHECK(outcome.code == code(Errc::kPermission));
    CHECK_THAT(outcome.text, Catch::Contains(path + " belongs to another user; run both ends as the same"));
    check_silent(outcome);
  }
  close(server);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a device that does not open gives its driver's reason, not what the EAL says after it",
          "[eal][errors]") {
  const std::string folder = temporary_folder();
  const Outcome outcome = outcome_of("virtio_user:" + folder + "/x.sock");
  CHECK(outcome.code == code(Errc::kSystem));
  CHECK_THAT(outcome.text, Catch::Contains(std::strerror(ENOENT)) &&
                               Catch::Contains("; is the vhost-user backend running") &&
                               !Catch::Contains("EAL: "));
  check_silent(outcome);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a memif socket that cannot be is refused with the reason", "[eal][errors]") {
  const std::string folder = temporary_folder();
  std::ofstream(folder + "/file") << "text";
  struct Row {
    std::string spec;
    Errc errc;
    std::string text;
  };
  const std::vector<Row> rows = {
      {"memif:" + folder + "/none/x.sock", Errc::kNotFound, "run: mkdir -p " + folder + "/none"},
      {"memif:x.sock", Errc::kConfig, "absolute path"},
      {"memif:/tmp/" + std::string(120, 'x'), Errc::kConfig, "longer than 107 bytes"},
      {"memif:" + folder + "/file,role=server", Errc::kNameInUse, "is not a socket"},
      {"memif:" + folder + "/x.sock,role=boss", Errc::kConfig, "role=boss"},
      {"memif:" + folder + "/x.sock,rsize=100", Errc::kConfig, "power of two"},
      {"memif:" + folder + "/x.sock,bsize=65408", Errc::kConfig, "allowed: 256 to 65407"},
      {"memif:" + folder + "/x.sock,colour=red", Errc::kConfig, "colour"},
      {"memif:" + folder + "/x.sock,mtu=20000", Errc::kConfig, "mtu=20000"},
      {"pci:zz", Errc::kConfig, "PCI address"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.spec);
    const Outcome outcome = outcome_of(row.spec);
    CHECK(outcome.code == code(row.errc));
    CHECK_THAT(outcome.text, Catch::Contains(row.text));
    check_silent(outcome);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("a PCI device that the process has open is refused, however it is spelt", "[eal][errors]") {
  using drivers::dpdk::OpenName;
  const std::string spec = GENERATE("pci:0000:ff:1f.7", "pci:0000:FF:1F.7", "pci:ff:1f.7", "pci:FF:1f.7");
  CAPTURE(spec);
  const Outcome outcome = outcome_of(spec, true, [] {
    static const auto first = OpenName::take("0000:ff:1f.7");
    if (!first) abort();
  });
  CHECK(outcome.code == code(Errc::kNameInUse));
  CHECK_THAT(outcome.text, Catch::Contains("0000:ff:1f.7 is open in this process already"));
  check_silent(outcome);
}

TEST_CASE("a device's name is taken as long as its port is open", "[eal][errors]") {
  using drivers::dpdk::OpenName;
  Child child([](const Report& report) {
    const auto is_taken = [](const char* name) {
      return OpenName::take(name) ? std::string("free") : std::string("taken");
    };
    {
      const auto port = open_port("ring");
      report.line(port ? "open" : port.error().text);
      report.line(is_taken("net_ring0") + ' ' + is_taken("net_ring0") + ' ' + is_taken("net_ring00"));
    }
    report.line(is_taken("net_ring0"));
    const auto refused = open_port("pci:0000:ff:1f.7");  // comes too late
    report.line((refused ? "open " : "refused ") + is_taken("0000:ff:1f.7"));
    return 0;
  });
  CHECK(child.next_line(in_seconds(20)) == "open");
  CHECK(child.next_line(in_seconds(5)) == "taken taken free");
  CHECK(child.next_line(in_seconds(5)) == "free");
  CHECK(child.next_line(in_seconds(5)) == "refused free");
}

TEST_CASE("a memif for which there is no descriptor left says so", "[eal][errors]") {
  const std::string folder = temporary_folder();
  Child child([&](const Report& report) {
    leave_no_descriptors();
    const auto port = open_port("memif:" + folder + "/x.sock");
    report.line(port ? "open" : port.error().text);
    return 0;
  });
  CHECK_THAT(child.next_line(in_seconds(20)), Catch::Contains(std::strerror(EMFILE)));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a thread that EAL's start does not get is an error, and can be there the next time",
          "[eal][errors]") {
  Child child([](const Report& report) {
    constexpr uid_t kNobody = 65534;
    rlimit threads{};
    getrlimit(RLIMIT_NPROC, &threads);
    threads.rlim_cur = 1;
    if (setrlimit(RLIMIT_NPROC, &threads) != 0 || (getuid() == 0 && setuid(kNobody) != 0)) abort();
    const auto refused = open_port("ring");
    report.line(refused ? "open" : std::to_string(raw(refused.error().code)));
    report.line(refused ? "" : refused.error().text);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    report.line(sigismember(&blocked, SIGTERM) == 0 ? "heard" : "blocked");
    threads.rlim_cur = threads.rlim_max;
    if (setrlimit(RLIMIT_NPROC, &threads) != 0) abort();
    const auto port = open_port("ring");
    report.line(port ? "open" : port.error().text);
    return 0;
  });
  CHECK(child.next_line(in_seconds(20)) == code(Errc::kSystem));
  CHECK_THAT(child.next_line(in_seconds(5)), Catch::Contains("ulimit -u"));
  CHECK(child.next_line(in_seconds(5)) == "heard");
  CHECK(child.next_line(in_seconds(20)) == "open");
}

TEST_CASE("an EAL that has failed to start gives the same reason to each port after", "[eal][errors]") {
  Child child([](const Report& report) {
    const rlimit files = leave_no_descriptors();
    const auto refused = open_port("ring");
    report.line(refused ? "open" : refused.error().text);
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) abort();
    const auto again = open_port("ring");
    report.line(again ? "open" : again.error().text);
    return 0;
  });
  const std::string reason = child.next_line(in_seconds(20));
  CAPTURE(reason);
  CHECK_THAT(reason, Catch::Contains("DPDK's EAL does not start: ") && !Catch::Contains("already called"));
  CHECK(child.next_line(in_seconds(20)) == reason);
}

TEST_CASE("starting EAL leaves the caller's affinity and the loaded libraries alone", "[eal][errors]") {
  Child child([](const Report& report) {
    cpu_set_t all;
    cpu_set_t one;
    cpu_set_t after;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof all, &all);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
    const auto port = open_port("ring");
    sched_getaffinity(0, sizeof after, &after);
    report.line(port ? "open" : port.error().text);
    report.line(CPU_EQUAL(&one, &after) ? "same" : "moved");
    std::string foreign;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      for (const char* name : {"librte_", "libibverbs", "libmlx"}) {
        if (line.find(name) != std::string::npos) foreign = line;
      }
    }
    report.line("foreign " + foreign);
    return 0;
  });
  CHECK(child.next_line(in_seconds(20)) == "open");
  CHECK(child.next_line(in_seconds(5)) == "same");
  CHECK(child.next_line(in_seconds(5)) == "foreign ");
}

}  // namespace uroce::test
