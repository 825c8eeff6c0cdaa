/// Whole RoCE frames built in one call, for tests of what reads them.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "support/hex.h"
#include "wire/frame_template.h"
#include "wire/packet.h"

namespace uroce::test {

inline wire::FrameAddress v4_address() {
  return {.src_mac = {{2, 0, 0, 0, 0, 1}},
          .dst_mac = {{2, 0, 0, 0, 0, 2}},
          .sgid = Gid::from_v4({10, 0, 0, 1}),
          .dgid = Gid::from_v4({10, 0, 0, 2}),
          .udp_src_port = 0xc123};
}

inline wire::FrameAddress v6_address() {
  auto address = v4_address();
  address.sgid = *Gid::parse("fd99::1");
  address.dgid = *Gid::parse("fd99::2");
  address.flow_label = 0x1'2345;
  return address;
}

/// RoCE v1 between the same.
inline wire::FrameAddress v1_address() {
  auto address = v6_address();
  address.type = GidType::kRoceV1;
  return address;
}

/// A sealed frame: BTH `bth` (its pad count is set here), extension headers as bytes, `payload` bytes
/// counting up.
inline Bytes make_frame(const wire::FrameAddress& address, wire::Bth bth, std::span<const std::byte> ext = {},
                        std::uint32_t payload = 0) {
  const wire::FrameTemplate head{address};
  bth.pad = wire::pad_for(payload);
  const auto header_bytes = static_cast<std::uint32_t>(wire::Bth::kSize + ext.size());
  const std::uint32_t size = head.frame_len(header_bytes, payload, bth.pad);
  Bytes frame(size);
  std::byte* at = head.emit_head(frame.data(), size - head.overhead());
  at = wire::emit_at(at, bth);
  at = std::copy(ext.begin(), ext.end(), at);
  for (std::uint32_t i = 0; i < payload; ++i) at[i] = static_cast<std::byte>(i + 1);
  std::fill_n(at + payload, bth.pad, std::byte{0});  // emit_head() may have scribbled here
  head.seal(frame.data(), size);
  return frame;
}

}  // namespace uroce::test
