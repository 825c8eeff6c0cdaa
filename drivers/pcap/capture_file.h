/// A pcapng file that frames are written to. Source: draft-ietf-opsawg-pcapng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "port/port.h"
#include "uroce/result.h"

namespace uroce::drivers::pcap {

enum class Heading : std::uint8_t { kInbound = 1, kOutbound = 2 };  // as in epb_flags

/// Nanosecond timestamps, direction of each frame, one interface per port.
///
/// Whole blocks only reach the file, at the latest 100 ms after they were added, provided that poll() is
/// called: the file of a killed process is readable. So is one whose file system was full for a while, be it
/// from the beginning: frames that did not fit are left out as a whole, what comes before all frames follows
/// later. Neither a limit of the process nor a pipe that nobody reads any more raises its signal.
///
/// Threads: any.
class CaptureFile {
 public:
  static constexpr std::uint64_t kFlushNs = 100'000'000;

  /// An old capture of that name is gone afterwards.
  /// @return kConfig or kSystem if the file cannot be written; kBusy if another port writes
  /// to it.
  static Result<std::shared_ptr<CaptureFile>> create(const std::string& path);
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  /// @return the number to give to add().
  std::uint32_t add_interface(const port::PortInfo& info);
  void add(std::uint32_t interface, Heading heading, std::span<const std::byte> frame) noexcept;
  /// Writes out what has waited long enough.
  void poll() noexcept;
  /// Writes out everything.
  void flush() noexcept;
  /// Frames that could not be written, e.g. because the file system is full.
  [[nodiscard]] std::uint64_t lost_frames() const noexcept;

 private:
  CaptureFile() noexcept = default;
  static constexpr std::size_t kBufferBytes = 1U << 20;

  void put16(std::uint16_t value);
  void put32(std::uint32_t value);
  void put_bytes(std::span<const std::byte> bytes);  // padded to 4
  void put_section_header();
  void keep_as_heading();
  void write_out() noexcept;
  [[nodiscard]] bool append(std::span<const std::byte> blocks) noexcept;
  [[nodiscard]] bool write_all(std::span<const std::byte> bytes) noexcept;

  mutable std::mutex mutex_;
  int file_ = -1;
  std::vector<std::byte> buffer_;    // whole blocks: frames
  std::vector<std::byte> headings_;  // likewise, without which no frame can be read
  std::uint64_t whole_bytes_ = 0;    // that the file holds
  std::uint64_t buffered_frames_ = 0;
  std::uint64_t lost_frames_ = 0;
  std::uint64_t oldest_ns_ = 0;  // of the buffered frames; 0: none
  std::uint32_t interfaces_ = 0;
};

}  // namespace uroce::drivers::pcap
