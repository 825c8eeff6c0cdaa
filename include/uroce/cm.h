/// Connection management: QPs connected by IP address and port, as RDMA-CM does it, with any RoCE v2 peer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "uroce/cm_types.h"
#include "uroce/device.h"
#include "uroce/qp.h"

namespace uroce {

struct CmOptions {
  /// A connected peer of whom nothing is heard for so long is gone: its QP goes to Error and the connection
  /// ends. Idle peers are asked. Only uroce peers, unless `keepalive_all`. 0: never.
  std::chrono::milliseconds keepalive{300};
  bool keepalive_all = false;
  /// Connections and listeners at a time.
  unsigned max_ids = 1U << 20;
};

/// The options that a device was configured with.
[[nodiscard]] CmOptions cm_options(const Config& config);

/// The communication manager of a device: QP 1 and a thread that answers it. In Mode::kApp that thread also
/// runs the loops, now and then, while the application does not.
///
/// Threads: any. Lifetime: outlives its channels, listeners and connections; the Device outlives it.
/// Source: IBA 12, A11.
class Cm {
 public:
  /// @return kBusy if the device has one.
  static Result<Cm> open(Device& device, const CmOptions& options);
  static Result<Cm> open(Device& device) { return open(device, cm_options(device.config())); }
  Cm(Cm&&) noexcept;
  Cm& operator=(Cm&&) noexcept;
  ~Cm();

  [[nodiscard]] Device& device() const noexcept;
  /// Differs with each Cm, so that peers know a restarted one.
  [[nodiscard]] std::uint64_t ca_guid() const noexcept;
  /// "cm_received", "cm_rejected", ...
  [[nodiscard]] std::vector<Counter> counters() const;
  /// Ids in use, also those in timewait that are closed.
  [[nodiscard]] std::size_t ids() const;

  /// The way to `to`: which of the device's addresses, and its index in the GID table.
  /// @param from  the address to use; zero: whichever reaches `to`
  /// @return kNotFound if none does.
  [[nodiscard]] Result<AhAttr> route(const Gid& to, const Gid& from = {}) const;
  /// The same, once the Ethernet address behind it is known. Blocks.
  /// @return kTimeout if nobody answers.
  [[nodiscard]] Result<AhAttr> resolve(const Gid& to, const Gid& from, std::chrono::milliseconds timeout);

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  explicit Cm(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// Where the events of ids arrive, and what is done with ids: the whole of the communication manager for
/// those who move their QPs themselves. Listener and Connection are easier.
///
/// An id is created, may be bound, and then either listens, or asks for a connection or a service. Requests
/// that arrive bring new ids, of the listener's channel. Each id is closed at last.
///
/// Threads: any. Lifetime: the Cm outlives it; destruction closes its ids.
class CmChannel {
 public:
  static Result<CmChannel> create(Cm& cm);
  CmChannel(CmChannel&&) noexcept;
  CmChannel& operator=(CmChannel&&) noexcept;
  ~CmChannel();

  /// Takes the next event, if there is one.
  [[nodiscard]] bool next(CmEvent& event);
  /// Waits for it. Makes progress itself in Mode::kApp.
  /// @return false when the time was over.
  [[nodiscard]] bool wait(CmEvent& event, std::chrono::nanoseconds timeout);
  /// Readable while there are events.
  [[nodiscard]] int fd();

  Result<CmId> create_id(PortSpace space);
  /// @return kNameInUse, kNotFound for an address that is none of the port.
  Status bind(CmId id, const CmAddress& address);
  /// Several ids may be bound to one address and port if all of them share it. Whoever listens there has to
  /// be the only one, and shares it no longer. RDMA_OPTION_ID_REUSEADDR.
  /// @return kBadState of one that listens, or that is bound and shares it.
  Status share_port(CmId id, bool shares);
  /// Whether one that is bound to :: leaves IPv4 to another id of the same port: as IPV6_V6ONLY, RFC
  /// 3493 5.3; RDMA_OPTION_ID_AFONLY. No, unless it is said.
  /// @return kBadState of one that listens or asks.
  Status set_v6_only(CmId id, bool is_only);
  /// Bound to any address and a free port unless bind() was called.
  /// @param backlog  requests that may wait for accept() or reject()
  Status listen(CmId id, unsigned backlog);
  /// Asks for a connection; ends in kConnectReply (with `qp`: kEstablished), kRejected or kUnreachable.
  /// @param qp  in Reset or Init: it is connected when the reply comes, and goes to Error when the
  ///            connection ends. It may be moved (Qp&&) meanwhile. If it is destroyed first, the connection
  ///            stays until it is ended, and what comes over it is dropped; a reply that comes later is
  ///            rejected. nullptr: the application moves its QP itself.
  Status connect(CmId id, const CmConnect& ask, Qp* qp = nullptr);
  /// Takes a request; kEstablished follows. With `qp`, `answer.terms` need not name it.
  Status accept(CmId id, const CmAccept& answer, Qp* qp = nullptr);
  /// Refuses a request or, before establish(), a reply.
  Status reject(CmId id, std::span<const std::byte> private_data = {});
  /// After kConnectReply: the QP is ready.
  Status establish(CmId id);
  /// The QP has had its first packet, AsyncEventType::kCommEst: the peer's word is not waited for.
  Status notify_established(CmId id);
  /// Ends a connection; kDisconnected follows. A QP that was given goes to Error. Where there is no
  /// connection yet: kBadState, and nothing changes.
  Status disconnect(CmId id);
  Status resolve_service(CmId id, const CmServiceQuery& ask);
  Status reply_service(CmId id, const CmServiceReply& answer);
  /// Attributes for Qp::connect() or modify(): after kConnectRequest and kConnectReply.
  [[nodiscard]] Result<QpAttr> qp_attr(CmId id) const;
  [[nodiscard]] Result<CmAddress> local(CmId id) const;
  [[nodiscard]] Result<CmAddress> remote(CmId id) const;
  /// Moves an id with its events to another channel of the same Cm.
  Status migrate(CmId id, CmChannel& to);
  /// Ends whatever the id is in. Its events are gone; those of requests that wait at a listener too, and they
  /// are refused. A QP that was given is not touched any more.
  void close(CmId id);
  /// close() of a request that there is no room for now: it is not refused, and comes again when its peer
  /// has heard nothing for a while.
  void drop(CmId id);

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  explicit CmChannel(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
