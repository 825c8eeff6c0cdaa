/// One test in two processes: each opens its end of a link, and both meet between the steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include "process/processes.h"
#include "uroce/mr.h"
#include "uroce/qp.h"

namespace uroce::test {

/// What one side tells the other before a step.
struct Facts {
  Gid gid;
  Qpn qpns[8]{};
  std::uint32_t numbers[8]{};
  std::uint64_t addr = 0;
  Rkey rkey{};
};

struct Meeting {
  std::atomic<unsigned> step[2]{};  // that each side has reached
  Facts facts[2];
};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}
template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text);
  return std::move(*result);
}
inline void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().text);
}

/// One of the two processes: a device, a protection domain, a CQ and memory.
class Side {
 public:
  static constexpr std::size_t kBytes = 256 * 1024;

  Side(const std::string& port, unsigned side, Meeting& meeting, bool credits)
      : index(side),
        device(must(Device::open(config_of(port, credits)))),
        pd(must(Pd::create(device))),
        cq(must(Cq::create(device, 256))),
        memory(must(Mr::alloc(pd, kBytes, access::kAll | access::kFlushGlobal | access::kMwBind))),
        meeting_(meeting) {
    own().gid = device.gids().at(1).gid;
    own().addr = memory.addr();
    own().rkey = memory.rkey();
  }

  const unsigned index;  ///< 0 or 1
  Device device;
  Pd pd;
  Cq cq;
  Mr memory;

  [[nodiscard]] bool is_first() const { return index == 0; }
  [[nodiscard]] Facts& own() { return meeting_.facts[index]; }
  [[nodiscard]] const Facts& peer() const { return meeting_.facts[1 - index]; }

  /// Goes on once the other side is here too; answers what the peer asks meanwhile.
  void meet() {
    const unsigned step = meeting_.step[index].fetch_add(1, std::memory_order_acq_rel) + 1;
    await([&] { return meeting_.step[1 - index].load(std::memory_order_acquire) >= step; }, "the peer");
  }
  template <typename F>
  void await(F&& done, const char* what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      require(std::chrono::steady_clock::now() < deadline, std::string("waited in vain for ") + what);
      device.progress();
    }
  }
  [[nodiscard]] Wc next(Cq& from) {
    Wc wc{.status = WcStatus::kGeneralErr};
    await([&] { return from.poll({&wc, 1}) == 1; }, "a completion");
    return wc;
  }
  [[nodiscard]] Wc next() { return next(cq); }
  /// The next completion, which must be a success.
  Wc succeed() {
    const Wc wc = next();
    require(wc.ok(), "a completion failed: " + std::string(describe_vendor_err(wc.vendor_err)));
    return wc;
  }
  [[nodiscard]] QpAttr towards_peer(unsigned qp = 0) const {
    return {.dest_qpn = peer().qpns[qp],
            .rq_psn = Psn{7},
            .sq_psn = Psn{7},
            .access_flags = access::kAll | access::kFlushGlobal,
            .dgid = peer().gid,
            .max_rd_atomic = 8,
            .max_dest_rd_atomic = 8,
            .min_rnr_timer = 1,
            .timeout = 17,
            .qkey = 0x1234};
  }
  void fill(std::size_t at, std::size_t bytes, unsigned tag) {
    for (std::size_t i = 0; i < bytes; ++i) memory.memory()[at + i] = byte_at(i, tag);
  }
  void require_filled(std::size_t at, std::size_t bytes, unsigned tag) const {
    for (std::size_t i = 0; i < bytes; ++i)
      require(memory.memory()[at + i] == byte_at(i, tag), "byte " + std::to_string(i) + " is wrong");
  }

 private:
  static Config config_of(const std::string& port, bool credits) {
    Config config;
    config.port = port;
    config.no_huge = true;
    config.credits = credits;
    return config;
  }
  static std::byte byte_at(std::size_t i, unsigned tag) {
    return static_cast<std::byte>(i * 7 + i / 251 + tag);
  }

  Meeting& meeting_;
};

/// Runs `play` in two processes, one for each port. @return whether both came to their end.
template <typename Play>
[[nodiscard]] bool in_two_processes(const std::string& first_port, const std::string& second_port, Play play,
                                    bool credits = false) {
  Shared<Meeting> meeting;
  const auto body = [&](const std::string& port, unsigned index) {
    try {
      Side side(port, index, *meeting, credits);
      side.meet();
      play(side);
      side.meet();
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "side %u: %s\n", index, error.what());
      return 1;
    }
  };
  Child first([&] { return body(first_port, 0); });
  Child second([&] { return body(second_port, 1); });
  const int first_status = first.wait(60);
  const int second_status = second.wait(60);
  return first_status == 0 && second_status == 0;
}

}  // namespace uroce::test
