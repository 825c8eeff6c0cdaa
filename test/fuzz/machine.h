/// An endpoint that is fed from a string of bytes: what peers, applications and time may do to it in any
/// order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/poll_loop.h"
#include "transport/rc_qp.h"
#include "wire/frame_template.h"

namespace uroce::fuzz {

/// Aborts in every build, unlike assert.
void require(bool holds, const char* what);

/// Reads choices from a string of bytes; zeros when it is used up.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool is_empty() const noexcept { return bytes_.empty(); }
  std::uint32_t byte() noexcept {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint32_t word() noexcept {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return value;
  }
  std::uint32_t below(std::uint32_t bound) noexcept { return byte() % bound; }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// Takes frames from the machine's driver and keeps none of what is sent.
class FuzzPort final : public port::Port {
 public:
  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override;
  void rx_release() noexcept override { shown_.clear(); }
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override;
  /// Every packet that leaves is well-formed.
  void tx_commit() noexcept override;
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  void arrive(std::vector<std::byte> frame) { arrived_.push_back(std::move(frame)); }

  bool has_room = true;
  std::uint64_t sent = 0;
  std::optional<wire::Bth> last;  ///< of what was sent

 private:
  port::PortInfo info_{.name = "fuzz", .mac = {{2, 0, 0, 0, 0, 1}}, .link_mtu = 4200};
  std::vector<std::vector<std::byte>> arrived_;
  std::vector<std::vector<std::byte>> shown_;
  std::vector<std::byte> claimed_;
};

/// One loop, one QP, some memory regions, and guards around each.
///
/// For one run(): the same input does the same.
class Machine {
 public:
  Machine();
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Does what `input` says. Aborts if a promise is broken.
  void run(std::span<const std::uint8_t> input);
  /// Packets that arrived, and requests among them that were executed.
  [[nodiscard]] std::uint64_t packets() const noexcept { return packets_; }
  [[nodiscard]] std::uint64_t executed() noexcept { return loop_.counters().get(Count::kResponderPackets); }
  /// CNPs that left, and those that slowed the QP down.
  [[nodiscard]] std::uint64_t cnps_sent() noexcept { return loop_.counters().get(Count::kCnpsSent); }
  [[nodiscard]] std::uint64_t cnps_handled() noexcept { return loop_.counters().get(Count::kCnpsHandled); }

 private:
  struct Area {
    std::size_t at = 0;  // in memory_
    std::size_t len = 0;
    bool may_change = false;
    std::uint32_t key = 0;
  };

  void map_memory();
  void add_area(std::size_t len, std::uint32_t pd, std::uint32_t access, bool may_change);
  void connect();
  [[nodiscard]] transport::QpBounds bounds() const noexcept;
  void settle(std::uint64_t ns);

  // Steps.
  void step(Choices& choices);
  void receive(Choices& choices);
  void receive_raw(Choices& choices);
  void post_send(Choices& choices);
  void post_recv(Choices& choices);
  void pass_time(Choices& choices);
  void modify(Choices& choices);
  void poll(std::size_t most);

  // Parts of packets and work requests.
  [[nodiscard]] Psn choose_psn(Choices& choices, bool response);
  [[nodiscard]] std::uint32_t choose_len(Choices& choices);
  [[nodiscard]] std::uint32_t choose_key(Choices& choices);
  [[nodiscard]] std::uint64_t choose_va(Choices& choices);
  [[nodiscard]] std::uint8_t choose_opcode(Choices& choices);
  [[nodiscard]] std::uint32_t choose_payload(const wire::OpcodeInfo& op, Choices& choices);
  std::byte* emit_extensions(std::byte* at, const wire::OpcodeInfo& op, std::uint32_t payload,
                             Choices& choices);
  [[nodiscard]] std::vector<std::byte> make_frame(Choices& choices);

  // Promises.
  void check_memory() const;
  void check_ping_pong();

  std::byte* memory_ = nullptr;
  std::size_t mapped_ = 0;
  std::vector<std::byte> pristine_;
  std::vector<Area> areas_;
  mem::KeyTable keys_;
  std::array<std::uint32_t, 2> windows_{};  // of type 1 and 2B
  FuzzPort port_;
  engine::Addresses addresses_;  // made from the port's address
  engine::PollLoop loop_;
  transport::CqRing cq_;
  transport::RcQp qp_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t packets_ = 0;
  std::uint32_t hardened_ = 0;
  bool peer_known_ = false;
  bool controls_rate_ = false;
  wire::Opcode last_in_{};        // of the last packet that was made
  std::uint32_t write_left_ = 0;  // bytes of its WRITE that are still to come
};

}  // namespace uroce::fuzz
