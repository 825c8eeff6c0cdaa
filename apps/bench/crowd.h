/// Many QPs of one end on one completion queue, and the work that they are given.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/endpoint.h"
#include "apps/common/sample.h"

namespace uroce::apps {

/// WRITEs that a crowd keeps in flight.
struct Load {
  std::uint32_t bytes = 64;       ///< of each, at most Crowd::kMemoryBytes
  std::uint32_t list = 1;         ///< posted at a time, the last of them signaled
  std::uint32_t outstanding = 1;  ///< lists in flight, of all QPs together
  bool random_qp = false;         ///< each list to any QP; false: QPs take turns
  bool random_region = false;     ///< each list into another region of the peer
  std::uint64_t gap_ns = 0;       ///< between lists; 0: as fast as they complete

  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static Load from(const Json& json);
};

/// QPs, connected one to one with those of the other end's crowd.
///
/// Threads: one. Lifetime: Device and Pd outlive it.
class Crowd {
 public:
  static constexpr std::size_t kMemoryBytes = 1U << 20U;
  static constexpr std::uint32_t kMaxLists = 1024;  ///< in flight
  static constexpr std::uint32_t kMaxList = 16;

  static Result<Crowd> create(Device& device, Pd& pd, bool give_way);

  [[nodiscard]] Json describe() const;
  void meet(const Json& peer);
  [[nodiscard]] const Gid& peer_gid() const noexcept { return peer_gid_; }

  /// Creates `count` more QPs. @return their numbers and what it took: {"qpns", "ns", "bytes"}
  Result<Json> make(std::uint32_t count, std::uint32_t send_depth, std::uint32_t recv_depth);
  /// Connects the next ones with these. @return {"ns", "bytes"}
  Result<Json> join(const Json& qpns);
  /// Registers `count` regions of 64 bytes. @return {"ns"}
  Result<Json> add_regions(std::uint32_t count);
  /// Keys of `count` regions from the `first`. @return {"rkeys"}
  [[nodiscard]] Json rkeys(std::uint32_t first, std::uint32_t count) const;
  void learn_rkeys(const Json& rkeys);
  [[nodiscard]] std::size_t size() const noexcept { return qps_.size(); }

  /// Messages per second; the peer only serves.
  Result<Json> rate(const Load& load, const Sample& sample);
  /// Time from post to completion of one WRITE of `sample.bytes` at a time on the first QP.
  Result<Json> one_at_a_time(const Sample& sample);

  /// The same work in small steps, beside something else.
  void begin(const Load& load);
  /// @return messages that have completed.
  [[nodiscard]] std::uint32_t step() noexcept;
  /// Waits for what is in flight. @return what has gone wrong since begin(), if anything
  Status drain(Patience& patience) noexcept;

 private:
  Crowd(Device& device, Pd& pd, Mr memory, Cq cq, std::uint32_t gid_index, bool give_way)
      : device_(&device),
        pd_(&pd),
        memory_(std::move(memory)),
        cq_(std::move(cq)),
        gid_index_(gid_index),
        give_way_(give_way) {}

  [[nodiscard]] std::uint64_t random() noexcept;
  [[nodiscard]] bool post(std::size_t qp) noexcept;
  /// @return messages that have completed.
  std::uint32_t reap() noexcept;
  void fill() noexcept;

  Device* device_;
  Pd* pd_;
  Mr memory_;
  Cq cq_;
  std::uint32_t gid_index_;
  bool give_way_;
  std::vector<Qp> qps_{};
  std::size_t joined_ = 0;
  std::vector<Mr> regions_{};
  std::vector<std::uint32_t> peer_regions_{};
  std::uint64_t peer_addr_ = 0;
  Rkey peer_rkey_{};
  Ece agreed_;
  Gid peer_gid_{};
  TickClock clock_ = TickClock::calibrate();

  Load load_{};
  // Members, because to construct them for each list would be a good part of its cost.
  std::array<Sge, kMaxList> sges_{};
  std::array<SendWr, kMaxList> wrs_{};
  std::array<Wc, 32> wcs_{};
  std::uint32_t in_flight_ = 0;  // lists
  std::size_t next_qp_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t random_ = 88172645463325252U;
  std::uint64_t due_ = 0;  // ticks: of the next list
  std::string failure_{};
};

}  // namespace uroce::apps
