/// Two joined devices of one process, and random calls of the public API on them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "api/fuzz_objects.h"

namespace uroce::api {

/// How much happened, so that a run can be seen to have reached what it is for.
struct Totals {
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;       // refused calls
  std::uint64_t posted = 0;       // work requests
  std::uint64_t completions = 0;  // good ones
  std::uint64_t failures = 0;     // completions with an error
  std::uint64_t connections = 0;
  std::uint64_t events = 0;
  std::uint64_t shared = 0;     // receives of SRQs that took a message
  std::uint64_t datagrams = 0;  // UD receives that did
  std::uint64_t addresses = 0;  // added or removed
};

/// Most of what is posted at once.
inline constexpr std::uint32_t kMostSges = 7;
inline constexpr std::uint32_t kMostWrs = 4;

/// What datagrams mostly carry.
inline constexpr std::uint32_t kQkey = 0x1234'5678;

/// Receives that are to be posted together.
struct RecvBatch {
  std::array<std::array<Sge, kMostSges>, kMostWrs> sges;
  std::array<RecvWr, kMostWrs> wrs;
  std::uint32_t count = 0;
  std::uint32_t right = 0;  // those before the first with too many SGEs
};

/// Runs sequences of calls; throws Broken if a promise of the API is broken.
class World {
 public:
  World(const std::string& link, std::uint64_t seed);

  void run_sequence(std::uint64_t seed);
  [[nodiscard]] const Totals& totals() const noexcept { return totals_; }
  /// Goes on counting from those of earlier devices.
  void resume(const Totals& totals) noexcept { totals_ = totals; }

 private:
  using Step = void (World::*)(Side&);

  Step choose();
  Side& side() { return sides_[random_.below(2)]; }
  Side& other(const Side& one) { return &one == sides_.data() ? sides_[1] : sides_[0]; }
  [[nodiscard]] bool chance(unsigned one_in) { return random_.below(one_in) == 0; }
  /// Likewise for something wrong or disturbing, of which tame sequences have little.
  [[nodiscard]] bool wrong(unsigned one_in) { return chance(is_tame_ ? 25 * one_in : one_in); }
  [[nodiscard]] std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_.below(bound));
  }
  void tear_down();
  void check_all();

  // fuzz_control.cc
  void create_pd(Side& on);
  void destroy_pd(Side& on);
  void create_mr(Side& on);
  void register_in_arena(Side& on, PdObject& pd);
  void allocate_mr(Side& on, PdObject& pd);
  void destroy_mr(Side& on);
  void create_cq(Side& on);
  void destroy_cq(Side& on);
  void resize_cq(Side& on);
  void moderate_cq(Side& on);
  void create_qp(Side& on);
  void destroy_qp(Side& on);
  void replace_qp(Side& on);
  void connect(Side& on);
  void modify(Side& on);
  void to_error_or_reset(Side& on);
  void query(Side& on);
  void move_handles(Side& on);
  [[nodiscard]] QpInitAttr random_capacities();
  [[nodiscard]] QpAttr attr_towards(Side& on, Side& peer, Qpn dest, Psn own, Psn peers);
  [[nodiscard]] QpObject* partner_of(QpType type, Side& on);
  void connect_one(Side& on, QpObject& qp, const QpAttr& attr);
  [[nodiscard]] QpAttr random_attr(Side& on);
  void change(QpObject& qp, const QpAttr& attr, std::uint32_t mask);

  // fuzz_shared.cc
  void create_srq(Side& on);
  void destroy_srq(Side& on);
  void resize_srq(Side& on);
  void arm_srq(Side& on);
  void post_srq(Side& on);
  void create_xrcd(Side& on);
  void destroy_xrcd(Side& on);
  void create_target(Side& on);
  [[nodiscard]] bool uses_xrc() const noexcept { return type_ == QpType::kXrcSend; }
  void aim_xrc(Side& on, SendWr& wr);

  // fuzz_datagrams.cc
  void create_ah(Side& on);
  void destroy_ah(Side& on);
  void attach(Side& on);
  void detach(Side& on);
  void change_ip(Side& on);
  void restore_ips(Side& on);
  void check_gids(Side& on);
  void note_ip(Side& on, const std::string& text, bool is_added);
  void choose_path(Side& on, Side& peer, std::uint32_t& sgid_index, Gid& dgid);
  [[nodiscard]] Gid random_group();
  void aim_datagram(Side& on, SendWr& wr);

  // fuzz_windows.cc
  void create_mw(Side& on);
  void destroy_mw(Side& on);
  void bind_type1(Side& on);
  void dereg_mr(Side& on);
  void rereg_mr(Side& on);
  void aim_bind(Side& on, SendWr& wr);
  void aim_invalidate(Side& on, SendWr& wr);
  [[nodiscard]] MwBind random_bind(Side& on, MwObject& mw);

  // fuzz_traffic.cc
  void post_send(Side& on);
  void post_recv(Side& on);
  void poll(Side& on);
  void poll_cq(Side& on, CqObject& cq, std::size_t most);
  void on_completion(Side& on, CqObject& cq, const Wc& wc);
  void events(Side& on);
  void async_events(Side& on);
  void progress(Side& on);
  [[nodiscard]] std::uint32_t wrong_key(const Side& of);
  [[nodiscard]] Sge random_sge(Side& on);
  void calm(QpType type, SendWr& wr);
  void ask_for_options(QpObject& object);
  [[nodiscard]] SendWr random_send(Side& on, QpType type, std::span<Sge> sges);
  void random_receives(Side& on, std::uint32_t max_sge, RecvBatch& batch);

  Random random_{0};
  bool is_tame_ = false;
  QpType type_ = QpType::kRc;  // of most QPs of the sequence
  std::vector<Side> sides_;
  Totals totals_;
  std::uint64_t next_wr_ = 0;
};

}  // namespace uroce::api
