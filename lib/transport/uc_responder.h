/// The receiving half of a UC QP.
#pragma once

#include "transport/message_sink.h"

namespace uroce::transport {

/// Responder of one UC QP: a message arrives whole or is dropped, and nobody is told. IBA 9.8.2.2.
///
/// Threads: loop.
class UcResponder : private MessageSink {
 public:
  static constexpr wire::Transport kTransport = wire::Transport::kUc;
  static constexpr bool kIsConnected = true;
  static constexpr bool kReceives = true;

  explicit UcResponder(QpContext& qp) noexcept : MessageSink(qp, partial_message_) {}

  using MessageSink::refuse_addresses;

  void reset() noexcept {
    expected_psn_ = Psn{};
    reset_message();
  }
  void start() noexcept { expected_psn_ = qp_.attr.rq_psn; }
  void resize_resources() noexcept {}
  void on_request(const wire::PacketView& packet) noexcept;

  [[nodiscard]] bool has_responses() const noexcept { return false; }
  bool transmit(TxContext&) noexcept { return true; }
  void drop_responses() noexcept {}
  using MessageSink::flush;
  [[nodiscard]] Psn expected_psn() const noexcept { return expected_psn_; }

 private:
  void abandon_message() noexcept;

  Psn expected_psn_;
  PartialMessage partial_message_;
};

}  // namespace uroce::transport
