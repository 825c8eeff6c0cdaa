#include "apps/common/port_spec.h"

#include <algorithm>

namespace uroce::apps {
namespace {

bool is_vhost_user(const std::string& spec) {
  return spec.starts_with("vhost:") || spec.starts_with("virtio_user:");
}

}  // namespace

std::string port_spec_for_end(const std::string& spec, bool server) {
  const auto path = spec.find(':') + 1;
  if (is_vhost_user(spec)) return (server ? "vhost:" : "virtio_user:") + spec.substr(path);
  if (!spec.starts_with("memif:") || spec.find(",role=") != std::string::npos) return spec;
  return spec + (server ? ",role=server" : ",role=client");
}

std::string another_link(std::string spec, const std::string& suffix) {
  const bool is_named = spec.starts_with("shm:") || spec.starts_with("memif:") || is_vhost_user(spec);
  if (is_named) spec.insert(std::min(spec.find(','), spec.size()), suffix);
  return spec;
}

std::string capture_for_end(const std::string& file, const std::string& link, bool server) {
  return file.empty() ? file : file + "." + link + (server ? ".server" : ".client");
}

}  // namespace uroce::apps
