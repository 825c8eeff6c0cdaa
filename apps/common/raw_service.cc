#include "apps/common/raw_service.h"

#include <isa-l/crc.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <string>

namespace uroce::apps {
namespace {

constexpr std::uint32_t kMagic = 0x7572'6f63;              // "uroc"
constexpr std::uint32_t kOverhead = 14 + 20 + 8 + 12 + 4;  // Ethernet, IPv4, UDP, BTH, ICRC around a SEND
constexpr std::uint32_t kReth = 16;
constexpr std::uint16_t kRocePort = 4791;
constexpr std::uint16_t kUdpSource = 0xc000;
constexpr std::uint32_t kCrcBytes = 4;
constexpr unsigned kBurst = 32;
constexpr std::uint64_t kRepeatNs = 20 * kMillisecond;  // a frame without echo was lost

#if defined(__x86_64__)
/// ISA-L leaves the upper halves of vector registers in use, which slows down all that follows it.
[[gnu::target("avx")]] void clear_upper_halves() noexcept {
  __builtin_ia32_vzeroupper();
}
const bool kHasUpperHalves = __builtin_cpu_supports("avx") != 0;
#else
void clear_upper_halves() noexcept {}
constexpr bool kHasUpperHalves = false;
#endif

std::uint32_t crc_of(std::span<const std::byte> data) noexcept {
  // The library reads only; its argument is not const for historical reasons in some versions.
  const std::uint32_t crc = crc32_gzip_refl(
      0, static_cast<const unsigned char*>(static_cast<const void*>(data.data())), data.size());
  if (kHasUpperHalves) clear_upper_halves();
  return crc;
}

/// Link-local, one for each Ethernet address of two ends. RFC 3927.
std::array<std::uint8_t, 4> address_of(const MacAddress& mac) noexcept {
  return {169, 254, static_cast<std::uint8_t>(mac.raw[4] % 254 + 1), mac.raw[5]};
}

std::uint16_t checksum_of(const iphdr& ip) noexcept {
  std::uint32_t sum = 0;
  for (const std::uint16_t word : std::bit_cast<std::array<std::uint16_t, 10>>(ip)) sum += word;
  sum = (sum >> 16) + (sum & 0xffff);
  return static_cast<std::uint16_t>(~((sum >> 16) + sum));
}

/// Frame that carries `payload` bytes as uroce would, at least the shortest Ethernet allows.
std::uint32_t frame_bytes(std::uint32_t payload, bool is_write) noexcept {
  return std::max(60U, payload + kOverhead + (is_write ? kReth : 0));
}

}  // namespace

RawService::RawService(Config config, bool give_way, std::uint32_t largest_write)
    : config_(std::move(config)),
      give_way_(give_way),
      half_(std::max(Sample::kHotWindow, largest_write)),
      memory_(pages(2 * half_)) {}

/// All of them present; large where the system has them, as uroce's are.
RawService::ApplicationPages RawService::pages(std::size_t bytes) {
  constexpr std::size_t kLargePage = 2U << 20U;
  const std::size_t size = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  void* const memory = std::aligned_alloc(kLargePage, size);
  if (memory == nullptr) throw std::bad_alloc();
  ::madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 0x5a, size);
  return ApplicationPages(static_cast<std::byte*>(memory));
}

Result<Json> RawService::handle(const Json& request) {
  const auto op = request.value("op", "");
  if (op == "open") return open();
  if (!port_) return Error{.code = Errc::kBadState, .text = "the port is not open"};
  if (op == "connect") {
    const auto peer = MacAddress::parse(request.at("peer").at("mac").get<std::string>());
    if (!peer) return Error{.code = Errc::kPeer, .text = "the other process sent no MAC address"};
    peer_ = *peer;
    return Json::object();
  }
  const Sample sample = Sample::from(request);
  used_ = sample.is_cold() ? half_ : Sample::kHotWindow;
  send_at_ = receive_at_ = 0;
  const bool client = request.at("client").get<bool>();
  if (sample.kind == Kind::kRtt) return client ? rtt_client(sample) : rtt_server(sample);
  return client ? flood_client(sample) : flood_server(sample);
}

Result<Json> RawService::open() {
  auto port = RawPort::open(config_);
  if (!port) return port.error();
  port_.emplace(std::move(*port));
  own_ = port_->mac();
  const Gid gid = Gid::from_v4(address_of(own_));
  port_->keep_from_kernel({&gid, 1});
  return Json{{"mac", to_string(own_)}};
}

void RawService::address(std::uint32_t length) noexcept {
  ether_header ethernet{};
  std::ranges::copy(peer_.raw, ethernet.ether_dhost);
  std::ranges::copy(own_.raw, ethernet.ether_shost);
  ethernet.ether_type = htons(ETHERTYPE_IP);
  iphdr ip{};
  ip.version = 4;
  ip.ihl = sizeof ip / 4;
  ip.tot_len = htons(static_cast<std::uint16_t>(length - kIpAt));
  ip.frag_off = htons(IP_DF);
  ip.ttl = 64;
  ip.protocol = IPPROTO_UDP;
  ip.saddr = std::bit_cast<std::uint32_t>(address_of(own_));
  ip.daddr = std::bit_cast<std::uint32_t>(address_of(peer_));
  ip.check = checksum_of(ip);
  udphdr udp{};
  udp.source = htons(kUdpSource);
  udp.dest = htons(kRocePort);
  udp.len = htons(static_cast<std::uint16_t>(length - kIpAt - sizeof ip));
  std::memcpy(headers_.data(), &ethernet, sizeof ethernet);
  std::memcpy(headers_.data() + kIpAt, &ip, sizeof ip);
  std::memcpy(headers_.data() + kIpAt + sizeof ip, &udp, sizeof udp);
}

bool RawService::send(const Sample& sample, std::uint32_t length, std::uint32_t number) noexcept {
  std::byte* frame = port_->claim(length);
  if (frame == nullptr) return false;
  const Tag tag{.magic = kMagic, .sample = sample.id, .number = number};
  std::memcpy(frame, headers_.data(), headers_.size());
  std::memcpy(frame + kTagAt, &tag, sizeof tag);
  const std::size_t payload = length - kPayloadAt;
  if (sample.style == Style::kRef) {
    if (send_at_ + payload > used_) send_at_ = 0;
    std::memcpy(frame + kPayloadAt, memory_.get() + send_at_, payload - kCrcBytes);
    send_at_ += (payload + 63) / 64 * 64;
    const std::uint32_t crc = crc_of({frame + kIpAt, length - kIpAt - kCrcBytes});
    std::memcpy(frame + length - kCrcBytes, &crc, sizeof crc);
  } else {
    std::memset(frame + kPayloadAt, 0x5a, payload);
  }
  port_->commit();
  return true;
}

std::optional<RawService::Tag> RawService::take(const Sample& sample,
                                                std::span<const std::byte> frame) noexcept {
  Tag tag;
  if (frame.size() < kPayloadAt + kCrcBytes) return std::nullopt;
  std::memcpy(&tag, frame.data() + kTagAt, sizeof tag);
  if (tag.magic != kMagic || tag.sample != sample.id) return std::nullopt;
  if (sample.style != Style::kRef) return tag;
  std::uint32_t crc = 0;
  std::memcpy(&crc, frame.data() + frame.size() - kCrcBytes, sizeof crc);
  if (crc != crc_of(frame.subspan(kIpAt, frame.size() - kIpAt - kCrcBytes))) {
    ++crc_errors_;
    return std::nullopt;
  }
  const std::size_t payload = frame.size() - kPayloadAt - kCrcBytes;
  if (receive_at_ + payload > used_) receive_at_ = 0;
  std::memcpy(memory_.get() + half_ + receive_at_, frame.data() + kPayloadAt, payload);
  receive_at_ += (payload + 63) / 64 * 64;
  return tag;
}

void RawService::give_way() const noexcept {
  if (give_way_) ::sched_yield();
}

Result<Json> RawService::rtt_client(const Sample& sample) {
  Histogram ticks;
  const std::uint32_t length = frame_bytes(sample.bytes, false);
  address(length);
  const std::uint64_t start = clock_.ticks();
  const std::uint64_t warm = start + clock_.from_ns(sample.warm_up_ns());
  const std::uint64_t end = start + clock_.from_ns(sample.run_ns);
  const std::uint64_t at_last = start + clock_.from_ns(sample.patience_ns());
  const std::uint64_t repeat = clock_.from_ns(kRepeatNs);
  std::uint64_t begin = start;
  for (std::uint32_t number = 0; begin < end || (ticks.count() < Sample::kEnough && begin < at_last);
       ++number) {
    begin = clock_.ticks();
    std::uint64_t now = begin;
    bool echoed = false;
    if (send(sample, length, number)) port_->flush();
    while (!echoed && now - begin < repeat) {
      const unsigned frames = port_->receive([&](std::span<const std::byte> frame) {
        const auto tag = take(sample, frame);
        echoed = echoed || (tag && tag->number == number);
      });
      if (frames == 0) give_way();
      now = clock_.ticks();
    }
    if (echoed && begin >= warm) ticks.add(now - begin);
  }
  for (int i = 0; i < 8 && !send(sample, length, kLastNumber); ++i) port_->flush();
  port_->flush();
  if (ticks.count() == 0) return Error{.code = Errc::kTimeout, .text = "the bare link carried no frame"};
  return rtt_result(ticks, clock_);
}

Result<Json> RawService::rtt_server(const Sample& sample) {
  const std::uint32_t length = frame_bytes(sample.bytes, false);
  address(length);
  const std::uint64_t end = now_ns() + sample.patience_ns() + kSecond / 2;  // should the last frame be lost
  bool ended = false;
  for (std::uint32_t polls = 1; !ended; ++polls) {
    const unsigned frames = port_->receive([&](std::span<const std::byte> frame) {
      const auto tag = take(sample, frame);
      if (!tag) return;
      ended = ended || tag->number == kLastNumber;
      if (!ended) (void)send(sample, length, tag->number);
    });
    if (frames > 0) {
      port_->flush();
    } else {
      give_way();
      if (polls % 1024 == 0 && now_ns() >= end) break;
    }
  }
  return Json::object();
}

Result<Json> RawService::flood_client(const Sample& sample) {
  const bool stream = sample.kind == Kind::kStream;
  const std::uint32_t length = frame_bytes(stream ? sample.frame_payload : sample.bytes, stream);
  address(length);
  const std::uint64_t end = clock_.ticks() + clock_.from_ns(sample.run_ns + 20 * kMillisecond);
  std::uint32_t number = 0;
  while (clock_.ticks() < end) {
    const std::uint32_t before = number;
    for (unsigned i = 0; i < kBurst && send(sample, length, number); ++i) ++number;
    port_->flush();
    (void)port_->receive([](std::span<const std::byte>) {});  // some drivers reclaim transmit room there
    if (number == before) give_way();
  }
  return Json::object();
}

Result<Json> RawService::flood_server(const Sample& sample) {
  const std::uint64_t units = sample.kind == Kind::kStream ? sample.frame_payload : 1;
  // Windows as long as what they are compared with: uroce counts whole transfers.
  RateMeter meter((sample.is_cold() ? 20 : 1) * kMillisecond, sample.warm_up_ns());
  const std::uint64_t end = now_ns() + sample.run_ns;
  std::uint64_t now = now_ns();
  for (std::uint32_t polls = 1; now < end; ++polls) {
    std::uint64_t frames = 0;
    (void)port_->receive([&](std::span<const std::byte> frame) { frames += take(sample, frame) ? 1 : 0; });
    if (frames == 0) give_way();
    if (frames == 0 && polls % 64 != 0) continue;
    now = now_ns();
    if (frames > 0) meter.add(frames * units, now);
  }
  return rate_result(meter);
}

}  // namespace uroce::apps
