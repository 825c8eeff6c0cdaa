/// The paths of a loop's connections.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "transport/path.h"

namespace uroce::engine {

/// One path for each address vector in use, and one to the device itself for one that has become or has been
/// an own address; it stays where it is.
///
/// Threads: loop.
class Paths {
 public:
  /// Control: allocates. @return the path of one more QP; a new one has no sink yet
  transport::Path& acquire(const AhAttr& to, bool is_inner);
  /// One QP needs it no more.
  void release(const transport::Path& path) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return paths_.size(); }

 private:
  struct Key {
    AhAttr to;
    bool is_inner = false;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  std::unordered_map<Key, std::unique_ptr<transport::Path>, Hash> paths_;
};

}  // namespace uroce::engine
