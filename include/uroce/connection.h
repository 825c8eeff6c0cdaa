/// Connected QPs in one call each: the easy way to connect, listen and accept.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "uroce/cm.h"

namespace uroce {

/// A connected QP of the application. From here on it is used as any other, until the connection ends: by
/// disconnect() or destruction on either side, or because the peer is gone. The QP is in Error then and its
/// requests are flushed.
///
/// Threads: one at a time. Lifetime: the Cm outlives it; the QP as CmChannel::connect() says.
class Connection {
 public:
  /// Connects `qp`, which is in Reset or Init, to a listener; receives can be posted before in Init. Options
  /// that both ends asked for with Qp::set_ece() are switched on. Blocks for `ask.timeout` at most, or
  /// a second more if a busy peer asks for time (MRA), however much that is.
  /// @return kNotFound if no address reaches it, kTimeout if nobody answers, kPeer if the listener refuses.
  /// `qp` is as it was then, or in Error.
  static Result<Connection> connect(Cm& cm, Qp& qp, const CmConnect& ask);
  /// The same for those who may have to give up before: asks so ten times a second.
  /// @return kTimeout, too, once `gives_up`.
  static Result<Connection> connect(Cm& cm, Qp& qp, const CmConnect& ask,
                                    const std::function<bool()>& gives_up);
  Connection(Connection&&) noexcept = default;
  /// Ends the one that was here.
  Connection& operator=(Connection&& other) noexcept;
  ~Connection();

  /// What the peer said when it was asked, or asked: addresses, terms, private data.
  [[nodiscard]] const CmEvent& peer() const noexcept { return peer_; }
  /// Whether neither side has ended it. Looks at what has happened, does not wait.
  [[nodiscard]] bool is_connected();
  /// Waits until it ends, by the peer or because the peer is gone.
  /// @return false when the time was over.
  [[nodiscard]] bool wait_end(std::chrono::nanoseconds timeout);
  /// Why it ended, one sentence; empty if the peer did so in good order.
  [[nodiscard]] const std::string& end_text() const noexcept { return end_text_; }
  /// Ends it, and waits until the peer knows or a while is over.
  void disconnect();

  [[nodiscard]] CmId id() const noexcept { return id_; }
  /// Where its end is told, for those who wait for several things.
  [[nodiscard]] CmChannel& channel() noexcept { return *channel_; }

 private:
  friend class ConnectionRequest;
  Connection(std::unique_ptr<CmChannel> channel, CmId id, CmEvent&& peer)
      : channel_(std::move(channel)), id_(id), peer_(std::move(peer)) {}
  void end() noexcept;

  std::unique_ptr<CmChannel> channel_;  // nullptr: moved from
  CmId id_{};
  CmEvent peer_;
  bool ended_ = false;
  std::string end_text_;
};

/// Somebody who wants to be connected. Destruction refuses.
///
/// Threads: one at a time. Lifetime: ends before its Listener.
class ConnectionRequest {
 public:
  ConnectionRequest(ConnectionRequest&& other) noexcept
      : cm_(other.cm_), channel_(other.channel_), event_(std::move(other.event_)) {
    other.event_.id = CmId{};
  }
  ConnectionRequest& operator=(ConnectionRequest&&) = delete;
  ~ConnectionRequest();

  /// Addresses, terms and private data.
  [[nodiscard]] const CmEvent& peer() const noexcept { return event_; }
  /// Connects `qp`, which is in Reset or Init. Blocks until the peer is ready, `timeout` at most.
  /// @return kTimeout, kPeer if it gave up: `qp` is in Error then.
  Result<Connection> accept(Qp& qp, const CmAccept& answer,
                            std::chrono::milliseconds timeout = std::chrono::seconds(5));
  void reject(std::span<const std::byte> private_data = {});

 private:
  friend class Listener;
  ConnectionRequest(Cm& cm, CmChannel& channel, CmEvent&& event)
      : cm_(cm), channel_(channel), event_(std::move(event)) {}

  Cm& cm_;
  CmChannel& channel_;
  CmEvent event_;
};

/// Takes requests for connections to one port.
///
/// Threads: one at a time. Lifetime: the Cm stays where it is and outlives it; movable as long as no request
/// of it is alive.
class Listener {
 public:
  /// @param at       address and port; zero IP: all addresses, port 0: a free one
  /// @param backlog  requests that may wait; beyond, peers are refused
  /// @return kNameInUse, kNotFound.
  static Result<Listener> create(Cm& cm, const CmAddress& at, unsigned backlog = 128,
                                 PortSpace space = PortSpace::kTcp);

  /// The port it has.
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Waits for the next request.
  [[nodiscard]] std::optional<ConnectionRequest> wait(std::chrono::nanoseconds timeout);
  /// Readable when there may be one.
  [[nodiscard]] int fd() { return channel_->fd(); }

 private:
  Listener(Cm& cm, std::unique_ptr<CmChannel> channel, std::uint16_t port)
      : cm_(&cm), channel_(std::move(channel)), port_(port) {}

  Cm* cm_;
  std::unique_ptr<CmChannel> channel_;  // closes the id that listens
  std::uint16_t port_ = 0;
};

}  // namespace uroce
