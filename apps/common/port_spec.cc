#include "apps/common/port_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/common/tell.h"

namespace uroce::apps {
namespace {

bool is_vhost_user(const std::string& spec) {
  return spec.starts_with("vhost:") || spec.starts_with("virtio_user:");
}

std::string without_options(const std::string& spec) {
  return spec.substr(0, spec.find(','));
}

}  // namespace

std::string port_spec_for_end(const std::string& spec, bool server) {
  const auto path = spec.find(':') + 1;
  if (is_vhost_user(spec)) return (server ? "vhost:" : "virtio_user:") + spec.substr(path);
  if (!spec.starts_with("memif:") || spec.find(",role=") != std::string::npos) return spec;
  return spec + (server ? ",role=server" : ",role=client");
}

bool makes_links(const std::string& spec) {
  return spec.starts_with("shm:") || spec.starts_with("memif:") || is_vhost_user(spec);
}

bool is_one_end(const std::string& spec) {
  constexpr std::array<const char*, 5> kInterfaces = {"af_packet:", "af_xdp:", "tap:", "pci:", "ring:"};
  return without_options(spec) != "af_packet:lo" &&
         std::ranges::any_of(kInterfaces, [&](const char* kind) { return spec.starts_with(kind); });
}

bool is_same_interface(const std::string& spec, const std::string& other) {
  return without_options(spec) == without_options(other);
}

Result<std::array<std::string, 2>> ends_of_link(const std::string& spec, const std::string& peer) {
  if (is_one_end(spec) && (peer.empty() || is_same_interface(peer, spec))) {
    return Error{.code = Errc::kInvalid,
                 .text = fmt::format("{} is one end of a link: name the other by --peer-port, e.g. "
                                     "af_packet:IFACE; or take a link with two ends: --port shm:NAME, "
                                     "memif:/PATH or vhost:/PATH",
                                     spec)};
  }
  if (!peer.empty()) return std::array{spec, peer};
  return std::array{port_spec_for_end(spec, false), port_spec_for_end(spec, true)};
}

std::string another_link(std::string spec, const std::string& suffix) {
  if (makes_links(spec)) spec.insert(std::min(spec.find(','), spec.size()), suffix);
  return spec;
}

Config without_addresses(Config config) {
  if (!config.ip.empty())
    tell(
        "uroce: note: both ends are opened here, each with an address of its own: --ip and UROCE_IP are left "
        "out\n");
  config.ip.clear();
  return config;
}

std::string capture_for_end(const std::string& file, const std::string& link, bool server) {
  return file.empty() ? file : file + "." + link + (server ? ".server" : ".client");
}

void tell_of_captures(const std::string& file) {
  if (file.empty()) return;
  tell("uroce: note: each end of each link has a capture: {} and {}\n", capture_for_end(file, "LINK", false),
       capture_for_end(file, "LINK", true));
}

}  // namespace uroce::apps
