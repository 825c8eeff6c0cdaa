/// Processes that serve requests of their parent: the two sides of a measurement.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "uroce/result.h"

namespace uroce::apps {

using Json = nlohmann::json;

/// What runs inside a worker process.
class Service {
 public:
  virtual ~Service() = default;
  /// Answers one request with an object, to which the worker adds "interruptions": how often it lost its core
  /// meanwhile. Bounded in time by itself.
  virtual Result<Json> handle(const Json& request) = 0;
  /// Called some 50 times a second between requests.
  virtual void idle() {}
};

/// A forked process, pinned to a core, that answers requests one after the other. It ends with its parent, or
/// when the service throws, which is its answer then: kNoMemory, kSystem.
///
/// Threads: control. Lifetime: the destructor ends the process. What it is at it may finish for a second,
/// unless is_stopped() here; is_stopped() there from then on, and it is killed after half of kStopSeconds
/// more. All workers are told before the first one is waited for if is_stopped() here.
class Worker {
 public:
  using Factory = std::function<std::unique_ptr<Service>()>;

  /// Forks. Call it before anything in this process starts a thread or opens a device.
  /// @param name  what errors call it, e.g. "the server process"
  static Result<Worker> spawn(std::string name, int core, const Factory& factory);
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&& other) noexcept;
  ~Worker();

  Status send(const Json& request);
  /// @param until_ns  on now_ns()
  /// @return the answer; the service's own failure; kTimeout; kPeer if the process died.
  Result<Json> receive(std::uint64_t until_ns);
  /// send() and receive().
  Result<Json> ask(const Json& request, std::uint64_t timeout_ns);
  /// Waits until one of the two has answered or died. @return whether `a` comes first (also if neither does).
  [[nodiscard]] static bool first_to_answer(const Worker& a, const Worker& b, std::uint64_t until_ns);

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  Worker(std::string name, pid_t pid, int fd) : name_(std::move(name)), pid_(pid), fd_(fd) {}
  [[nodiscard]] Error death();
  void stop() noexcept;

  std::string name_;
  pid_t pid_ = -1;
  int fd_ = -1;
};

/// Two workers that measure together.
struct Pair {
  Worker client;
  Worker server;
  bool broken = false;  ///< after a failed call

  struct Answers {
    Json client;
    Json server;
  };
  /// Sends both requests, then waits for both answers. After a failure the pair is of no more use.
  Result<Answers> call(const Json& to_client, const Json& to_server, std::uint64_t timeout_ns);

  /// What a pair may take to start: EAL, hugepages and links take their time.
  static constexpr std::uint64_t kStartNs = 15'000'000'000;
  /// Forks both, pinned to their cores.
  static Result<Pair> spawn(const std::string& what, int client_core, int server_core,
                            const Worker::Factory& client, const Worker::Factory& server);
  /// "open" at the server, then at the client, which may need to find it there; then "connect" at both with
  /// what the other one said. @return what the client's end said.
  Result<Json> open_and_connect();
};

}  // namespace uroce::apps
