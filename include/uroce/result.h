/// Results of calls that can fail. Standard library only.
#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace uroce {

/// What kind of failure. Command line programs exit with exit_code(), drop-in libraries map it to errno.
enum class Errc : std::uint8_t {
  kInvalid,      ///< argument out of range or inconsistent (EINVAL)
  kBadState,     ///< not allowed in the object's present state (EINVAL)
  kNoMemory,     ///< memory or hugepages ran out (ENOMEM)
  kLimit,        ///< a configured bound is reached (ENOSPC)
  kBusy,         ///< the object is still in use (EBUSY)
  kNotFound,     ///< no such object, port, interface or address (ENODEV)
  kNameInUse,    ///< a link name or address is taken by a live process (EADDRINUSE)
  kNoHugepages,  ///< hugepages are missing (ENOMEM)
  kPermission,   ///< the caller lacks a right (EPERM)
  kConfig,       ///< configuration text is wrong (EINVAL)
  kTimeout,      ///< the peer or the system did not answer in time (ETIMEDOUT)
  kUnsupported,  ///< this build or port cannot do it (EOPNOTSUPP)
  kSystem,       ///< a system call failed (EIO)
  kPeer,         ///< the peer answered something unusable (EPROTO)
  kOtherLoop,    ///< objects that go together belong to different loops (EINVAL)
};

/// Exit status that a program ends with on this failure: distinct for each, 0..2 are never used.
[[nodiscard]] constexpr int exit_code(Errc code) noexcept {
  return 10 + static_cast<int>(code);
}

/// A failure: its kind, and one line that says what is wrong and how to mend it.
struct Error {
  Errc code = Errc::kInvalid;
  std::string text;
};

/// A value or an Error; control path only. Names follow std::expected so that it can become an alias. Ask
/// has_value() first: value(), * and -> of an Error, and error() of a value, throw std::bad_variant_access.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  template <typename F>
  auto and_then(F&& next) && -> decltype(next(std::declval<T>())) {
    if (!has_value()) return error();
    return std::forward<F>(next)(std::move(*this).value());
  }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error; error() of a success is an empty one.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  [[nodiscard]] bool has_value() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  [[nodiscard]] const Error& error() const noexcept { return error_; }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace uroce
