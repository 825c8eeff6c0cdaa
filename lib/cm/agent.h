/// The communication manager's protocol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "cm/bindings.h"
#include "cm/conversation.h"
#include "uroce/cm_types.h"
#include "wire/cm_mad.h"

namespace uroce::cm {

/// How long is waited for what. All in nanoseconds.
struct AgentTimes {
  std::uint64_t first_repeat = 50'000'000;  ///< of a message without an answer; doubles
  std::uint64_t last_repeat = 1'000'000'000;
  std::uint64_t accept = 10'000'000'000;  ///< REP: for the RTU
  std::uint64_t release = 2'000'000'000;  ///< DREQ: for the DREP
  std::uint64_t timewait = 1'000'000'000;
  std::uint64_t answered = 3'000'000'000;  ///< refused, or SIDR: for who has not heard it and asks again
};

struct AgentConfig {
  std::uint64_t ca_guid = 0;
  std::uint64_t seed = 1;
  PathMtu path_mtu = PathMtu::k4096;
  unsigned max_ids = 1U << 20;
  AgentTimes times{};
};

/// What the agent has refused or ignored, by reason.
struct AgentCounters {
  std::uint64_t received = 0;
  std::uint64_t malformed = 0;   ///< no MAD of the communication manager
  std::uint64_t unexpected = 0;  ///< of nobody here, in the wrong state, or from elsewhere
  std::uint64_t duplicates = 0;
  std::uint64_t rejected = 0;  ///< requests
  std::uint64_t sent = 0;
  std::uint64_t repeated = 0;
};

/// What the agent needs of whoever runs it.
class AgentHost {
 public:
  virtual ~AgentHost() = default;
  /// Does not throw: what cannot be sent is lost.
  virtual void send(const AhAttr& to, const wire::Mad& mad) = 0;
  /// The agent is not called meanwhile.
  virtual void on_event(CmEvent&& event) = 0;
  /// Whether `gid` is an address of this end.
  [[nodiscard]] virtual bool is_own(const Gid& gid) const = 0;
  /// Whether the QP of a connection whose RTU is missing has already heard from the peer. IBA 12.9.8.3.1 ?
  [[nodiscard]] virtual bool has_heard(CmId id) = 0;
  /// Why nobody may have heard what was sent along `path`, after "; "; empty if nothing is known of it.
  [[nodiscard]] virtual std::string trouble(const AhAttr& /*path*/) { return {}; }
};

/// REQ, REP, RTU, REJ, MRA, DREQ, DREP, SIDR_REQ and SIDR_REP of one channel adapter; LAP is refused. IBA 12.
/// Time, chance and the link are arguments. Each id that failed or ended brings exactly one event that says
/// so.
///
/// Without memory a call throws bad_alloc; what was under way goes on, and is told later. A message that
/// could not be taken is lost: the peer repeats it.
///
/// Threads: one at a time.
class Agent {
 public:
  Agent(const AgentConfig& config, AgentHost& host);

  // The application's calls.
  Result<CmId> create(PortSpace space);
  Status bind(CmId id, const CmAddress& address);
  Status share_port(CmId id, bool shares);
  Status set_v6_only(CmId id, bool is_only);
  Status listen(CmId id, unsigned backlog);
  /// @param path  towards `ask.to`
  Status connect(CmId id, const CmConnect& ask, const AhAttr& path, const Gid& source, Ticks now);
  Status accept(CmId id, const CmAccept& answer, Ticks now);
  /// @return what accept() would refuse.
  Status may_accept(CmId id, const CmAccept& answer);
  Status reject(CmId id, std::span<const std::byte> private_data, Ticks now);
  Status establish(CmId id);
  /// The QP has heard from the peer: the RTU is not waited for. rdma_notify(3).
  Status notify_established(CmId id);
  Status disconnect(CmId id, Ticks now);
  /// @return what disconnect() would refuse.
  [[nodiscard]] Status may_disconnect(CmId id) const;
  Status resolve_service(CmId id, const CmServiceQuery& ask, const AhAttr& path, const Gid& source,
                         Ticks now);
  Status reply_service(CmId id, const CmServiceReply& answer, Ticks now);
  /// Ends whatever the id is in; it brings no events any more.
  void close(CmId id, Ticks now);
  /// close(), but a request to connect is as if it had not come: it comes again.
  void drop(CmId id, Ticks now);
  /// The QP of a connection has failed.
  void on_failure(CmId id, std::string text, Ticks now);

  /// Attributes for Qp::connect(): once the peer's terms are known.
  Result<QpAttr> qp_attr(CmId id) const;
  [[nodiscard]] const Conversation* find(CmId id) const;

  // The link and the clock.
  void on_mad(const AhAttr& from, std::span<const std::byte, wire::kMadBytes> bytes, Ticks now);
  void on_time(Ticks now);
  [[nodiscard]] Ticks deadline() const noexcept { return due_.empty() ? Ticks{} : due_.begin()->first; }

  [[nodiscard]] const AgentCounters& counters() const noexcept { return counters_; }
  /// Whether anybody is being told of an end and has not answered.
  [[nodiscard]] bool is_releasing() const noexcept;
  /// Ids, also those in timewait that the application has closed.
  [[nodiscard]] std::size_t size() const noexcept { return conversations_.size(); }

 private:
  // CA GUID, communication id or QPN, and where it speaks from: who knows another's numbers is not him
  using Remote = std::tuple<std::uint64_t, std::uint32_t, Gid>;
  using SidrKey = std::pair<Gid, std::uint32_t>;  // sender and its request id

  struct Received {
    const AhAttr& from;
    const wire::MadHeader& header;
    wire::CmBody body;
    Ticks now;
  };

  // agent.cc
  Conversation* get(CmId id);
  Conversation* make(PortSpace space);
  Result<Conversation*> in(CmId id, State state, const char* what);
  Result<Conversation*> start(CmId id, const CmAddress& from, const Gid& source);
  [[nodiscard]] wire::CmReq request_of(const Conversation& c, const CmConnect& ask) const;
  void arm(Conversation& c, Ticks due);
  void disarm(Conversation& c) { arm(c, Ticks{}); }
  void say(const Conversation& c, const wire::Mad& mad);
  void say_until(Conversation& c, const wire::Mad& mad, State state, Ticks now, std::uint64_t patience_ns);
  void repeat(Conversation& c);
  void on_due(Conversation& c, Ticks now);
  void on_silence(Conversation& c, Ticks now);
  void begin_disconnect(Conversation& c, Ticks now);
  void enter_timewait(Conversation& c, Ticks now) { enter_timewait(c, now, config_.times.timewait); }
  void enter_timewait(Conversation& c, Ticks now, std::uint64_t for_ns);
  void remember(Conversation& c, Ticks now);
  void finish(Conversation& c);
  void unindex(Conversation& c);
  void release_port(Conversation& c);
  void forget(Conversation& c);
  void stop_waiting(Conversation& c);
  [[nodiscard]] CmEvent event_of(const Conversation& c, CmEventType type) const;
  void tell(const Conversation& c, CmEvent&& event);
  void tell(const Conversation& c, CmEventType type) { tell(c, event_of(c, type)); }
  void send_reject(const Conversation& c, wire::CmAbout about, CmReject reason,
                   std::span<const std::byte> private_data = {});
  [[nodiscard]] wire::Mad timeout_reject(const Conversation& c, wire::CmAbout about) const;

  // agent_messages.cc
  /// Tells of a request, which `index` makes known. What nobody can be told of, for want of memory, is not
  /// kept.
  template <std::size_t N, typename Index>
  void announce(Conversation& c, CmEventType type, const std::array<std::byte, N>& private_data,
                Index&& index);
  void on_req(const Received& in);
  void on_duplicate_req(Conversation& c, Ticks now);
  void on_rep(const Received& in);
  void on_rtu(const Received& in);
  void on_rej(const Received& in);
  bool on_rejected_request(Conversation& c, const wire::CmRej& rej, Ticks now);
  void on_mra(const Received& in);
  void on_dreq(const Received& in);
  void end_by_peer(const wire::CmDreq& dreq, const Received& in);
  void on_drep(const Received& in);
  void on_lap(const Received& in);
  void on_sidr_req(const Received& in);
  void on_sidr_rep(const Received& in);
  /// The conversation that a message names as its receiver's, if it comes from its other end.
  Conversation* addressed(std::uint32_t id, const AhAttr& from);
  [[nodiscard]] CmReject judge(const wire::CmReq& req, const AhAttr& from) const;
  void refuse(const Received& in, const wire::CmReq& req, CmReject reason);
  bool end_stale(const Remote& qp, Ticks now);
  /// Who listens for a REQ, or for a SIDR_REQ if `is_datagram`: port spaces other than kIb are for one of
  /// them.
  [[nodiscard]] CmId listener_of(std::uint64_t service, const Gid& destination, bool is_datagram);

  AgentConfig config_;
  AgentHost& host_;
  Random random_;
  Bindings bindings_;
  AgentCounters counters_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Conversation>> conversations_;  // by id
  std::map<Remote, CmId> by_remote_id_;
  std::map<Remote, CmId> by_remote_qpn_;
  std::map<SidrKey, CmId> by_sidr_;
  DueTimes due_;
  std::vector<CmId> remembered_;  // round and round
  std::size_t next_remembered_ = 0;
};

}  // namespace uroce::cm
