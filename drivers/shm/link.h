/// Rendezvous of two processes by name: the backing file, who owns which side, and the mapping.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/shm/bell.h"
#include "drivers/shm/layout.h"
#include "uroce/result.h"

namespace uroce::drivers::shm {

/// Which two of the ends of a mesh a link joins; of a link of its own there are no others.
struct Pair {
  std::uint32_t low = 0;
  std::uint32_t high = 1;
};

/// What the user asked for. What is left open is taken over from the end that is there already.
struct LinkConfig {
  std::string name;
  std::uint32_t ends = 2;  ///< of all links of that name; beyond 2 this is one of a mesh
  Pair pair;
  std::optional<unsigned> side;  ///< 0 or 1; else whichever is free
  std::uint32_t queues = 1;
  std::optional<std::uint32_t> ring_bytes;
  std::optional<std::uint32_t> link_mtu;
};

inline constexpr std::uint32_t kMostEnds = 64;

/// Where the backing file of link `name` is: in $UROCE_RUNTIME_DIR, else in /dev/shm.
/// @param pair  of a mesh; the first has the file that a link of its own would have, so that those who do not
///              agree on what the name means find out
[[nodiscard]] std::string link_path(std::string_view name, Pair pair = {});

/// One end of a link.
///
/// Threads: open() and destruction from the control thread, the rest from any. Lifetime: owned by the ports
/// of all its queues together. A side is owned through a lock on the backing file, which the kernel drops
/// when the process dies in any way.
class Link {
 public:
  /// @return kConfig if the name or a size is none that a link may have
  static Status check(const LinkConfig& config);
  /// Becomes side 0 if nobody is there, else the free side.
  /// @return kConfig (name, sizes that differ from the peer's), kNameInUse (both sides are held),
  /// kPermission, kNoMemory, kTimeout, kSystem.
  static Result<std::shared_ptr<Link>> open(const LinkConfig& config);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Who holds a side, as far as it is known.
  struct Holder {
    int pid = 0;
    Geometry geometry;
  };
  /// Of `side` of the link whose file that is.
  [[nodiscard]] static std::optional<Holder> holder(const std::string& path, unsigned side);

  [[nodiscard]] unsigned side() const noexcept { return side_; }
  [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] RingControl& control(std::uint32_t queue, unsigned direction, Lane lane) const noexcept;
  [[nodiscard]] std::byte* ring(std::uint32_t queue, unsigned direction, Lane lane) const noexcept;
  [[nodiscard]] const Bell& own_bell(std::uint32_t queue) const noexcept { return bells_[queue * 2UL]; }
  [[nodiscard]] const Bell& peer_bell(std::uint32_t queue) const noexcept { return bells_[queue * 2UL + 1]; }
  /// Incarnations of the other end so far; 0: none yet.
  [[nodiscard]] std::uint32_t peer_epoch() const noexcept;
  /// Asks the kernel (one system call) whether a process holds the other side.
  [[nodiscard]] bool is_peer_alive() const noexcept;
  /// False in a child that was forked after open(): it has a copy, but the link is its parent's.
  [[nodiscard]] bool is_owned_here() const noexcept;
  /// False if publishing needs a full fence before a look at whether the peer sleeps.
  [[nodiscard]] bool is_fence_free() const noexcept { return fence_free_; }

 private:
  Link(std::string path, int file) noexcept : path_(std::move(path)), file_(file) {}
  Status attach(const LinkConfig& config);
  Status take_side(const LinkConfig& config);
  Status agree(const LinkConfig& config);
  Status initialise(const LinkConfig& config);
  Status map();
  Status open_bells();
  [[nodiscard]] SideLine& side_line(unsigned side) const noexcept;
  [[nodiscard]] std::string holders() const;
  [[nodiscard]] Error side_is_held(const LinkConfig& config) const;
  [[nodiscard]] std::string bell_path(unsigned side, std::uint32_t queue) const;
  void remove_files() const noexcept;
  void remove_bells(std::uint32_t first, std::uint32_t end) const noexcept;

  std::string path_;
  int file_;
  int owner_pid_ = 0;
  unsigned side_ = 0;
  bool holds_side_ = false;
  bool fence_free_ = false;
  Geometry geometry_;
  std::byte* base_ = nullptr;
  std::vector<Bell> bells_;  // own, peer's; for each queue
};

}  // namespace uroce::drivers::shm
