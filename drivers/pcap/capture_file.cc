#include "drivers/pcap/capture_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/eventfd.h"
#include "base/held_back_signal.h"

namespace uroce::drivers::pcap {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint16_t kLinkTypeEthernet = 1;
constexpr std::uint16_t kOptionIfName = 2;
constexpr std::uint16_t kOptionIfTsResolution = 9;
constexpr std::uint16_t kOptionEpbFlags = 2;

std::uint64_t clock_ns(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint32_t padded(std::size_t bytes) noexcept {
  return static_cast<std::uint32_t>((bytes + 3) & ~std::size_t{3});
}

}  // namespace

Result<std::shared_ptr<CaptureFile>> CaptureFile::create(const std::string& path) {
  std::shared_ptr<CaptureFile> capture(new CaptureFile());
  capture->buffer_.reserve(kBufferBytes);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    return Error{Errc::kConfig, "capture file " + path + " cannot be written: " + std::strerror(errno) +
                                    "; name a file in a writable directory, e.g. --pcap /tmp/uroce.pcapng"};
  }
  capture->file_ = file;
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
      return Error{Errc::kBusy, "capture file " + path +
                                    " is being written to by another port: name another file for this one"};
    }
    if (::ftruncate(file, 0) != 0) {
      return Error{Errc::kSystem, "capture file " + path + " cannot be emptied: " + std::strerror(errno)};
    }
  }
  capture->put_section_header();
  return capture;
}

CaptureFile::~CaptureFile() {
  write_out();
  if (file_ >= 0) ::close(file_);
}

void CaptureFile::put16(std::uint16_t value) {
  std::byte bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  buffer_.insert(buffer_.end(), bytes, bytes + sizeof(value));
}

void CaptureFile::put32(std::uint32_t value) {
  std::byte bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  buffer_.insert(buffer_.end(), bytes, bytes + sizeof(value));
}

void CaptureFile::put_bytes(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  buffer_.resize((buffer_.size() + 3) & ~std::size_t{3});  // every block starts at a multiple of 4
}

void CaptureFile::put_section_header() {
  put32(kSectionHeader);
  put32(28);
  put32(kByteOrderMagic);
  put16(1);  // version 1.0
  put16(0);
  put32(0xffff'ffff);  // section length: not known
  put32(0xffff'ffff);
  put32(28);
  keep_as_heading();
}

/// Of what has just been put into an empty buffer.
void CaptureFile::keep_as_heading() {
  headings_.insert(headings_.end(), buffer_.begin(), buffer_.end());
  buffer_.clear();
  write_out();
}

std::uint32_t CaptureFile::add_interface(const port::PortInfo& info) {
  const std::lock_guard lock(mutex_);
  write_out();
  const std::string name = info.name.substr(0, 200);
  const std::uint32_t bytes = 8 + 8 + 4 + padded(name.size()) + 8 + 4 + 4;
  put32(kInterfaceDescription);
  put32(bytes);
  put16(kLinkTypeEthernet);
  put16(0);
  put32(0);  // snapshot length: no limit
  put16(kOptionIfName);
  put16(static_cast<std::uint16_t>(name.size()));
  put_bytes(std::as_bytes(std::span(name)));
  put16(kOptionIfTsResolution);
  put16(1);
  put32(9);  // 10^-9 s, and 3 bytes of padding
  put32(0);  // end of options
  put32(bytes);
  keep_as_heading();
  return interfaces_++;
}

void CaptureFile::add(std::uint32_t interface, Heading heading, std::span<const std::byte> frame) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t bytes = 28 + padded(frame.size()) + 8 + 4 + 4;
  if (buffer_.size() + bytes > kBufferBytes) write_out();
  const std::uint64_t now = clock_ns(CLOCK_REALTIME);
  put32(kEnhancedPacket);
  put32(bytes);
  put32(interface);
  put32(static_cast<std::uint32_t>(now >> 32));
  put32(static_cast<std::uint32_t>(now));
  put32(static_cast<std::uint32_t>(frame.size()));
  put32(static_cast<std::uint32_t>(frame.size()));
  put_bytes(frame);
  put16(kOptionEpbFlags);
  put16(4);
  put32(static_cast<std::uint32_t>(heading));
  put32(0);  // end of options
  put32(bytes);
  ++buffered_frames_;
  if (oldest_ns_ == 0) oldest_ns_ = clock_ns(CLOCK_MONOTONIC);
}

void CaptureFile::poll() noexcept {
  const std::lock_guard lock(mutex_);
  if (oldest_ns_ != 0 && clock_ns(CLOCK_MONOTONIC) - oldest_ns_ >= kFlushNs) write_out();
}

void CaptureFile::flush() noexcept {
  const std::lock_guard lock(mutex_);
  write_out();
}

void CaptureFile::write_out() noexcept {
  if (append(headings_)) headings_.clear();
  if (!headings_.empty() || !append(buffer_)) lost_frames_ += buffered_frames_;
  buffer_.clear();
  buffered_frames_ = 0;
  oldest_ns_ = 0;
}

/// @return false if there was no room for all: then the file is as before.
bool CaptureFile::append(std::span<const std::byte> blocks) noexcept {
  const HeldBackSignal no_limit(SIGXFSZ);
  const HeldBackSignal no_pipe(SIGPIPE);
  if (write_all(blocks)) {
    whole_bytes_ += blocks.size();
    return true;
  }
  const auto end = static_cast<off_t>(whole_bytes_);
  if (::ftruncate(file_, end) == 0) (void)::lseek(file_, end, SEEK_SET);  // a part of it may be there
  return false;
}

bool CaptureFile::write_all(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const long written = write_uncancelled(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

std::uint64_t CaptureFile::lost_frames() const noexcept {
  const std::lock_guard lock(mutex_);
  return lost_frames_;
}

}  // namespace uroce::drivers::pcap
