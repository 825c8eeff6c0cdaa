/// The devices that this process has open, each by the one name that DPDK has for it.
#pragma once

#include <string>
#include <utility>

#include "uroce/result.h"

namespace uroce::drivers::dpdk {

/// A name that is taken until the object is gone.
///
/// Threads: any takes and gives back.
class OpenName {
 public:
  /// @return kNameInUse
  static Result<OpenName> take(std::string name);
  OpenName(OpenName&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  OpenName& operator=(OpenName&&) = delete;
  ~OpenName();

  [[nodiscard]] const std::string& text() const noexcept { return name_; }

 private:
  explicit OpenName(std::string name) noexcept : name_(std::move(name)) {}

  std::string name_;  // empty: moved away
};

}  // namespace uroce::drivers::dpdk
