/// A peer for the stock programs of librdmacm, over uroce's public API.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "uroce/ah.h"
#include "uroce/cm.h"
#include "uroce/cq.h"
#include "uroce/mr.h"

namespace uroce::interop {

using namespace std::chrono_literals;

template <typename T>
T need(Result<T> made) {
  if (!made) throw std::runtime_error(made.error().text);
  return std::move(made).value();
}

inline void need_ok(const Status& status) {
  if (!status) throw std::runtime_error(status.error().text);
}

inline void need_true(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// What the command line says. Names are those of the stock programs' options where they have one.
struct Options {
  CmAddress to{};             ///< the server; zero: be it
  std::uint16_t port = 7471;  ///< server: to listen at
  std::size_t connections = 1;
  std::uint32_t messages = 10;  ///< per connection and direction
  std::uint32_t bytes = 100;    ///< of a message
  unsigned rounds = 1;          ///< of connecting and ending, one after the other
  bool sender = false;          ///< mckey: sends, else receives
  bool ends_first = false;      ///< ends its connections itself
};

/// The device with its manager.
struct Port {
  Device& device;
  Cm& cm;
  Pd& pd;
  CmChannel& channel;

  /// The next event of an id, of a type.
  CmEvent next(CmEventType type, std::chrono::milliseconds patience = 20s);
};

/// A QP with memory for the largest receive, which all of them share: nobody looks at the bytes but at their
/// number, for the stock programs send what happens to be in theirs.
struct Node {
  Node(Port& its_port, QpType type, const Options& options);

  void post_receives();
  void post_sends(const SendWr& pattern);
  /// Waits for so many completions of either kind. @return the last one
  Wc wait(Cq& cq, std::uint32_t count);

  Port& port;
  const Options& options;
  std::uint32_t headroom;  ///< of a receive
  Cq send_cq;
  Cq recv_cq;
  Qp qp;
  Mr memory;
  CmId id{};
};

/// As ucmatose: messages from the server, then from the client, then the end.
void run_cmatose(Port& port, const Options& options);
/// As cmtime: connections without data, all at once; `options.rounds` times.
void run_cmtime(Port& port, const Options& options);
/// As udaddy: messages from the client, then from the server.
void run_udaddy(Port& port, const Options& options);
/// As mckey; `options.to` is the group.
void run_mckey(Port& port, const Options& options);

/// Tells the test that the stock program may start.
void say_ready();

}  // namespace uroce::interop
