#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "uroce/config.h"

using namespace uroce;
using Catch::Contains;
using Catch::StartsWith;

namespace {

/// A TOML file that lives as long as the object.
class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    char path[] = "/tmp/uroce-config-XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    ::close(fd);
    path_ = path;
    std::ofstream(path_) << text;
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { std::filesystem::remove(path_); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// An environment variable for the length of a test.
class EnvironmentVariable {
 public:
  EnvironmentVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;
  ~EnvironmentVariable() { ::unsetenv(name_.c_str()); }

 private:
  std::string name_;
};

/// What each key is tried with. Values are written as in the file.
struct Sample {
  std::string good;                   ///< a value other than the default
  std::string text;                   ///< the same as flag or environment text
  std::vector<std::string> mistyped;  ///< values of another type
  std::vector<std::string> refused;   ///< values of the right type that are not allowed
};

const std::map<std::string, Sample, std::less<>> kSamples = {
    {"port",
     {R"("memif:/run/x.sock,role=server")",
      "memif:/run/x.sock,role=server",
      {"1", "true", "[]"},
      {R"("")", R"("eth 0")", R"(":x")", R"("Shm:x")"}}},
    {"ip",
     {R"(["10.0.0.1/24", "fd00::1/64", "10.0.0.1/24@5"])",
      "10.0.0.1/24,fd00::1/64,10.0.0.1/24@5",
      {"1", "[1]", R"([""])", R"(["10.0.0.1/24,10.0.0.2/24"])"},
      {R"(["10.0.0.1"])",
       R"(["10.0.0.1/33"])",
       R"(["10.0.0.1/0"])",
       R"(["fd00::1/129"])",
       R"(["10.0.0/24"])",
       R"(["224.0.0.1/4"])",
       R"(["0.0.0.0/8"])",
       R"(["::/64"])",
       R"(["ff02::1/64"])",
       R"(["10.0.0.1/24", "10.0.0.1/24"])",
       R"(["10.0.0.1/24", "10.0.0.1/16"])",
       R"(["fd00::1/64", "FD00:0::1/64"])",
       R"(["::ffff:10.0.0.1/120"])",
       R"("10.0.0.1/24,")",
       R"(["10.0.0.1/24@"])",
       R"(["10.0.0.1/24@0"])",
       R"(["10.0.0.1/24@4095"])",
       R"(["10.0.0.1@5/24"])",
       R"(["10.0.0.1/24@5@6"])",
       R"(["10.0.0.1/24@-5"])",
       R"(["10.0.0.0/24"])",
       R"(["10.0.0.255/24@5"])",
       R"(["fd00::/64"])",
       R"(["127.0.0.1/8"])",
       R"(["::1/128"])"}}},
    {"roce-v1", {"true", "true", {"1", R"("true")"}, {}}},
    {"gateway",
     {R"("10.0.0.254")",
      "10.0.0.254",
      {"10", "[]"},
      {R"("10.0.0.254/24")", R"("router")", R"("255.255.255.255")"}}},
    {"mtu", {"4200", "4200", {R"("1500")", "1500.0", "true"}, {"351", "9601", "-1", "9223372036854775807"}}},
    {"mode", {R"("lcore")", "lcore", {"1", "true"}, {R"("")", R"("App")", R"("poll")"}}},
    {"lcores", {R"("2-5,8")", "2-5,8", {"2", "[2, 3]"}, {R"("0x3c")", R"("5-2")", R"("1,1")", R"("1024")"}}},
    {"no-huge", {"true", "true", {"1", R"("true")", R"("yes")"}, {}}},
    {"fault", {R"("loss=1%")", "loss=1%", {"1", "0.01"}, {}}},
    {"pcap", {R"("/tmp/x.pcap")", "/tmp/x.pcap", {"1", "false"}, {}}},
    {"counters", {R"("/tmp/counters")", "/tmp/counters", {"1", "false"}, {}}},
    {"seed", {"9223372036854775807", "9223372036854775807", {R"("1")", "1.5"}, {"-1"}}},
    {"max-qp", {"1", "1", {R"("1")", "1e3"}, {"0", "16777214", "-5"}}},
    {"max-unacked", {"4096", "4096", {R"("64")", "64.0"}, {"0", "4097"}}},
    {"hardened", {"100", "100", {R"("1")", "0.5"}, {"101", "-1"}}},
    {"probe-us", {"250", "250", {R"("1ms")", "0.5"}, {"1000001", "-1"}}},
    {"keepalive-ms", {"500", "500", {R"("1s")", "0.5"}, {"9", "60001"}}},
    {"keepalive-all", {"true", "true", {"1", R"("true")", R"("yes")"}, {}}},
    {"credits", {"true", "true", {"1", R"("true")", R"("yes")"}, {}}},
    {"selective-repeat", {"true", "true", {"1", R"("true")", R"("yes")"}, {}}},
    {"joint-acks", {"false", "false", {"0", R"("false")", R"("no")"}, {}}},
    {"congestion", {R"("dcqcn")", "dcqcn", {"1", "true"}, {R"("")", R"("DCQCN")", R"("timely")"}}},
    {"line-mbps", {"10000", "10000", {R"("10G")", "0.5"}, {"9", "1000001"}}},
    {"cnp-us", {"4", "4", {R"("1us")", "0.5"}, {"0", "1000001"}}},
    {"cnp-dscp", {"0", "0", {R"("cs6")", "0.5"}, {"64", "-1"}}},
    {"rnr-cap-ms", {"655", "655", {R"("1ms")", "0.5"}, {"656", "-1"}}},
    {"arp-timeout-ms", {"60000", "60000", {R"("1s")", "0.2"}, {"0", "60001"}}},
};

const Sample& sample_of(const ConfigKey& key) {
  const auto row = kSamples.find(key.name);
  REQUIRE(row != kSamples.end());
  return row->second;
}

/// All values as text, to compare.
std::vector<std::string> texts(const Config& config) {
  std::vector<std::string> all;
  for (const auto& key : config_keys()) all.push_back(key.get(config));
  return all;
}

std::string error_of(const Result<Config>& result) {
  REQUIRE_FALSE(result);
  CHECK(result.error().code == Errc::kConfig);
  CHECK(result.error().text.find('\n') == std::string::npos);
  return result.error().text;
}

}  // namespace

TEST_CASE("every field of Config has a key, and every key a sample in these tests", "[config]") {
  // Twenty-seven names: a field that is added fails to compile here until it gets its key.
  [[maybe_unused]] const auto& [port, ip, gateway, roce_v1, mtu, mode, lcores, no_huge, fault, pcap, counters,
                                seed, max_qp, max_unacked, arp, hardened, probe, keepalive, all, rnr_cap,
                                credits, selective, joint, congestion, line, cnp_gap, cnp_dscp] = Config{};
  CHECK(config_keys().size() == 27);
  CHECK(kSamples.size() == config_keys().size());
  std::set<std::string_view> names;
  for (const auto& key : config_keys()) {
    CAPTURE(key.name);
    CHECK(names.insert(key.name).second);
    CHECK_FALSE(key.help.empty());
    CHECK_FALSE(key.allowed.empty());
    CHECK_FALSE(key.metavar.empty());
    CHECK(key.is_flag == (key.type == ConfigType::kBoolean));
  }
}

TEST_CASE("the documented file names every key and holds the defaults", "[config][file]") {
  const std::string path = CONFIG_DIR "/uroce.toml";
  const auto loaded = load_config_file(path);
  REQUIRE(loaded);
  CHECK(texts(*loaded) == texts(Config{}));

  // Loaded over values that all differ from the defaults, it must set each of them back.
  Config other;
  for (const auto& key : config_keys()) REQUIRE(key.set(other, sample_of(key).text));
  const auto reset = load_config_file(path, other);
  REQUIRE(reset);
  CHECK(texts(*reset) == texts(Config{}));
}

TEST_CASE("the profiles load", "[config][file]") {
  const auto name = GENERATE(as<std::string>{}, "latency", "throughput", "ci");
  const auto loaded = load_config_file(CONFIG_DIR "/profiles/" + name + ".toml");
  CAPTURE(name);
  REQUIRE(loaded);
}

TEST_CASE("each key is read from file, environment and text alike", "[config]") {
  for (const auto& key : config_keys()) {
    const auto& sample = sample_of(key);
    CAPTURE(key.name);

    const TempFile file(std::string(key.name) + " = " + sample.good + "\n");
    const auto from_file = load_config_file(file.path());
    REQUIRE(from_file);
    CHECK(key.get(*from_file) == sample.text);
    CHECK(key.get(*from_file) != key.get(Config{}));

    const EnvironmentVariable variable(environment_name(key), sample.text);
    const auto from_environment = apply_environment({});
    REQUIRE(from_environment);
    CHECK(texts(*from_environment) == texts(*from_file));
    CHECK(check_config(*from_file));
  }
}

TEST_CASE("a key that the file leaves out keeps its value", "[config][file]") {
  for (const auto& key : config_keys()) {
    Config base;
    REQUIRE(key.set(base, sample_of(key).text));
    const TempFile file("# nothing\n");
    const auto loaded = load_config_file(file.path(), base);
    CAPTURE(key.name);
    REQUIRE(loaded);
    CHECK(texts(*loaded) == texts(base));
  }
}

TEST_CASE("a key without a value is an error with file, line and key", "[config][file]") {
  for (const auto& key : config_keys()) {
    const TempFile file("\n" + std::string(key.name) + " =\n");
    const auto text = error_of(load_config_file(file.path()));
    CHECK_THAT(text, StartsWith(file.path() + ":2: " + std::string(key.name) + ": "));
  }
}

TEST_CASE("a value of the wrong type is an error with file, line, key and what is allowed",
          "[config][file]") {
  for (const auto& key : config_keys()) {
    for (const auto& value : sample_of(key).mistyped) {
      CAPTURE(key.name, value);
      const TempFile file("# a line\n\n" + std::string(key.name) + " = " + value + "\n");
      const auto text = error_of(load_config_file(file.path()));
      CHECK_THAT(text, StartsWith(file.path() + ":3: " + std::string(key.name) + ": is "));
      CHECK_THAT(text, Contains("allowed " + std::string(key.allowed)));
    }
  }
}

TEST_CASE("a value out of range is an error with file, line, key and what is allowed", "[config][file]") {
  for (const auto& key : config_keys()) {
    for (const auto& value : sample_of(key).refused) {
      CAPTURE(key.name, value);
      const TempFile file(std::string(key.name) + " = " + value + "\n");
      const auto text = error_of(load_config_file(file.path()));
      CHECK_THAT(text, StartsWith(file.path() + ":1: " + std::string(key.name) + ": "));
      CHECK_THAT(text, Contains("allowed "));
    }
  }
}

TEST_CASE("an unknown key is an error that lists the known ones", "[config][file]") {
  const TempFile file("mtu = 1500\nno_huge = true\n");
  const auto text = error_of(load_config_file(file.path()));
  CHECK_THAT(text, StartsWith(file.path() + ":2: no_huge: unknown key, did you mean no-huge?"));
  for (const auto& key : config_keys()) CHECK_THAT(text, Contains(std::string(key.name)));

  const TempFile table("[engine]\nmtu = 1500\n");
  CHECK_THAT(error_of(load_config_file(table.path())), StartsWith(table.path() + ":1: engine: unknown key;"));
}

TEST_CASE("what is wrong is told in one line, whatever the file holds", "[config][file]") {
  for (const auto* text : {"no-huge = fals\nmtu = 0\n", "port = \"eth\\n0\"\n", "\"a\\nb\" = 1\n",
                           "ip = [\"10.0.0.1\\n/24\"]\n"}) {
    const TempFile file(text);
    const auto said = error_of(load_config_file(file.path()));
    CHECK_THAT(said, StartsWith(file.path() + ":1: "));
    CHECK(std::ranges::none_of(said, [](unsigned char c) { return c < ' '; }));
  }
}

TEST_CASE("a key given twice is an error with file and line", "[config][file]") {
  const TempFile file("mtu = 1500\nmtu = 9000\n");
  CHECK_THAT(error_of(load_config_file(file.path())), StartsWith(file.path() + ":2: mtu: "));
}

TEST_CASE("a file that cannot be read is named, with the reason", "[config][file]") {
  const auto missing = load_config_file("/nonexistent/uroce.toml");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == Errc::kNotFound);
  CHECK_THAT(missing.error().text, Contains("/nonexistent/uroce.toml: cannot be read: No such file"));

  const auto folder = load_config_file("/");
  REQUIRE_FALSE(folder);
  CHECK(folder.error().code == Errc::kNotFound);
}

TEST_CASE("an empty file changes nothing", "[config][file]") {
  const TempFile file("");
  const auto loaded = load_config_file(file.path());
  REQUIRE(loaded);
  CHECK(texts(*loaded) == texts(Config{}));
}

TEST_CASE("the environment wins over the file", "[config][environment]") {
  const TempFile file("mtu = 1500\nmode = \"lcore\"\n");
  const EnvironmentVariable variable("UROCE_MTU", "4200");
  const auto config = load_config_file(file.path()).and_then(apply_environment);
  REQUIRE(config);
  CHECK(config->mtu == 4200);
  CHECK(config->mode == Mode::kLcore);
}

TEST_CASE("a program's configuration is that of the environment over the file over its own",
          "[config][file][environment]") {
  Config own;
  own.mtu = 1400;
  own.max_qp = 77;
  own.mode = Mode::kAuto;
  const EnvironmentVariable variable("UROCE_MTU", "4200");
  const auto alone = load_config(own);
  REQUIRE(alone);
  CHECK(alone->mtu == 4200);
  CHECK(alone->max_qp == 77);

  const TempFile file("mtu = 1500\nmax-qp = 99\n");
  const TempFile other("mtu = 1500\nmax-qp = 88\n");
  const EnvironmentVariable named("UROCE_CONFIG", file.path());
  const auto loaded = load_config(own);
  REQUIRE(loaded);
  CHECK(loaded->mtu == 4200);
  CHECK(loaded->max_qp == 99);
  CHECK(loaded->mode == Mode::kAuto);
  const auto asked_for = load_config(own, other.path());
  REQUIRE(asked_for);
  CHECK(asked_for->max_qp == 88);
}

TEST_CASE("a program's configuration fails as its file and its environment do",
          "[config][file][environment]") {
  {
    const EnvironmentVariable named("UROCE_CONFIG", "/no-such-folder/x.toml");
    const auto missing = load_config();
    REQUIRE_FALSE(missing);
    CHECK(missing.error().code == Errc::kNotFound);
    CHECK_THAT(missing.error().text, Contains("/no-such-folder/x.toml"));
  }
  const TempFile file("mtus = 1500\n");
  const EnvironmentVariable named("UROCE_CONFIG", file.path());
  CHECK_THAT(error_of(load_config()), Contains("mtus"));
  const EnvironmentVariable none("UROCE_CONFIG", "");
  CHECK(load_config());
  const EnvironmentVariable variable("UROCE_MTU", "15x0");
  CHECK_THAT(error_of(load_config()), StartsWith("environment: UROCE_MTU"));
}

TEST_CASE("a wrong value in the environment is an error that names the variable", "[config][environment]") {
  const EnvironmentVariable variable("UROCE_MTU", "15x0");
  CHECK_THAT(error_of(apply_environment({})),
             StartsWith("environment: UROCE_MTU: mtu: '15x0' is not a whole number; allowed 0 or 352..9600"));
}

TEST_CASE("an unknown variable is an error, those of programs are left alone", "[config][environment]") {
  const EnvironmentVariable file("UROCE_CONFIG", "x.toml");
  const EnvironmentVariable seed("UROCE_TEST_SEED", "1");
  const EnvironmentVariable folder("UROCE_RUNTIME_DIR", "/run");
  CHECK(apply_environment({}));

  const auto name = GENERATE(as<std::string>{}, "UROCE_MTUS", "UROCE_no_huge", "UROCE_");
  const EnvironmentVariable variable(name, "1");
  CHECK_THAT(error_of(apply_environment({})), StartsWith("environment: " + name + ": unknown key"));
}

TEST_CASE("numbers as text take digits alone", "[config]") {
  const auto text = GENERATE(as<std::string>{}, "", " 1500", "1500 ", "+1500", "0x5dc", "1500.0", "1_500",
                             "-", "99999999999999999999999", "18446744073709551616");
  CAPTURE(text);
  const auto keys = config_keys();
  const auto mtu = std::ranges::find(keys, "mtu", &ConfigKey::name);
  Config config;
  const auto status = mtu->set(config, text);
  REQUIRE_FALSE(status);
  CHECK(status.error().code == Errc::kConfig);
  CHECK(config.mtu == 0);
}

TEST_CASE("a boolean as text takes what people write", "[config]") {
  const auto keys = config_keys();
  const auto no_huge = std::ranges::find(keys, "no-huge", &ConfigKey::name);
  Config config;
  for (const auto* text : {"true", "1", "yes", "on"}) {
    config.no_huge = false;
    REQUIRE(no_huge->set(config, text));
    CHECK(config.no_huge);
  }
  for (const auto* text : {"false", "0", "no", "off"}) {
    config.no_huge = true;
    REQUIRE(no_huge->set(config, text));
    CHECK_FALSE(config.no_huge);
  }
  for (const auto* text : {"", "True", "2", "y", "enabled"}) CHECK_FALSE(no_huge->set(config, text));
}

TEST_CASE("a Config filled in by hand is checked by the same rules", "[config]") {
  Config config;
  CHECK(check_config(config));
  config.max_unacked = 0;
  const auto status = check_config(config);
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().text, StartsWith("max-unacked: '0' is out of range; allowed 1..4096"));

  config = {};
  config.mode = static_cast<Mode>(9);
  CHECK_FALSE(check_config(config));
}
