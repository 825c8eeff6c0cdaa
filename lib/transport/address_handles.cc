#include "transport/address_handles.h"

#include "wire/checksum.h"
#include "wire/grh.h"
#include "wire/ipv4.h"

namespace uroce::transport {

DatagramOrigin origin_of(std::span<const std::byte, kGrhBytes> grh) noexcept {
  const auto ipv4 = grh.last<wire::Ipv4::kSize>();
  if (ipv4[0] == std::byte{0x45} && wire::fold_sum(wire::add_words(ipv4)) == 0xffff) {
    const wire::Ipv4 header = wire::Ipv4::parse(ipv4);
    return {.sender = {.dgid = Gid::from_v4(header.src), .traffic_class = header.tos},
            .to = Gid::from_v4(header.dst)};
  }
  const wire::Grh header = wire::Grh::parse(grh);
  return {
      .sender = {.dgid = header.sgid, .traffic_class = header.traffic_class, .flow_label = header.flow_label},
      .to = header.dgid};
}

}  // namespace uroce::transport
