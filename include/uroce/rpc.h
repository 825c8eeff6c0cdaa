/// Calls: requests and replies between a server and its clients, each client on a connection of its own that
/// is made again when it ends. Built on MessageChannel.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "uroce/cm.h"
#include "uroce/message_channel.h"

namespace uroce {

/// A call of a client. The low 32 bits are below RpcClientAttr::calls, and no two calls that are under way
/// share them: an index for what the application knows of it.
enum class RpcCall : std::uint64_t {};

struct RpcClientAttr {
  CmAddress to{};                           ///< of the server
  CmAddress from{};                         ///< zero IP: whichever reaches `to`; port 0: a free one
  std::uint32_t message_bytes = 2048;       ///< of the longest request or reply; both ends' is what counts
  std::uint32_t calls = 256;                ///< that may be under way
  unsigned loop = 0;                        ///< which of the device's loops it belongs to
  std::chrono::milliseconds timeout{5000};  ///< for the answer to an attempt to connect
  /// Between the end of a connection and the first attempt to make it again; then twice as long, and
  /// 1 ms at least, each time, up to `longest_pause`; each a random part longer, up to a half. It is as short
  /// as at first again after a connection that brought a reply, or that lived as long as `longest_pause`.
  std::chrono::milliseconds pause{1};
  std::chrono::milliseconds longest_pause{1000};
  bool reconnects = true;  ///< false: a connection that has ended is not made again
};

/// How a call ended.
enum class RpcOutcome : std::uint8_t {
  kReplied,
  kRefused,  ///< the server answered with RpcServer::refuse()
  kTimeout,  ///< no reply in time: the server may have served it, or may do so later, or not
  kEnded,    ///< the connection ended before the reply came: likewise, even while the next connection is used
};

[[nodiscard]] std::string_view to_string(RpcOutcome outcome) noexcept;

/// The end of a call.
struct RpcReply {
  RpcCall call{};
  RpcOutcome outcome = RpcOutcome::kEnded;
  std::uint64_t connection = 0;  ///< that it was told of: the how many-th of RpcClientCounts::connections
  Message message;               ///< for kReplied and kRefused: what the server said, where it has arrived
};

/// What a client has done so far.
struct RpcClientCounts {
  std::uint64_t calls = 0;
  std::uint64_t replied = 0;   ///< kRefused included
  std::uint64_t timeouts = 0;  ///< calls that ended so
  std::uint64_t ended = 0;     ///< likewise
  std::uint64_t cancelled = 0;
  std::uint64_t late = 0;         ///< replies whose call had been given up
  std::uint64_t malformed = 0;    ///< messages that are no reply
  std::uint64_t connections = 0;  ///< that were made
};

/// Calls to one server. Each ends once: with a reply, in time or not at all, as the deadline that it was
/// given says. Nothing is sent a second time: whether a call that ended otherwise than by a reply may be made
/// again is known to the application only. Replies come in the order in which the server gives them.
///
///     call() or claim() and commit();  poll() for replies, read them, release() them;  or ask()
///
/// Threads: one at a time. Lifetime: the Cm and the Pd stay where they are and outlive it.
class RpcClient {
 public:
  /// Blocks until there is a connection, or for `attr.timeout`, or a second more if the server is busy.
  /// @return kNotFound if no address reaches the server, kTimeout if nobody answers, kPeer if it refuses
  ///   or is no RpcServer; and as MessageChannel::create().
  static Result<RpcClient> connect(Cm& cm, Pd& pd, const RpcClientAttr& attr);
  RpcClient(RpcClient&&) noexcept;
  RpcClient& operator=(RpcClient&&) noexcept;
  /// Calls that are under way end without a word; notices may not have arrived.
  ~RpcClient();

  /// Begins a call.
  /// @param method   what is asked for, as both ends agreed
  /// @param timeout  until it ends without a reply; of a year and more: never
  /// @param call     its name, if the answer is kOk
  /// @return kNoCredit, kNoSlot: poll, and try again; kEnded: there is no connection now, see is_connected().
  [[nodiscard]] Sent call(std::uint16_t method, std::span<const std::byte> request,
                          std::chrono::nanoseconds timeout, RpcCall& call) noexcept;
  /// The same in two steps: a place for the request in registered memory, and the beginning of the call with
  /// what was written there. The place may be written until commit() has answered otherwise than kNoSlot, or
  /// until call(), notify(), ask() or claim(), which take it; also where the connection ends meanwhile:
  /// commit() then answers kEnded.
  [[nodiscard]] Sent claim(std::size_t bytes, std::span<std::byte>& to) noexcept;
  [[nodiscard]] Sent commit(std::uint16_t method, std::size_t bytes, std::chrono::nanoseconds timeout,
                            RpcCall& call) noexcept;
  /// A request that is not answered, and of whose end nothing is told.
  [[nodiscard]] Sent notify(std::uint16_t method, std::span<const std::byte> request) noexcept;
  /// Begins a call and waits for its end. Other replies wait for poll() meanwhile, and their calls are some
  /// of RpcClientAttr::calls until then.
  /// @param timeout  also for room and for a connection; that is made again once the replies of the former
  ///   one are released, those too that wait for poll()
  /// @return a reply of outcome kReplied or kRefused, to be released; kTimeout; kPeer if the connection
  ///   ended; kInvalid: the request is too long.
  [[nodiscard]] Result<RpcReply> ask(std::uint16_t method, std::span<const std::byte> request,
                                     std::chrono::nanoseconds timeout);

  /// Takes the ends of calls. Messages stay where they are until released. Also makes progress, looks for
  /// calls whose time is over, and makes the connection again once those of the old one are released: to be
  /// called again and again, with room in `out`. @return how many entries of `out` were filled.
  [[nodiscard]] std::size_t poll(std::span<RpcReply> out) noexcept;
  /// Each reply once, in any order; those without a message need none.
  /// @return false if it has been released already; nothing was done.
  bool release(const RpcReply& reply) noexcept;
  /// Gives a call up: nothing more is heard of it.
  /// @return false if it is not under way.
  bool cancel(RpcCall call) noexcept;
  /// Blocks until poll() may have something to do, or the time is over.
  /// @return false when the time was over.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);

  [[nodiscard]] bool is_connected() const noexcept;
  /// Why not, or why not before, in one sentence; empty if there never was a failure.
  [[nodiscard]] const std::string& trouble() const noexcept;
  /// Bytes of the longest request and reply; 0 until the server has told its own.
  [[nodiscard]] std::uint32_t max_message() const noexcept;
  /// Calls that are under way, and those whose end poll() has not told yet.
  [[nodiscard]] std::uint32_t pending() const noexcept;
  [[nodiscard]] const RpcClientCounts& counts() const noexcept;

 private:
  struct Impl;
  explicit RpcClient(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// Each client takes registered memory of some 2.4 x `requests` messages, and whole hugepages (2 MiB) where
/// there are some. It is given in poll(), one client at a time.
struct RpcServerAttr {
  CmAddress at{};                      ///< zero IP: all addresses; port 0: a free one
  std::uint32_t message_bytes = 2048;  ///< of the longest request or reply; both ends' is what counts
  std::uint32_t requests = 256;        ///< of a client that may have arrived and not been answered
  /// At a time, with those that are gone and of whom requests are not done with; more are refused. Those
  /// whose end is not told yet may be as many again.
  std::uint32_t clients = 1024;
  unsigned loop = 0;  ///< which of the device's loops it belongs to
};

/// A client of a server, from its connection to the end of it.
enum class RpcClientId : std::uint32_t {};

/// A request that has arrived, where it has arrived.
struct RpcRequest {
  std::uint16_t method = 0;
  bool wants_reply = true;  ///< false: RpcClient::notify()
  /// Until the client gives it up, as of when it was sent; max(): more than an hour.
  std::chrono::nanoseconds time_left{};
  RpcClientId client{};
  RpcCall call{};  ///< the client's name of it
  Message message;
};

/// What a server has done so far.
struct RpcServerCounts {
  std::uint64_t requests = 0;   ///< that poll() told, notices included
  std::uint64_t replies = 0;    ///< that were sent, refusals included
  std::uint64_t lost = 0;       ///< replies that were not, since the client was gone
  std::uint64_t malformed = 0;  ///< messages that are no request
  std::uint64_t clients = 0;    ///< that were connected
  std::uint64_t refused = 0;    ///< clients, who are told why: too many, no RpcClient, or no memory
};

/// Serves calls. Clients come and go in poll().
///
///     poll() for requests;  reply(), or claim() and commit(), or refuse(), or release(), to each once
///
/// Threads: one at a time. Lifetime: the Cm and the Pd stay where they are and outlive it.
class RpcServer {
 public:
  /// @return kNameInUse, kNotFound as Listener::create(); as MessageChannel::create() for a client's channel.
  static Result<RpcServer> listen(Cm& cm, Pd& pd, const RpcServerAttr& attr);
  RpcServer(RpcServer&&) noexcept;
  RpcServer& operator=(RpcServer&&) noexcept;
  /// The last replies may not have arrived: to their clients the connection has ended.
  ~RpcServer();

  /// Takes requests that have arrived, of each client in the order of its calls. They stay where they are
  /// until answered or released; what a client sent before it went is told, too. Also makes progress, accepts
  /// clients and lets those go that are gone: to be called again and again, with room in `out`.
  /// @return how many entries of `out` were filled.
  [[nodiscard]] std::size_t poll(std::span<RpcRequest> out) noexcept;
  /// Answers, in any order, also later. With kOk or kEnded (the client is gone) the request is done with, and
  /// its message not to be read any more; with kNoCredit and kNoSlot: poll, and try again. With kTooLong,
  /// more than max_message(), it is still to be answered or released. What answers a notice is sent to
  /// nobody. With kAnswered it was done with before.
  [[nodiscard]] Sent reply(const RpcRequest& request, std::span<const std::byte> answer) noexcept;
  /// The same in two steps: a place in registered memory, and sending what was written there. Nothing else is
  /// sent to the client in between.
  [[nodiscard]] Sent claim(const RpcRequest& request, std::size_t bytes, std::span<std::byte>& to) noexcept;
  [[nodiscard]] Sent commit(const RpcRequest& request, std::size_t bytes) noexcept;
  /// Answers that it is not served. @param why  for the client, as RpcReply::message
  [[nodiscard]] Sent refuse(const RpcRequest& request, std::span<const std::byte> why = {}) noexcept;
  /// Done with, without an answer: of a notice, or of a call that its client shall give up.
  /// @return false if it was done with before; nothing was done.
  bool release(const RpcRequest& request) noexcept;
  /// Blocks until poll() may have something to do, or the time is over.
  /// @return false when the time was over.
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout);

  [[nodiscard]] std::uint16_t port() const noexcept;
  /// Clients that are connected.
  [[nodiscard]] std::uint32_t clients() const noexcept;
  /// Where a client is; zero if it is gone and all of it done with.
  [[nodiscard]] CmAddress address_of(RpcClientId client) const noexcept;
  /// Bytes of the longest reply that a client takes; 0 until it has told, or as address_of().
  [[nodiscard]] std::uint32_t max_message(RpcClientId client) const noexcept;
  [[nodiscard]] const RpcServerCounts& counts() const noexcept;

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
