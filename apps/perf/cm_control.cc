// Agreeing by RDMA-CM and SENDs.
#include <fmt/format.h>

#include <cstring>
#include <deque>

#include "apps/common/cm_address.h"
#include "apps/common/cores.h"
#include "apps/common/stop.h"
#include "apps/perf/control.h"

namespace uroce::apps::perf {
namespace {

constexpr std::uint32_t kSlots = 8;                  // receives, and messages on their way
constexpr auto kPatience = std::chrono::seconds(5);  // for a server that is starting

/// Which QP a request is for: the first 4 bytes of its private data; all ones: the one that carries messages.
constexpr std::uint32_t kMessages = 0xffff'ffff;

std::array<std::byte, 4> index_bytes(std::uint32_t index) noexcept {
  std::array<std::byte, 4> bytes{};
  std::memcpy(bytes.data(), &index, bytes.size());
  return bytes;
}

std::uint32_t index_of(const CmEvent& request) noexcept {
  std::uint32_t index = 0;
  std::memcpy(&index, request.private_data().data(), sizeof index);
  return index;
}

class CmControl final : public Control {
 public:
  CmControl(Device& device, const LocalOptions& local)
      : local_(local), give_way_(when_to_give_way(device.config())) {}

  Status open(Device& device, const OnReady& on_ready);
  bool has_news() override;
  Status send(const std::string& line, std::uint64_t until_ns) override;
  Result<std::string> receive(std::uint64_t until_ns) override;
  Result<std::vector<QpAddress>> connect(std::vector<Qp>& qps, const Connecting& with,
                                         std::uint64_t until_ns) override;
  [[nodiscard]] std::uint64_t counted_messages() const noexcept override { return received_; }

 private:
  Status make_messages(Device& device);
  Status meet(const OnReady& on_ready);
  Result<Connection> ask(Qp& qp, std::uint32_t index, const Connecting& with);
  Result<ConnectionRequest> asked(std::uint64_t until_ns);
  Status post_receive(std::uint32_t slot);
  /// Looks for completions once.
  Status look();

  LocalOptions local_;
  GiveWay give_way_;
  CmAddress server_;
  // Each is made from those before.
  std::optional<Cm> cm_;
  std::optional<Listener> listener_;
  std::optional<Pd> pd_;
  std::optional<Cq> cq_;
  std::optional<Mr> memory_;  // receives, then the message that is sent
  std::optional<Qp> qp_;
  std::vector<Connection> connections_;  // messages first
  std::deque<std::string> heard_;
  std::uint64_t received_ = 0;
  bool is_sending_ = false;
  std::optional<Error> failure_;
};

Status CmControl::open(Device& device, const OnReady& on_ready) {
  auto cm = Cm::open(device);
  if (!cm) return cm.error();
  cm_.emplace(std::move(*cm));
  if (auto made = make_messages(device); !made) return made;
  return meet(on_ready);
}

Status CmControl::make_messages(Device& device) {
  auto pd = Pd::create(device);
  if (!pd) return pd.error();
  pd_.emplace(std::move(*pd));
  auto cq = Cq::create(device, 2 * kSlots);
  if (!cq) return cq.error();
  cq_.emplace(std::move(*cq));
  auto memory = Mr::alloc(*pd_, std::size_t{kSlots + 1} * kLongestLine, access::kLocalWrite);
  if (!memory) return memory.error();
  memory_.emplace(std::move(*memory));
  auto qp = Qp::create(*pd_, *cq_, *cq_, {.max_send_wr = kSlots, .max_recv_wr = kSlots, .sq_sig_all = true});
  if (!qp) return qp.error();
  qp_.emplace(std::move(*qp));
  if (auto moved = qp_->modify({.state = QpState::kInit}, qp_attr::kInitMask); !moved) return moved;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (auto posted = post_receive(slot); !posted) return posted;
  }
  return {};
}

Status CmControl::meet(const OnReady& on_ready) {
  if (local_.is_client()) {
    auto server = cm_address(local_.host, local_.tcp_port);
    if (!server) return server.error();
    server_ = *server;
    auto connection = ask(*qp_, kMessages, {});
    if (!connection) return no_server(connection.error(), cm_->device(), "uroce perf -R");
    connections_.push_back(std::move(*connection));
    return {};
  }
  auto listener = Listener::create(*cm_, {.port = local_.tcp_port});
  if (!listener) return listener.error();
  listener_.emplace(std::move(*listener));
  on_ready(cm_->device());
  auto request = asked(0);
  if (!request) return request.error();
  if (index_of(request->peer()) != kMessages)
    return Error{.code = Errc::kPeer, .text = "the peer is no `uroce perf -R`"};
  auto connection = request->accept(*qp_, {});
  if (!connection) return connection.error();
  connections_.push_back(std::move(*connection));
  return {};
}

Result<Connection> CmControl::ask(Qp& qp, std::uint32_t index, const Connecting& with) {
  const auto which = index_bytes(index);
  return Connection::connect(*cm_, qp,
                             {.to = server_,
                              .terms = {.responder_resources = with.depth, .initiator_depth = with.depth},
                              .traffic_class = with.traffic_class,
                              .ack_timeout = with.timeout,
                              .path_mtu = with.path_mtu,
                              .private_data = which,
                              .timeout = kPatience,
                              .patience = kPatience},
                             is_stopped);
}

Result<ConnectionRequest> CmControl::asked(std::uint64_t until_ns) {
  while (until_ns == 0 || now_ns() < until_ns) {
    if (is_stopped()) return stopped();
    if (auto request = listener_->wait(std::chrono::milliseconds(100))) return std::move(*request);
  }
  return Error{.code = Errc::kTimeout, .text = "the peer did not connect its QPs in time"};
}

Result<std::vector<QpAddress>> CmControl::connect(std::vector<Qp>& qps, const Connecting& with,
                                                  std::uint64_t until_ns) {
  for (std::uint32_t i = 0; i < qps.size(); ++i) {
    if (local_.is_client()) {
      auto connection = ask(qps[i], i, with);
      if (!connection) return connection.error();
      connections_.push_back(std::move(*connection));
      continue;
    }
    auto request = asked(until_ns);
    if (!request) return request.error();
    if (index_of(request->peer()) != i)
      return Error{.code = Errc::kPeer, .text = "the peer connects its QPs in another order"};
    const CmAccept answer{.terms = {.responder_resources = with.depth, .initiator_depth = with.depth}};
    auto connection = request->accept(qps[i], answer);
    if (!connection) return connection.error();
    connections_.push_back(std::move(*connection));
  }
  return std::vector<QpAddress>();
}

Status CmControl::post_receive(std::uint32_t slot) {
  const Sge sge = memory_->sge(std::size_t{slot} * kLongestLine, kLongestLine);
  if (qp_->post_recv(RecvWr{.wr_id = slot, .sges = {&sge, 1}})) return {};
  return Error{.code = Errc::kSystem, .text = "the receive queue took no more work requests"};
}

Status CmControl::look() {
  if (failure_) return *failure_;
  Wc wc;
  while (cq_->poll({&wc, 1}) == 1) {
    if (!wc.ok()) {
      const std::string why = qp_->error_text();
      failure_ = Error{.code = Errc::kPeer, .text = "the peer is gone" + (why.empty() ? "" : ": " + why)};
      return *failure_;
    }
    if (wc.opcode != WcOpcode::kRecv) {
      is_sending_ = false;
      continue;
    }
    ++received_;
    const auto slot = static_cast<std::uint32_t>(wc.wr_id);
    const auto bytes = memory_->memory().subspan(std::size_t{slot} * kLongestLine, wc.byte_len);
    heard_.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (auto posted = post_receive(slot); !posted) return posted;
  }
  return {};
}

bool CmControl::has_news() {
  return !look() || !heard_.empty();
}

Status CmControl::send(const std::string& line, std::uint64_t until_ns) {
  if (line.size() > kLongestLine) return Error{.code = Errc::kInvalid, .text = "a message is too long"};
  Patience patience(until_ns, give_way_);
  while (is_sending_) {
    if (auto looked = look(); !looked) return looked;
    if (patience.is_over()) return Error{.code = Errc::kTimeout, .text = "the peer did not listen in time"};
  }
  const std::size_t at = std::size_t{kSlots} * kLongestLine;
  std::memcpy(memory_->memory().data() + at, line.data(), line.size());
  const Sge sge = memory_->sge(at, static_cast<std::uint32_t>(line.size()));
  is_sending_ = qp_->post_send(SendWr{.sges = {&sge, 1}, .opcode = WrOpcode::kSend});
  if (is_sending_) return {};
  return Error{.code = Errc::kPeer, .text = "the peer is gone"};
}

Result<std::string> CmControl::receive(std::uint64_t until_ns) {
  Patience patience(until_ns, give_way_);
  while (heard_.empty()) {
    if (auto looked = look(); !looked && heard_.empty()) return looked.error();
    if (heard_.empty() && patience.is_over())
      return Error{.code = Errc::kTimeout, .text = "the peer did not answer in time"};
  }
  std::string line = std::move(heard_.front());
  heard_.pop_front();
  return line;
}

}  // namespace

Result<std::unique_ptr<Control>> meet_by_cm(Device& device, const LocalOptions& local,
                                            const OnReady& on_ready) {
  auto control = std::make_unique<CmControl>(device, local);
  if (auto opened = control->open(device, on_ready); !opened) return opened.error();
  return std::unique_ptr<Control>(std::move(control));
}

}  // namespace uroce::apps::perf
