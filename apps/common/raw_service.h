/// Worker service: the bare link below uroce, as a yardstick.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "apps/common/sample.h"
#include "uroce/config.h"
#include "uroce/raw_port.h"

namespace uroce::apps {

/// Sends frames of the size and kind that uroce's would have, UDP to the port of RoCE over IPv4: the kernel,
/// where it carries them, looks at what they are. Style kRaw: the sender writes the payload, the receiver
/// looks at the header. Style kRef adds what any transport must do: copy from application memory, CRC-32 over
/// the frame, check it, copy to application memory. Neither has a protocol: lost frames are lost.
///
/// Requests: open -> {"mac"}; connect {"peer": that}; sample.
class RawService : public Service {
 public:
  /// @param largest_write  bytes, of streams
  RawService(Config config, bool give_way, std::uint32_t largest_write);

  Result<Json> handle(const Json& request) override;

 private:
  /// What a frame says about itself, in place of a BTH.
  struct Tag {
    std::uint32_t magic = 0;
    std::uint32_t sample = 0;  ///< Sample::id
    std::uint32_t number = 0;
  };
  static_assert(sizeof(Tag) == 12);
  struct Free {
    void operator()(std::byte* pages) const noexcept { std::free(pages); }
  };
  using ApplicationPages = std::unique_ptr<std::byte[], Free>;
  static constexpr std::size_t kIpAt = 14;
  static constexpr std::size_t kTagAt = kIpAt + 20 + 8;
  static constexpr std::size_t kPayloadAt = kTagAt + sizeof(Tag);
  static constexpr std::uint32_t kLastNumber = UINT32_MAX;

  static ApplicationPages pages(std::size_t bytes);
  Result<Json> open();
  /// Writes the headers of frames that have `length` bytes.
  void address(std::uint32_t length) noexcept;
  Result<Json> rtt_client(const Sample& sample);
  Result<Json> rtt_server(const Sample& sample);
  Result<Json> flood_client(const Sample& sample);
  Result<Json> flood_server(const Sample& sample);

  /// @return false if the link has no room now.
  bool send(const Sample& sample, std::uint32_t frame_bytes, std::uint32_t number) noexcept;
  /// Takes a frame of this sample, checked and copied out in style kRef. @return its tag, or nothing.
  std::optional<Tag> take(const Sample& sample, std::span<const std::byte> frame) noexcept;
  void give_way() const noexcept;

  Config config_;
  bool give_way_;
  TickClock clock_ = TickClock::calibrate();
  std::optional<RawPort> port_;
  std::array<std::byte, kTagAt> headers_{};
  MacAddress own_{};
  MacAddress peer_{};
  std::size_t half_;         ///< of the memory, bytes
  ApplicationPages memory_;  ///< first half to send from, second half to receive into
  std::size_t used_ = 0;     ///< of each half, by this sample
  std::size_t send_at_ = 0;
  std::size_t receive_at_ = 0;
  std::uint64_t crc_errors_ = 0;
};

}  // namespace uroce::apps
