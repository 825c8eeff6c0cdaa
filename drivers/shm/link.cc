#include "drivers/shm/link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/held_back_signal.h"
#include "drivers/shm/abandoned.h"
#include "drivers/shm/file_lock.h"

namespace uroce::drivers::shm {
namespace {

constexpr std::uint32_t kMaxQueues = 64;
constexpr std::uint32_t kMaxRingBytes = 1U << 28;
constexpr std::uint32_t kLeastLinkMtu = 576;
constexpr std::uint32_t kRecordsPerRing =
    8;  // of the largest kind: a frame must be far smaller than the ring

Error system_error(const std::string& what) {
  const Errc code = errno == EACCES || errno == EPERM ? Errc::kPermission : Errc::kSystem;
  return Error{code, what + ": " + std::strerror(errno)};
}

bool is_valid_name(std::string_view name) noexcept {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), is_allowed);
}

std::uint32_t least_ring_bytes(std::uint32_t link_mtu) noexcept {
  return std::bit_ceil(kRecordsPerRing * record_bytes(std::min(link_mtu, kMaxLinkMtu) + kFrameOverhead));
}

Status check_limits(const Geometry& geometry) {
  if (geometry.queues == 0 || geometry.queues > kMaxQueues) {
    return Error{Errc::kConfig, "shm: queues=" + std::to_string(geometry.queues) +
                                    " is out of range; allowed: 1 to " + std::to_string(kMaxQueues)};
  }
  if (geometry.link_mtu < kLeastLinkMtu || geometry.link_mtu > kMaxLinkMtu) {
    return Error{Errc::kConfig, "shm: link MTU " + std::to_string(geometry.link_mtu) +
                                    " is out of range; allowed: " + std::to_string(kLeastLinkMtu) + " to " +
                                    std::to_string(kMaxLinkMtu)};
  }
  const std::uint32_t least = least_ring_bytes(geometry.link_mtu);
  if (!std::has_single_bit(geometry.ring_bytes) || geometry.ring_bytes < least ||
      geometry.ring_bytes > kMaxRingBytes) {
    return Error{Errc::kConfig, "shm: ring=" + std::to_string(geometry.ring_bytes) +
                                    " is not allowed; it must be a power of two from " +
                                    std::to_string(least) + " to " + std::to_string(kMaxRingBytes)};
  }
  return {};
}

/// Twice the cache of a core (L2). If a record is still in the writer's cache when its room is used again,
/// and in the reader's, each store waits until the reader's copy is invalid. Measured: 4 KiB WRITEs 67 ->
/// 112 Gb/s, where both cores share a cache beyond that.
std::uint32_t default_ring_bytes() noexcept {
  constexpr std::uint64_t kLeast = 1U << 20;
  constexpr std::uint64_t kMost = 8U << 20;
  const auto cache = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE)));
  return static_cast<std::uint32_t>(std::clamp(std::bit_ceil(2 * cache), kLeast, kMost));
}

/// Of a link that is not there yet. The ends of a mesh share that: each has as many links as there are
/// others.
Geometry geometry_of(const LinkConfig& config) noexcept {
  Geometry geometry;
  geometry.queues = config.queues;
  geometry.link_mtu = config.link_mtu.value_or(geometry.link_mtu);
  const std::uint32_t share = std::bit_floor(default_ring_bytes() / (config.ends - 1));
  geometry.ring_bytes = config.ring_bytes.value_or(std::max(share, least_ring_bytes(geometry.link_mtu)));
  return geometry;
}

Error mismatch(const char* what, std::uint64_t wanted, std::uint64_t present) {
  return Error{Errc::kConfig, std::string("shm: ") + what + " " + std::to_string(wanted) +
                                  " differs from the other end's " + std::to_string(present) +
                                  "; give both ends the same"};
}

struct Preamble {
  LinkHeader header;
  SideLine sides[2];
};

Geometry geometry_in(const LinkHeader& header) noexcept {
  return {.queues = header.queues, .ring_bytes = header.ring_bytes, .link_mtu = header.link_mtu};
}

/// @return whether that is a link's file, as this version makes it.
bool read_preamble(int file, Preamble& preamble) noexcept {
  return ::pread(file, &preamble, sizeof(preamble), 0) == static_cast<ssize_t>(sizeof(preamble)) &&
         preamble.header.magic == kMagic && preamble.header.version == kLayoutVersion;
}

std::optional<Link::Holder> holder_of(int file, unsigned side) noexcept {
  Preamble present;
  const bool is_held = is_locked_by_other(file, kSideLock + static_cast<off_t>(side));
  if (!is_held || !read_preamble(file, present)) return {};
  return Link::Holder{.pid = present.sides[side].pid.load(std::memory_order_relaxed),
                      .geometry = geometry_in(present.header)};
}

/// @return 0 or what went wrong; not EINTR, be it that the program has signals a thousand times a second:
/// what was taken before one of them stays taken.
int take_pages(int file, off_t bytes) noexcept {
  constexpr off_t kPiece = 1 << 20;
  for (off_t at = 0; at < bytes;) {
    const int error = ::posix_fallocate(file, at, std::min(kPiece, bytes - at));
    if (error == EINTR) continue;
    if (error != 0) return error;
    at += kPiece;
  }
  return 0;
}

/// Makes the file that long, of zeros. Pages are taken now: a full file system shall be an error here, not a
/// SIGBUS later.
/// @return 0 or what went wrong
int take_room(int file, off_t bytes) noexcept {
  const HeldBackSignal no_limit(SIGXFSZ);
  if (::ftruncate(file, 0) != 0 || ::ftruncate(file, bytes) != 0) return errno;
  return take_pages(file, bytes);
}

Error no_room(const std::string& path, off_t bytes, int error) {
  const std::string said =
      "shm: " + std::to_string(bytes) + " bytes for " + path + " are not to be had (" + std::strerror(error);
  switch (error) {
    case EFBIG:
      return {Errc::kNoMemory, said + "); raise ulimit -f or give a smaller ring=, e.g. ring=256K"};
    case ENOSPC:
    case ENOMEM:
      return {Errc::kNoMemory, said +
                                   "); give a smaller ring, e.g. ring=256K, or more room: "
                                   "mount -o remount,size=1G /dev/shm"};
    default:
      errno = error;
      return system_error("shm: cannot size " + path);
  }
}

Result<int> open_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return system_error("shm: cannot open " + path);
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) {
    ::close(file);
    return Error{Errc::kPermission, "shm: " + path + " is not a file of this user; remove it: rm -f " + path};
  }
  return file;
}

/// Once now, not while frames pass for the first time round: where a hypervisor keeps page tables of its own,
/// MAP_POPULATE fills the guest's only, and the first access of each process to a page is a fault of the
/// host. Measured in such a machine: 100 frames of 4 KiB/ms in the first lap of a ring, then 2500.
void touch(const std::byte* base, std::size_t bytes) noexcept {
  constexpr std::size_t kSmallestPage = 4096;
  for (std::size_t at = 0; at < bytes; at += kSmallestPage) {
    (void)*static_cast<const volatile std::byte*>(base + at);
  }
}

}  // namespace

std::string link_path(std::string_view name, Pair pair) {
  const char* dir = std::getenv("UROCE_RUNTIME_DIR");
  const std::string base = dir != nullptr && *dir != '\0' ? dir : "/dev/shm";
  std::string path = base + "/uroce-" + std::to_string(::geteuid()) + "-" + std::string(name);
  if (pair.low == 0 && pair.high == 1) return path;
  return path + "+" + std::to_string(pair.low) + "-" + std::to_string(pair.high);  // '+' is in no link name
}

Status Link::check(const LinkConfig& config) {
  Geometry geometry = geometry_of(config);
  geometry.link_mtu =
      config.link_mtu.value_or(kLeastLinkMtu);  // what the other end has may be less than usual
  if (is_valid_name(config.name)) return check_limits(geometry);
  return Error{Errc::kConfig, "shm: \"" + config.name +
                                  "\" is not a link name; use 1 to 64 letters, digits, '.', '_' or '-', e.g. "
                                  "shm:demo"};
}

Result<std::shared_ptr<Link>> Link::open(const LinkConfig& config) {
  if (Status good = check(config); !good) return good.error();
  const std::string path = link_path(config.name, config.pair);
  // The last end to leave removes the file; whoever opened it just before that starts over.
  for (int tries = 0; tries < 100; ++tries) {
    const Result<int> file = open_file(path);
    if (!file) return file.error();
    std::unique_ptr<Link> owner;  // of the file, once there is one
    try {
      owner.reset(new Link(path, *file));
    } catch (const std::bad_alloc&) {
      ::close(*file);
      throw;
    }
    const std::shared_ptr<Link> link(std::move(owner));
    if (!lock_within(*file, kSetupLock, 2000)) {
      return Error{Errc::kTimeout, "shm: link \"" + config.name + "\" is being set up by another process (" +
                                       link->holders() + ") that has stopped; end it, then retry"};
    }
    if (!is_still_at(*file, path)) continue;
    if (Status status = link->attach(config); !status) return status.error();
    unlock(*file, kSetupLock);
    touch(link->base_, link->geometry_.total_bytes());
    return link;
  }
  return Error{Errc::kTimeout, "shm: " + path + " keeps being replaced; choose another link name"};
}

Status Link::attach(const LinkConfig& config) {
  owner_pid_ = ::getpid();
  if (Status status = take_side(config); !status) return status;
  // With the setup lock held and the other side free nobody has the file mapped: it may be made anew.
  const bool alone = !is_peer_alive();
  if (Status status = alone ? initialise(config) : agree(config); !status) return status;
  if (Status status = map(); !status) return status;
  if (Status status = open_bells(); !status) return status;
  fence_free_ = register_producer();
  SideLine& line = side_line(side_);
  line.pid.store(owner_pid_, std::memory_order_relaxed);
  line.epoch.fetch_add(1, std::memory_order_release);
  return {};
}

Status Link::take_side(const LinkConfig& config) {
  const unsigned first = config.side.value_or(0);
  const unsigned last = config.side.value_or(1);
  for (unsigned side = first; side <= last; ++side) {
    if (!try_lock(file_, kSideLock + static_cast<off_t>(side))) continue;
    side_ = side;
    holds_side_ = true;
    return {};
  }
  return side_is_held(config);
}

Error Link::side_is_held(const LinkConfig& config) const {
  Preamble present;
  if (read_preamble(file_, present) && present.header.ends != config.ends)
    return mismatch("ends", config.ends, present.header.ends);
  const std::string what = config.side ? "side " + std::to_string(*config.side) : "each end";
  return Error{Errc::kNameInUse, "shm: " + what + " of link \"" + config.name + "\" is held (" + holders() +
                                     "); end a holder with \"kill PID\", choose another name, e.g. shm:" +
                                     config.name + "-2, or give all the same ends=N, for N processes"};
}

Status Link::agree(const LinkConfig& config) {
  Preamble present;
  struct stat status {};
  if (!read_preamble(file_, present) || ::fstat(file_, &status) != 0) {
    return Error{Errc::kConfig,
                 "shm: link \"" + config.name +
                     "\" is held by another version of this program; use the same on both ends"};
  }
  geometry_ = geometry_in(present.header);
  if (config.ends != present.header.ends) return mismatch("ends", config.ends, present.header.ends);
  if (config.queues != geometry_.queues)
    return mismatch("queues (cores that --lcores names)", config.queues, geometry_.queues);
  if (config.ring_bytes.value_or(geometry_.ring_bytes) != geometry_.ring_bytes) {
    return mismatch("ring size", *config.ring_bytes, geometry_.ring_bytes);
  }
  if (config.link_mtu.value_or(geometry_.link_mtu) != geometry_.link_mtu) {
    return mismatch("link MTU", *config.link_mtu, geometry_.link_mtu);
  }
  if (Status limits = check_limits(geometry_); !limits) return limits;
  if (static_cast<std::size_t>(status.st_size) != geometry_.total_bytes()) {
    return Error{Errc::kConfig,
                 "shm: " + path_ + " has been cut; end the process that holds it (" + holders() + ")"};
  }
  return {};
}

Status Link::initialise(const LinkConfig& config) {
  geometry_ = geometry_of(config);
  if (Status limits = check_limits(geometry_); !limits) return limits;
  remove_abandoned_links(path_);  // before room is taken, which they may have left too little of
  // Ends that were killed may have had more queues.
  if (Preamble former; read_preamble(file_, former))
    remove_bells(geometry_.queues, std::min(former.header.queues, kMaxQueues));
  const auto total = static_cast<off_t>(geometry_.total_bytes());
  if (const int error = take_room(file_, total); error != 0) return no_room(path_, total, error);
  const LinkHeader header{.magic = kMagic,
                          .version = kLayoutVersion,
                          .queues = geometry_.queues,
                          .ring_bytes = geometry_.ring_bytes,
                          .link_mtu = geometry_.link_mtu,
                          .ends = config.ends};
  if (::pwrite(file_, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) {
    return system_error("shm: cannot write " + path_);
  }
  return {};
}

Status Link::map() {
  void* base =
      ::mmap(nullptr, geometry_.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, 0);
  if (base == MAP_FAILED) return system_error("shm: cannot map " + path_);
  base_ = static_cast<std::byte*>(base);
  return {};
}

Status Link::open_bells() {
  bells_.reserve(geometry_.queues * 2UL);
  for (std::uint32_t queue = 0; queue < geometry_.queues; ++queue) {
    for (const unsigned side : {side_, 1 - side_}) {
      Result<Bell> bell = Bell::open(bell_path(side, queue));
      if (!bell) return bell.error();
      bells_.push_back(std::move(*bell));
    }
  }
  return {};
}

Link::~Link() {
  if (base_ != nullptr) ::munmap(base_, geometry_.total_bytes());
  if (holds_side_ && is_owned_here() && (lock_within(file_, kSetupLock, 200))) {
    if (!is_peer_alive() && is_still_at(file_, path_)) remove_files();
  }
  ::close(file_);  // drops the locks
}

void Link::remove_files() const noexcept {
  remove_bells(0, geometry_.queues);
  ::unlink(path_.c_str());
}

void Link::remove_bells(std::uint32_t first, std::uint32_t end) const noexcept {
  for (std::uint32_t queue = first; queue < end; ++queue) {
    ::unlink(bell_path(0, queue).c_str());
    ::unlink(bell_path(1, queue).c_str());
  }
}

bool Link::is_owned_here() const noexcept {
  return owner_pid_ == ::getpid();
}

RingControl& Link::control(std::uint32_t queue, unsigned direction, Lane lane) const noexcept {
  void* at = base_ + geometry_.control_at(queue, direction, lane);
  return *static_cast<RingControl*>(at);
}

std::byte* Link::ring(std::uint32_t queue, unsigned direction, Lane lane) const noexcept {
  return base_ + geometry_.ring_at(queue, direction, lane);
}

SideLine& Link::side_line(unsigned side) const noexcept {
  void* at = base_ + offsetof(Preamble, sides) + side * sizeof(SideLine);
  return *static_cast<SideLine*>(at);
}

std::uint32_t Link::peer_epoch() const noexcept {
  return side_line(1 - side_).epoch.load(std::memory_order_acquire);
}

bool Link::is_peer_alive() const noexcept {
  return is_locked_by_other(file_, kSideLock + static_cast<off_t>(1 - side_));
}

std::optional<Link::Holder> Link::holder(const std::string& path, unsigned side) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return {};
  const std::optional<Holder> found = holder_of(file, side);
  ::close(file);
  return found;
}

std::string Link::holders() const {
  std::string text;
  for (unsigned side = 0; side < 2; ++side) {
    const std::optional<Holder> held = holder_of(file_, side);
    if (!held || held->pid == 0) continue;
    text +=
        (text.empty() ? "side " : ", side ") + std::to_string(side) + ": PID " + std::to_string(held->pid);
  }
  return text.empty() ? "PID unknown" : text;
}

std::string Link::bell_path(unsigned side, std::uint32_t queue) const {
  return path_ + "~" + std::to_string(side) + "." + std::to_string(queue);  // '~' is in no link name
}

}  // namespace uroce::drivers::shm
