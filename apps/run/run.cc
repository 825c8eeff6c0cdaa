// uroce run: programs written for libibverbs and librdmacm, unmodified, on this machine's uroce port.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/common/cli.h"
#include "apps/common/tell.h"
#include "uroce/device.h"

namespace uroce::apps {
namespace {

namespace fs = std::filesystem;

struct Variable {
  std::string name;
  std::string value;
};

/// Where our libibverbs.so.1 is: beside this program in the build tree, or below the same prefix.
Result<fs::path> library_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return Error{Errc::kSystem, "/proc/self/exe: " + error.message()};
  const fs::path folder = program.parent_path();
  for (const char* relative : {"../lib/abi/ibverbs", "../" UROCE_LIBDIR "/uroce"}) {
    const fs::path found = (folder / relative).lexically_normal();
    if (fs::exists(found / "libibverbs.so.1", error)) return found;
  }
  return Error{Errc::kNotFound, "libibverbs.so.1 is not there: ninja -C build, or meson install -C build"};
}

/// What gives librdmacm its device: beside the library, or where the build tree has it.
fs::path preloaded(const fs::path& library_folder) {
  std::error_code error;
  constexpr const char* kName = "liburoce-preload.so";
  const fs::path built = library_folder / "../rdmacm/preload" / kName;
  return fs::exists(built, error) ? built.lexically_normal() : library_folder / kName;
}

std::string in_front_of(const fs::path& path, const char* variable) {
  const char* others = std::getenv(variable);
  return others == nullptr || *others == '\0' ? path.string() : path.string() + ":" + others;
}

/// How LD_PRELOAD names it: by its path, which says which one it is, unless that has a blank, where the list
/// would be cut. Then its folder is among those of LD_LIBRARY_PATH, too.
Status name_preloaded(const fs::path& file, std::vector<Variable>& set) {
  const std::string path = file.string();
  if (path.find_first_of(":;") != std::string::npos)
    return Error{Errc::kInvalid, path + ": no folder with ':' or ';' is found by programs: move uroce"};
  if (path.find_first_of(" \t\n") == std::string::npos) {
    set.push_back({"LD_PRELOAD", in_front_of(file, "LD_PRELOAD")});
    return {};
  }
  set.front().value = file.parent_path().string() + ":" + set.front().value;
  set.push_back({"LD_PRELOAD", in_front_of(file.filename(), "LD_PRELOAD")});
  return {};
}

/// Whether the other end of the link is a process of this machine.
bool has_two_ends(const Config& config) {
  return config.port.starts_with("shm:") || config.port.starts_with("memif:");
}

/// One line, unless the file is there: others may be reading it.
void write_once(const fs::path& file, const std::string& line) {
  std::error_code error;
  if (fs::exists(file, error)) return;
  const fs::path half = file.string() + "." + std::to_string(getpid());
  std::ofstream(half) << line << '\n';
  fs::rename(half, file, error);
}

/// Below an adapter's folder of sysfs: of which kind each GID is, and whose interface's.
void write_gid_types(const fs::path& folder, std::size_t v2, std::size_t v1, bool is_local) {
  const fs::path attributes = folder / "ports/1/gid_attrs";
  std::error_code error;
  fs::create_directories(attributes / "types", error);
  if (is_local) fs::create_directories(attributes / "ndevs", error);
  for (std::size_t i = 0; i < v2 + v1; ++i) {
    write_once(attributes / "types" / std::to_string(i), i < v2 ? "RoCE v2" : "IB/RoCE v1");
    if (is_local) write_once(attributes / "ndevs" / std::to_string(i), "lo");
  }
}

/// What programs look for in an adapter's folder of sysfs: its GIDs, and the network interface that has its
/// addresses. For a link within the machine that is the loopback interface, whose addresses its ends answer
/// to. Ports with as many GIDs share a folder.
/// @return the folder that stands for it; empty where there is none.
std::string sysfs_folder(const Config& config) {
  const bool is_local = has_two_ends(config);
  const std::size_t gids = 1 + std::max<std::size_t>(config.ip.size(), is_local ? 1 : 0);
  const char* runtime = std::getenv("UROCE_RUNTIME_DIR");
  const fs::path base = runtime != nullptr && *runtime != '\0' ? runtime : "/dev/shm";
  const std::string name = "uroce-" + std::to_string(geteuid()) + ".sysfs" + (is_local ? ".lo." : ".") +
                           std::to_string(gids) + (config.roce_v1 ? ".v1" : "");
  const fs::path folder = base / name;
  std::error_code error;
  fs::create_directory(folder, error);
  struct stat made {};
  const bool is_own = lstat(folder.c_str(), &made) == 0 && S_ISDIR(made.st_mode) && made.st_uid == geteuid();
  if (error || !is_own) return {};
  write_gid_types(folder, gids, config.roce_v1 ? gids : 0, is_local);
  if (is_local) fs::create_directories(folder / "device/net/lo", error);
  return error ? std::string() : folder.string();
}

/// What makes a program find the library, and the library its port.
Result<std::vector<Variable>> variables(const SharedOptions& options, const Config& config) {
  const auto folder = library_folder();
  if (!folder) return folder.error();
  std::vector<Variable> set{{"LD_LIBRARY_PATH", in_front_of(*folder, "LD_LIBRARY_PATH")}};
  if (auto named = name_preloaded(preloaded(*folder), set); !named) return named.error();
  if (const std::string device = sysfs_folder(config); !device.empty())
    set.push_back({"UROCE_SYSFS", device});
  // By its cache of registrations UCX gives memory back to the system that is registered and has receives in
  // it: an adapter has pinned it, this process has not.
  constexpr const char* kUcxMethods = "UCX_IB_REG_METHODS";
  if (std::getenv(kUcxMethods) == nullptr) set.push_back({kUcxMethods, "direct"});
  if (const std::string file = options.file(); !file.empty()) {
    set.push_back({"UROCE_CONFIG", fs::absolute(file).string()});
  }
  for (const ConfigKey& key : config_keys()) {
    if (options.origin(key) == Origin::kFlag) set.push_back({environment_name(key), key.get(config)});
  }
  return set;
}

/// One line: port, addresses, and the GID that programs choose by its index.
std::string describe(const Config& config) {
  const std::string port = "port " + config.port;
  if (!config.ip.empty()) {
    const std::string& ip = config.ip.front();
    const auto gid = Gid::parse(ip.substr(0, ip.find_first_of("/@")));
    return port + ", address " + ip + ", GID " + (gid ? to_string(*gid) : "?") + " (index 1)";
  }
  if (has_two_ends(config)) {
    return port +
           ", address 10.77.0.1 at the first end, 10.77.0.2 at the next, GID ::ffff:10.77.0.x (index 1)";
  }
  return port + ", no address but the link-local one (GID index 0; more with --ip)";
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

int print_environment(const std::vector<Variable>& set) {
  for (const Variable& variable : set) fmt::print("export {}={}\n", variable.name, quoted(variable.value));
  return 0;
}

/// Becomes the program.
int become(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv.front(), argv.data());
  const Errc why = errno == ENOENT ? Errc::kNotFound : errno == EACCES ? Errc::kPermission : Errc::kSystem;
  const char* hint =
      why == Errc::kNotFound ? "; `config/setup test` installs the programs of the README" : "";
  return fail({why, words.front() + ": " + std::strerror(errno) + hint});
}

int run(const SharedOptions& options, std::vector<std::string>& words, bool only_print) {
  const auto config = options.resolve();
  if (!config) return fail(config.error());
  const auto set = variables(options, *config);
  if (!set) return fail(set.error());
  if (only_print) return print_environment(*set);
  if (words.empty()) {
    tell("uroce: run needs a program: uroce run [options] -- PROGRAM [arguments]\n");
    return kUsageExit;
  }
  for (const Variable& variable : *set) setenv(variable.name.c_str(), variable.value.c_str(), 1);
  tell("uroce: {}\n", describe(*config));
  return become(words);
}

/// What follows the program, as it was typed: CLI11 would take a word in brackets for a list of several.
/// @return what follows `run` and is not the program's; empty: nothing.
std::vector<std::string> take_arguments(const CLI::App& command, std::vector<std::string>& words) {
  std::vector<std::string> left = command.remaining();
  // The first -- ended the options of `run`; behind it others are words as any, and so are numbers below 0.
  const auto mark = std::ranges::find(left, "--");
  const auto is_option = [](const std::string& word) {
    return word.size() > 1 && word.front() == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
  };
  if (std::any_of(left.begin(), mark, is_option)) return {left.begin(), mark};
  if (mark != left.end()) left.erase(mark);
  words.insert(words.end(), left.begin(), left.end());
  return {};
}

}  // namespace

void add_run(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand(
      "run", "run a program written for libibverbs: uroce run [options] -- PROGRAM [arguments]");
  command->footer(
      "The program finds uroce's libibverbs.so.1 through LD_LIBRARY_PATH, which the system ignores for\n"
      "programs with the set-user-ID bit or file capabilities. The mode is auto and hugepages are not used\n"
      "unless the configuration says otherwise.");
  Config defaults;  // as lib/abi/ibverbs has them
  defaults.mode = Mode::kAuto;
  defaults.no_huge = true;
  defaults.keepalive_ms = 10'000;
  const auto options = std::make_shared<SharedOptions>(*command, defaults);
  command->remove_option(command->get_option("--json"));  // what is printed is the program's
  const auto only_print = std::make_shared<bool>(false);
  command->add_flag("--env", *only_print, "only print the environment, for eval \"$(uroce run --env)\"");
  const auto name = std::make_shared<std::string>();
  command->add_option("PROGRAM", *name, "the program; its arguments follow")->type_name("...");
  command->allow_extras();
  command->callback([=, &exit_code] {
    std::vector<std::string> words;
    if (command->count("PROGRAM") > 0) words.push_back(*name);
    if (const auto unknown = take_arguments(*command, words); !unknown.empty())
      throw CLI::ExtrasError(unknown);
    exit_code = run(*options, words, *only_print);
  });
}

}  // namespace uroce::apps
