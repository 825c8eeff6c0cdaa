/// The inside of a Cm: the agent with its link, its clock and its users.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cm/agent.h"
#include "cm/gsi.h"
#include "uroce/cm.h"
#include "verbs/gsi.h"

namespace uroce {

struct CmChannel::Impl {
  explicit Impl(Cm::Impl& its_cm) : cm(its_cm) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Cm::Impl& cm;
  // Guarded by cm.mutex:
  std::deque<CmEvent> events;
  int fd = -1;  // made when first asked for
  std::condition_variable news;
  std::atomic<std::size_t> count{0};  // of events; read without the lock

  void push(CmEvent&& event);
  bool pop(CmEvent& event);
  /// Events are gone: without any, the descriptor is not readable.
  void after_taking() noexcept;
  Result<CmAddress> address(CmId id, CmAddress cm::Conversation::*which) const;
};

/// Threads: `mutex` guards all of it; the service thread runs run().
struct Cm::Impl final : cm::AgentHost {
  Impl(Device& its_device, const CmOptions& its_options);
  ~Impl() override;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Status start();

  /// What an id belongs to.
  struct Holder {
    CmChannel::Impl* channel = nullptr;
    std::shared_ptr<QpWhereabouts> qp{};  // the application's, moved by us
    Qpn qpn{};                            // of an established connection
    bool is_unread = false;               // the application has not taken the request yet
  };

  /// Runs a call of the application: what it made the agent say and tell is passed on, and has left when the
  /// call returns, for the process may end then.
  template <typename F>
  auto call(F&& f) {
    const std::lock_guard lock(mutex);
    const Ticks due = agent.deadline();
    try {
      auto result = f(agent, now());
      if (gsi->is_sending()) run_gsi_loop(device);
      dispatch();
      if (agent.deadline() != due || gsi->is_waiting()) wake();
      return result;
    } catch (const std::bad_alloc&) {
      wake();  // to pass on what is left
      throw;
    }
  }
  /// Whether the event makes an id that belongs to the listener's channel.
  [[nodiscard]] static constexpr bool is_of_request(CmEventType type) noexcept {
    return type == CmEventType::kConnectRequest || type == CmEventType::kServiceRequest;
  }
  [[nodiscard]] Ticks now() const noexcept { return Ticks{device.now_ns()}; }
  void wake() noexcept;

  Status connect(CmId id, const CmConnect& ask, Qp* qp);
  Status accept(CmId id, const CmAccept& answer, Qp* qp);
  void close(CmId id);
  /// close(); a QP that was given goes to Error if it is connected.
  void abandon(CmId id);
  /// The channel goes: its ids too.
  void close_all(CmChannel::Impl& channel) noexcept;
  /// Where there is no memory for it, the peer is not told.
  void close_quietly(CmId id) noexcept;
  [[nodiscard]] std::vector<Counter> counters() const;
  void on_established(CmId id);
  /// The connection is over: its QP goes to Error.
  void release(Holder& holder);

  // cm::AgentHost, with the mutex held
  void send(const AhAttr& to, const wire::Mad& mad) override { gsi->send(to, mad); }
  void on_event(CmEvent&& event) override { fresh.push_back(std::move(event)); }
  [[nodiscard]] bool is_own(const Gid& gid) const override;
  [[nodiscard]] bool has_heard(CmId id) override;
  [[nodiscard]] std::string trouble(const AhAttr& path) override { return gsi->trouble(path); }

  Device& device;
  const CmOptions options;
  const std::uint64_t guid;

  mutable std::mutex mutex;
  std::unique_ptr<cm::Gsi> gsi;
  cm::Agent agent;
  std::unordered_map<std::uint32_t, Holder> holders;  // by id
  std::unordered_map<std::uint32_t, CmId> by_qpn;     // established connections
  std::uint64_t changes = 0;                          // of `holders`
  std::deque<CmEvent> fresh;                          // told by the agent, not yet passed on

 private:
  void run();
  /// One turn. @return whether there was something to do.
  bool turn();
  [[nodiscard]] bool may_look() noexcept;
  bool look();
  void sleep();
  void dispatch();
  void deliver(CmEvent& event);
  /// @return whether `event` is to be told: not if the end of the connection is among those that follow.
  bool connect_qp(CmEvent& event, Holder& holder);
  Status answer_reply(const CmEvent& reply, Qp& qp);
  void take_failed();
  void linger();

  int wake_fd_ = -1;
  int failure_fd_ = -1;
  bool may_miss_failures_ = false;  // some were taken, and there was no memory to tell of them
  // Of the service thread:
  bool has_news_ = true;  // there may be completions of the GSI that no event will tell of
  Ticks looked_;          // by the last look()
  bool has_slept_out_ = false;
  std::uint64_t tick_ns_ = 0;  // Mode::kApp: from one turn to the next at most
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace uroce
