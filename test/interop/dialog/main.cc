/// One side of an interoperability dialog; see test/interop/README.md.
///
///   dialog [--connect HOST] [--tcp PORT] [--mtu N] [--gid I] [--psn N] [--seed N] ... active SPEC... |
///   passive
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "session.h"

namespace uroce::interop {
namespace {

struct Arguments {
  Options options;
  std::vector<std::string> words;
};

Arguments parse(int argc, char** argv) {
  Arguments found;
  int at = 1;
  for (; at + 1 < argc && std::strncmp(argv[at], "--", 2) == 0; at += 2) {
    std::string& value = found.options[argv[at] + 2];
    if (!value.empty()) value += ',';
    value += argv[at + 1];
  }
  found.words.assign(argv + at, argv + argc);
  return found;
}

unsigned long number(const Options& options, const std::string& name, unsigned long otherwise) {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : std::stoul(found->second, nullptr, 0);
}

std::string text(const Options& options, const std::string& name, const std::string& otherwise) {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : found->second;
}

LinkAttr link_attr(const Options& options) {
  const auto byte = [&](const char* name, std::uint8_t otherwise) {
    return static_cast<std::uint8_t>(number(options, name, otherwise));
  };
  LinkAttr attr;
  attr.mtu = static_cast<std::uint32_t>(number(options, "mtu", attr.mtu));
  attr.gid_index = byte("gid", attr.gid_index);
  attr.timeout = byte("timeout", attr.timeout);
  attr.retry_cnt = byte("retry", attr.retry_cnt);
  attr.rnr_retry = byte("rnr-retry", attr.rnr_retry);
  attr.min_rnr_timer = byte("rnr-timer", attr.min_rnr_timer);
  attr.rd_atomic = byte("rd-atomic", attr.rd_atomic);
  return attr;
}

int run(const Arguments& arguments) {
  const Options& options = arguments.options;
  const bool active = !arguments.words.empty() && arguments.words[0] == "active";
  if (!active && arguments.words != std::vector<std::string>{"passive"}) {
    std::fprintf(stderr, "usage: dialog [--OPTION VALUE]... active SPEC... | passive\n");
    return 2;
  }
  const LinkAttr attr = link_attr(options);
  const auto endpoint = make_endpoint(options, attr, static_cast<std::uint32_t>(number(options, "psn", 0)));
  Lines lines(text(options, "connect", ""), text(options, "tcp", "18600"));
  Session session(*endpoint, lines);
  int code = 0;
  try {
    session.connect(attr);
    if (active) {
      session.run_active({arguments.words.begin() + 1, arguments.words.end()}, number(options, "seed", 1));
    } else {
      session.run_passive();
    }
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "dialog, %s side: %s\n", arguments.words[0].c_str(), fault.what());
    code = 1;
  }
  if (options.contains("counters")) std::printf("%s", endpoint->counters().c_str());
  return code;
}

}  // namespace
}  // namespace uroce::interop

int main(int argc, char** argv) {
  try {
    return uroce::interop::run(uroce::interop::parse(argc, argv));
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "dialog: %s\n", fault.what());
    return 1;
  }
}
