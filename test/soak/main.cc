// Two processes, mixed operations both ways, with faults: every byte right, every request once and in order.
//
//   mixed_ops [--ops N] [--seed S] [--seconds T] [--mtu 1024] [--timeout CODE] [--fault RULES]
//             [--selective true] [--port SPEC |
//   --ports SPEC SPEC]
//             [--ip ADDR/LEN ADDR/LEN] [--mode app|auto|lcore]
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "soak/side.h"

namespace {

using uroce::soak::Options;

bool set(Options& options, std::string_view name, char** values) {
  auto& [a, b] = options.config;
  if (name == "--ops")
    options.ops = std::strtoull(values[0], nullptr, 10);
  else if (name == "--seed")
    options.seed = std::strtoull(values[0], nullptr, 10);
  else if (name == "--seconds")
    options.seconds = static_cast<unsigned>(std::strtoul(values[0], nullptr, 10));
  else if (name == "--mtu")
    options.mtu = static_cast<std::uint32_t>(std::strtoul(values[0], nullptr, 10));
  else if (name == "--timeout")
    options.timeout = static_cast<std::uint8_t>(std::strtoul(values[0], nullptr, 10));
  else if (name == "--fault")
    a.fault = b.fault = values[0];
  else if (name == "--selective")
    a.selective_repeat = b.selective_repeat = values[0] == std::string_view("true");
  else if (name == "--port")
    a.port = b.port = values[0];
  else if (name == "--ports")
    a.port = values[0], b.port = values[1];
  else if (name == "--ip")
    a.ip = {values[0]}, b.ip = {values[1]};
  else if (name == "--mode") {
    const std::string_view mode = values[0];
    a.mode = b.mode = mode == "lcore"  ? uroce::Mode::kLcore
                      : mode == "auto" ? uroce::Mode::kAuto
                                       : uroce::Mode::kApp;
  } else {
    return false;
  }
  return true;
}

bool parse(int argc, char** argv, Options& options) {
  for (auto& config : options.config) {
    config.port = "shm:soak" + std::to_string(getpid());
    config.no_huge = true;
  }
  for (int i = 1; i < argc;) {
    const std::string_view name = argv[i];
    const int values = name == "--ports" || name == "--ip" ? 2 : 1;
    if (i + values >= argc + 0 || !set(options, name, argv + i + 1)) return false;
    i += 1 + values;
  }
  options.config[0].seed = options.seed * 2 + 1;
  options.config[1].seed = options.seed * 2 + 2;
  return true;
}

void pin(unsigned core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);  // without it the run is slower, not wrong
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "see the comment at the top of test/soak/main.cc\n");
    return 2;
  }
  void* shared =
      mmap(nullptr, sizeof(uroce::soak::Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto* meeting = new (shared) uroce::soak::Meeting{};
  const pid_t child = fork();
  if (child < 0) return 1;
  const unsigned index = child == 0 ? 1 : 0;
  pin(index);
  const int own = uroce::soak::Side(options, *meeting, index).run();
  if (child == 0) {
    std::fflush(stdout);
    _exit(own);
  }
  int status = 0;
  waitpid(child, &status, 0);  // bounded: the child has the same deadline
  const bool peer_ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  std::printf("%s\n", own == 0 && peer_ok ? "passed" : "FAILED");
  return own == 0 && peer_ok ? 0 : 1;
}
