#include <charconv>

#include "uroce/cm_types.h"

namespace uroce {

std::string_view to_string(CmReject reason) noexcept {
  switch (reason) {
    case CmReject::kNone:
      return "not rejected";
    case CmReject::kNoQp:
      return "the peer has no QP left";
    case CmReject::kNoResources:
      return "the listener has as many requests waiting as it takes";
    case CmReject::kTimeout:
      return "the peer no longer waits";
    case CmReject::kUnsupported:
      return "the peer does not know this kind of request";
    case CmReject::kInvalidCommId:
      return "the peer does not know the connection";
    case CmReject::kInvalidServiceId:
      return "nobody listens on that port";
    case CmReject::kInvalidTransport:
      return "the peer does not offer this type of QP";
    case CmReject::kStaleConnection:
      return "the peer still has a connection with this QP";
    case CmReject::kInvalidGid:
      return "the peer does not take this address";
    case CmReject::kInvalidPathMtu:
      return "the peer does not take this path MTU";
    case CmReject::kConsumer:
      return "the application there refused";
  }
  return "refused for another reason";
}

std::string_view to_string(CmEventType type) noexcept {
  constexpr std::array<std::string_view, 9> kNames{
      "connect request", "connect reply", "established",     "rejected",      "unreachable",
      "disconnected",    "timewait exit", "service request", "service reply",
  };
  const auto index = static_cast<std::size_t>(type);
  return index < kNames.size() ? kNames[index] : "?";
}

std::optional<CmAddress> CmAddress::parse(std::string_view text) {
  CmAddress address;
  std::string_view host = text;
  std::string_view port;
  const bool in_brackets = text.starts_with('[');
  const auto colon = in_brackets ? text.find("]:") : text.find(':');
  const bool is_bare_v6 = !in_brackets && colon != text.npos && text.find(':', colon + 1) != text.npos;
  if (!is_bare_v6 && colon != text.npos) {
    host = text.substr(in_brackets ? 1 : 0, colon - (in_brackets ? 1 : 0));
    port = text.substr(colon + (in_brackets ? 2 : 1));
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc{} || end != port.data() + port.size()) return std::nullopt;
  } else if (in_brackets) {
    if (!text.ends_with(']')) return std::nullopt;
    host = text.substr(1, text.size() - 2);
  }
  if (host.empty()) return port.empty() || in_brackets ? std::nullopt : std::optional{address};
  const auto ip = Gid::parse(host);
  if (!ip.has_value()) return std::nullopt;
  address.ip = *ip;
  return address;
}

std::string to_string(const CmAddress& address) {
  std::string ip = to_string(address.ip);
  if (address.ip.is_v4()) {
    ip = ip.substr(ip.rfind(':') + 1);
  } else {
    ip = "[" + ip + "]";
  }
  return ip + ":" + std::to_string(address.port);
}

}  // namespace uroce
