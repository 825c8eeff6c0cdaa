/// One side of a connection, as little of it as the dialog needs. Implemented once over libibverbs and once
/// over uroce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace uroce::interop {

/// What a side tells its peer; one line "QPN PSN RKEY ADDRESS GID", numbers in decimal.
struct Identity {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;  ///< the first it will send
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;  ///< of Endpoint::memory() on that side
  std::string gid;
};

/// Command line options "--name value" by name.
using Options = std::map<std::string, std::string>;

/// Attributes of the connection, the same on both sides.
struct LinkAttr {
  std::uint32_t mtu = 1024;  ///< path MTU, bytes
  std::uint8_t gid_index = 1;
  std::uint8_t timeout = 14;
  std::uint8_t retry_cnt = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 12;
  std::uint8_t rd_atomic = 8;
};

enum class Verb : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kCompareSwap, kFetchAdd };

/// A send work request from and to the same offset of both sides' memory.
struct Request {
  Verb verb = Verb::kSend;
  std::uint32_t length = 0;         ///< bytes
  std::uint64_t offset = 0;         ///< in both memories
  std::uint64_t remote_offset = 0;  ///< differs from `offset` for atomics only
  std::uint32_t imm = 0;            ///< host byte order
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  std::uint32_t rkey = 0;
};

struct Completion {
  std::uint64_t id = 0;
  int status = 0;           ///< enum ibv_wc_status
  std::uint32_t bytes = 0;  ///< received
  bool has_imm = false;
  std::uint32_t imm = 0;  ///< host byte order
};

/// A QP with registered memory.
///
/// Threads: one. Failures of setting up throw std::runtime_error.
class Endpoint {
 public:
  static constexpr std::size_t kMemoryBytes = 16U << 20;
  static constexpr std::uint32_t kMaxWr = 128;  ///< outstanding, each way

  virtual ~Endpoint() = default;
  [[nodiscard]] virtual Identity identity() const = 0;
  /// Registered with all rights, kMemoryBytes long.
  [[nodiscard]] virtual std::span<std::byte> memory() noexcept = 0;
  virtual void connect(const Identity& peer, const LinkAttr& attr) = 0;
  virtual void post_receive(std::uint64_t id, std::uint64_t offset, std::uint32_t length) = 0;
  virtual void post(std::uint64_t id, const Request& request) = 0;
  /// Takes completions of both kinds and makes progress. @return how many.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  /// May sleep for a moment when there was nothing to do.
  virtual void idle() noexcept = 0;
  /// Counters "name value", one a line.
  [[nodiscard]] virtual std::string counters() const = 0;
};

/// Makes the endpoint that this program is linked with. `psn` is the first PSN it sends.
[[nodiscard]] std::unique_ptr<Endpoint> make_endpoint(const Options& options, const LinkAttr& attr,
                                                      std::uint32_t psn);

}  // namespace uroce::interop
