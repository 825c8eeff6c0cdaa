#include "engine/paths.h"

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

namespace uroce::engine {

/// Of what differs between the peers of a loop.
std::size_t Paths::Hash::operator()(const Key& key) const noexcept {
  constexpr std::uint64_t kOdd = 0x9e37'79b9'7f4a'7c15;  // 2^64 divided by the golden ratio
  const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(key.to.dgid);
  std::uint64_t sum = (halves[0] ^ key.to.sgid_index) * kOdd;
  sum = (std::rotl(sum, 29) ^ halves[1]) * kOdd;
  return static_cast<std::size_t>(sum ^ sum >> 32);
}

transport::Path& Paths::acquire(const AhAttr& to, bool is_inner) {
  const Key key{to, is_inner};
  auto known = paths_.find(key);
  if (known == paths_.end()) known = paths_.emplace(key, std::make_unique<transport::Path>()).first;
  transport::Path& path = *known->second;
  path.to = to;
  path.is_inner = is_inner;
  ++path.users;
  return path;
}

void Paths::release(const transport::Path& path) noexcept {
  const auto known = paths_.find({path.to, path.is_inner});
  if (known != paths_.end() && --known->second->users == 0) paths_.erase(known);
}

}  // namespace uroce::engine
