/// Short measurements that are compared: taken in turns, so that what the machine does meanwhile meets all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "apps/common/samples.h"
#include "apps/common/worker.h"

namespace uroce::apps {

/// One who is measured.
struct Turn {
  std::string name;  ///< among those that are compared with it
  Pair* pair = nullptr;
  Json client{};  ///< the requests of a sample
  Json server{};
  std::uint64_t limit_ns = 0;
};

/// One sample. @return the failure with the turn's name.
Result<Reached> take(const Turn& turn);

/// `rounds` samples of each, A B A B. `on_step` hears what is going on.
/// @param look  called before each sample and after the last
/// @return by name; the first failure
Result<std::map<std::string, Samples>> take_in_turns(std::span<const Turn> turns, unsigned rounds,
                                                     const std::function<void(const std::string&)>& on_step,
                                                     const std::function<void()>& look);

}  // namespace uroce::apps
