// uroce_cm_peer PROGRAM [OPTION VALUE]...: plays one side of ucmatose, cmtime, udaddy or mckey.
//
// Prints "ready" when the other side may start, and at the end how many ids the manager still holds once
// timewait is over; with --counters 1 also the device's counters. Reads UROCE_* variables.
#include <cstdio>
#include <exception>
#include <functional>
#include <sstream>
#include <thread>

#include "peer.h"

namespace uroce::interop {
namespace {

using Words = std::map<std::string, std::string>;

Words words_of(int argc, char** argv) {
  Words words;
  for (int i = 2; i + 1 < argc; i += 2) words[argv[i]] = argv[i + 1];
  return words;
}

Config config_from(const Words& words) {
  Config config = need(apply_environment({}));
  config.port = words.at("--port");
  std::istringstream addresses(words.at("--ip"));
  for (std::string address; std::getline(addresses, address, ',');) config.ip.push_back(address);
  config.mode = Mode::kAuto;
  config.no_huge = true;
  return config;
}

Options options_from(const Words& words) {
  Options options;
  const auto number = [&](const char* name, auto& value) {
    const auto found = words.find(name);
    if (found == words.end()) return;
    value = static_cast<std::remove_reference_t<decltype(value)>>(std::stoul(found->second));
  };
  number("--listen", options.port);
  number("--connections", options.connections);
  number("--messages", options.messages);
  number("--bytes", options.bytes);
  number("--rounds", options.rounds);
  number("--sender", options.sender);
  number("--ends-first", options.ends_first);
  if (const auto to = words.find("--to"); to != words.end()) {
    const auto address = CmAddress::parse(to->second);
    need_true(address.has_value(), "no address: " + to->second);
    options.to = *address;
  }
  return options;
}

/// Ids in timewait go by themselves.
std::size_t ids_left(const Cm& cm) {
  const auto end = std::chrono::steady_clock::now() + 5s;
  while (cm.ids() > 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(10ms);
  return cm.ids();
}

void run(const std::string& program, const Words& words) {
  const std::map<std::string, std::function<void(Port&, const Options&)>> programs = {
      {"cmatose", run_cmatose}, {"cmtime", run_cmtime}, {"udaddy", run_udaddy}, {"mckey", run_mckey}};
  Device device = need(Device::open(config_from(words)));
  Cm cm = need(Cm::open(device));
  Pd pd = need(Pd::create(device));
  CmChannel channel = need(CmChannel::create(cm));
  Port port{device, cm, pd, channel};
  programs.at(program)(port, options_from(words));
  std::printf("%zu ids left\n", ids_left(cm));
  if (!words.contains("--counters")) return;
  for (const Counter& counter : device.counters())
    std::printf("%s %llu\n", counter.name.c_str(), static_cast<unsigned long long>(counter.value));
}

}  // namespace
}  // namespace uroce::interop

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("which program?");
    uroce::interop::run(argv[1], uroce::interop::words_of(argc, argv));
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "cm_peer: %s\n", failure.what());
    return 1;
  }
}
