#include "transport/address_handles.h"

#include "wire/checksum.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

namespace uroce::transport {

DatagramOrigin origin_of(std::span<const std::byte, kGrhBytes> grh) noexcept {
  const auto ipv4 = grh.last<wire::Ipv4::kSize>();
  if (ipv4[0] == std::byte{0x45} && wire::fold_sum(wire::add_words(ipv4)) == 0xffff) {
    const wire::Ipv4 header = wire::Ipv4::parse(ipv4);
    return {.sender = {.dgid = Gid::from_v4(header.src), .traffic_class = header.tos},
            .to = Gid::from_v4(header.dst)};
  }
  const wire::Ipv6 header = wire::Ipv6::parse(grh);
  const bool is_v1 = header.next_header == wire::IpProtocol::kIbaGrh;
  return {
      .sender = {.dgid = header.src, .traffic_class = header.traffic_class, .flow_label = header.flow_label},
      .to = header.dst,
      .type = is_v1 ? GidType::kRoceV1 : GidType::kRoceV2};
}

}  // namespace uroce::transport
