/// The dialog beside the RDMA traffic: two programs agree on batches over TCP and verify them on both sides.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "endpoint.h"
#include "plan.h"

namespace uroce::interop {

/// A TCP connection of text lines.
class Lines {
 public:
  /// Connects to `host`, or waits for one connection if it is empty. Throws std::runtime_error.
  Lines(const std::string& host, const std::string& port);
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  ~Lines();

  void write(const std::string& line);
  /// @return whether `line` was filled; never blocks. Throws when the peer is gone.
  bool read(std::string& line);

 private:
  int fd_ = -1;
  std::string received_;
};

/// Both sides of the dialog; every wait is bounded and makes the endpoint progress.
class Session {
 public:
  Session(Endpoint& endpoint, Lines& lines) noexcept : endpoint_(endpoint), lines_(lines) {}

  /// Exchanges identities and connects the QPs.
  void connect(const LinkAttr& attr);
  /// Carries out batches of a command line. Throws std::runtime_error at the first fault.
  ///
  /// Besides Plan's texts: late:BYTES:MILLISECONDS (a send whose receive is posted later), wrongkey:STATUS
  /// and toolong:STATUS (refused with that enum ibv_wc_status; must come last).
  void run_active(const std::vector<std::string>& specs, std::uint64_t seed);
  /// Serves until the active side says good-bye.
  void run_passive();

 private:
  using Clock = std::chrono::steady_clock;
  void pump();
  std::string wait_line();
  Completion wait_completion(std::deque<Completion>& from);
  void ask(const std::string& command);
  void run_batch(const std::string& spec, std::uint64_t seed, unsigned delay_ms);
  void run_refused(const std::string& kind, int status);
  void post_all(const Plan& plan);
  void serve_batch(const std::string& spec, std::uint64_t seed, unsigned delay_ms);
  std::string verify_receives();

  static constexpr std::chrono::seconds kPatience{30};
  Endpoint& endpoint_;
  Lines& lines_;
  Identity peer_;
  std::deque<Completion> sends_;
  std::deque<Completion> receives_;
  std::unique_ptr<Plan> plan_;  // passive: the present batch
};

}  // namespace uroce::interop
