/// The communication manager's agent under random messages, calls and time, as some input spells them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cm/agent.h"

namespace uroce::fuzz {

/// Aborts when a promise is broken: one message is answered by two at most; what is sent is well formed; no
/// id brings an event after close() or after the one that ends it; no more ids than allowed; nothing is left
/// when all are closed.
class CmMachine final : public cm::AgentHost {
 public:
  CmMachine();
  void run(std::span<const std::uint8_t> input);
  [[nodiscard]] std::uint64_t mads() const noexcept { return mads_; }
  [[nodiscard]] std::uint64_t established() const noexcept { return established_; }

  void send(const AhAttr& to, const wire::Mad& mad) override;
  void on_event(CmEvent&& event) override;
  [[nodiscard]] bool is_own(const Gid& gid) const override;
  [[nodiscard]] bool has_heard(CmId id) override;

 private:
  struct Known {
    bool is_ended = false;
    bool is_exited = false;
    std::uint64_t transaction = 0;  ///< of what the agent said last for it
  };

  std::uint8_t take();
  std::uint64_t take(unsigned bytes);
  [[nodiscard]] std::uint32_t some_id();
  [[nodiscard]] CmId some_known();
  [[nodiscard]] wire::Mad sensible(std::uint64_t transaction, std::uint32_t to, std::uint32_t from);
  void mutate(wire::Mad& mad);
  void message();
  void call();
  void open();
  void follow(CmId id);
  void pass_time();
  void finish();

  std::span<const std::uint8_t> input_;
  std::map<CmId, Known> known_;
  wire::Mad last_{};
  unsigned answers_ = 0;
  std::uint64_t mads_ = 0;
  std::uint64_t established_ = 0;
  Ticks now_{1};
  cm::Agent agent_;
};

}  // namespace uroce::fuzz
