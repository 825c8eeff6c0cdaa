/// Runs a mixed schedule in virtual time and checks what each transport promises.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/flow.h"
#include "sim/mix_receives.h"
#include "sim/net.h"
#include "sim/world.h"
#include "transport/queue_pair.h"
#include "transport/xrc_domain.h"

namespace uroce::sim {

/// QPs of all types over a faulty network.
///
/// RC and XRC: each message once, in order. UC: the messages whose packets arrive one right after the other,
/// in the order of arrival; each packet of a WRITE up to the first that is missing leaves its bytes. UD: each
/// datagram as often as it arrives, if the Q_Key is right. All but RC: if there is a receive that is large
/// enough. What arrives is seen at the port; so a network that neither repeats nor reorders is promised
/// each message at most once and in order. IBA 9.7, 9.8.2, 9.8.3.
class MixWorld {
 public:
  explicit MixWorld(const MixPlan& plan);

  /// Runs until everything has completed, then until nothing moves. Throws Violation.
  void run();
  void add_to(Totals& totals) const;

  [[nodiscard]] Net& net() noexcept { return net_; }

 private:
  /// A message that should complete a receive now; not sure where others may have had the last receive.
  struct Arrival {
    std::size_t from;
    std::size_t parcel;
    bool sure;
  };
  struct End {  // one QP
    std::unique_ptr<transport::QueuePair> qp;
    std::vector<std::uint32_t> first_packet;  // of each parcel, and the end of the last one
    std::size_t posted = 0;
    std::size_t completed = 0;
    std::uint64_t next_post_ns = 0;
    // Of what the peer sends.
    std::size_t received = 0;  // RC: parcels of the peer that have had their receive, or need none
    bool whole = false;        // UC: no packet of the message was missing so far
    bool sure = true;          // UC: it certainly had a receive
    std::uint32_t next_packet = 0;
    std::deque<Arrival> expected;
  };

  void open(std::size_t index);
  void connect(std::size_t index);
  void watch();
  void on_arrival(unsigned at, const wire::PacketView& packet);
  void on_uc_packet(std::size_t index, const wire::PacketView& packet);
  void on_datagram(std::size_t index, const wire::PacketView& packet);
  bool has_place(const MixQp& qp, const Parcel& parcel, std::uint32_t offset, bool first);
  void place(std::size_t to, const Parcel& parcel, std::uint32_t offset, std::uint32_t size);

  bool step();
  bool run_endpoint(unsigned at);
  void take_completions(Endpoint& endpoint);
  void take_events(unsigned at);
  void end_burst(unsigned at);
  void jump();

  bool post_sends(std::size_t index);
  [[nodiscard]] bool may_post(std::size_t index) const noexcept;
  bool post(std::size_t index, const Parcel& parcel);
  void on_send_completion(std::size_t index, const Wc& wc);
  void on_receive_completion(std::size_t index, const Wc& wc);
  [[nodiscard]] Arrival next_arrival(std::size_t index, const Wc& wc);
  void check_received(std::size_t index, const Wc& wc, const Arrival& arrival);
  void check_network_header(const Arrival& arrival, std::size_t index, const std::vector<Piece>& pieces);
  [[nodiscard]] bool matches(const Wc& wc, const Arrival& arrival) const noexcept;
  [[nodiscard]] bool has_data(std::size_t index, const Wc& wc, const Arrival& arrival);

  void check_memory();
  void check_counters(unsigned at);
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] std::uint64_t limit_ns() const;
  [[nodiscard]] std::uint64_t timeout_ns() const noexcept;
  [[nodiscard]] Ticks now() const noexcept;
  [[nodiscard]] std::string name(std::size_t index, const char* what) const;
  [[nodiscard]] std::span<const std::byte> data_of(const Parcel& parcel);

  const MixPlan& plan_;
  Random random_;
  Net net_;
  std::uint64_t now_ns_ = 0;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<MixReceives>> queues_;
  transport::XrcDomain domain_;  // of the one endpoint that has XRC targets
  std::vector<End> ends_;
  std::unordered_map<std::uint32_t, std::size_t> index_of_qpn_;
  std::vector<std::uint64_t> bad_qkeys_;  // by endpoint
  std::vector<std::byte> scratch_;
  std::string broken_promise_;
  std::uint64_t delivered_ = 0;
};

}  // namespace uroce::sim
