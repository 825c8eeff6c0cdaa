#include "apps/common/exchange.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>
#include <random>

namespace uroce::apps {
namespace {

constexpr std::size_t kWireSize = sizeof "0000:000000:000000:00000000000000000000000000000000";
constexpr char kDone[] = "done";

std::optional<std::uint32_t> hex(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Gid> gid_from_hex(std::string_view text) {
  Gid gid;
  if (text.size() != 2 * gid.raw.size()) return std::nullopt;
  for (std::size_t i = 0; i < gid.raw.size(); ++i) {
    const auto value = hex(text.substr(2 * i, 2));
    if (!value) return std::nullopt;
    gid.raw[i] = static_cast<std::uint8_t>(*value);
  }
  return gid;
}

/// Cuts the text before the next ':' off the front.
std::string_view next_field(std::string_view& text) {
  const auto colon = std::min(text.find(':'), text.size());
  const auto field = text.substr(0, colon);
  text.remove_prefix(std::min(colon + 1, text.size()));
  return field;
}

}  // namespace

std::string to_wire(const QpAddress& address) {
  std::string text = fmt::format("{:04x}:{:06x}:{:06x}:", address.lid, raw(address.qpn), address.psn.value());
  for (const auto byte : address.gid.raw) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<QpAddress> from_wire(std::string_view text) {
  const auto lid = hex(next_field(text));
  const auto qpn = hex(next_field(text));
  const auto psn = hex(next_field(text));
  const auto gid = gid_from_hex(text);
  if (!lid || !qpn || !psn || !gid || *qpn > Psn::kMask || *psn > Psn::kMask) return std::nullopt;
  return QpAddress{.lid = *lid, .qpn = Qpn{*qpn}, .psn = Psn{*psn}, .gid = *gid};
}

std::string to_string(const QpAddress& address) {
  return fmt::format("LID 0x{:04x}, QPN 0x{:06x}, PSN 0x{:06x}, GID {}", address.lid, raw(address.qpn),
                     address.psn.value(), to_string(address.gid));
}

Status send_address(const Socket& socket, const QpAddress& address, std::uint64_t until_ns) {
  const auto text = to_wire(address);
  std::array<std::byte, kWireSize> message{};
  std::memcpy(message.data(), text.data(), std::min(text.size(), message.size() - 1));
  return tcp_send(socket, message, until_ns);
}

Result<QpAddress> receive_address(const Socket& socket, std::uint64_t until_ns, bool may_be_none) {
  std::array<std::byte, kWireSize> message{};
  if (auto got = tcp_receive(socket, message, until_ns); !got) return got.error();
  std::array<char, kWireSize> text{};
  std::memcpy(text.data(), message.data(), text.size() - 1);
  const auto address = from_wire(std::string_view(text.data()));
  if (!address)
    return Error{.code = Errc::kPeer, .text = "the peer sent no QP address: it speaks another protocol"};
  if (address->gid.is_zero() && !may_be_none) {
    return Error{.code = Errc::kPeer,
                 .text = "the peer sent no GID; start it with -g and the index of its address"};
  }
  return *address;
}

Status send_done(const Socket& socket, std::uint64_t until_ns) {
  return tcp_send(socket, std::as_bytes(std::span(kDone)), until_ns);
}

Status receive_done(const Socket& socket, std::uint64_t until_ns) {
  std::array<std::byte, sizeof kDone> message{};
  if (auto got = tcp_receive(socket, message, until_ns); !got) return got;
  if (std::memcmp(message.data(), kDone, sizeof kDone) == 0) return {};
  return Error{.code = Errc::kPeer, .text = "the peer did not confirm the connection"};
}

Psn random_psn() {
  return Psn{std::random_device{}()};
}

}  // namespace uroce::apps
