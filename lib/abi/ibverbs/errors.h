/// How failures of the C++ API become errno.
#pragma once

#include <cerrno>

#include "base/cancellation.h"
#include "uroce/result.h"

namespace uroce::abi {

/// The one table. ibv_* calls return it, or set errno to it and return nullptr.
[[nodiscard]] constexpr int to_errno(Errc code) noexcept {
  switch (code) {
    case Errc::kInvalid:
    case Errc::kBadState:
    case Errc::kConfig:
    case Errc::kOtherLoop:
      return EINVAL;
    case Errc::kNoMemory:
    case Errc::kNoHugepages:
      return ENOMEM;
    case Errc::kLimit:
      return ENOSPC;
    case Errc::kBusy:
      return EBUSY;
    case Errc::kNotFound:
      return ENODEV;
    case Errc::kNameInUse:
      return EADDRINUSE;
    case Errc::kPermission:
      return EPERM;
    case Errc::kTimeout:
      return ETIMEDOUT;
    case Errc::kUnsupported:
      return EOPNOTSUPP;
    case Errc::kSystem:
      return EIO;
    case Errc::kPeer:
      return EPROTO;
  }
  return EIO;
}

/// Likewise, of what the system has refused a moment ago: programs can mend that there are no descriptors.
inline int to_errno(const Error& error) noexcept {
  const bool is_for_descriptors = errno == EMFILE || errno == ENFILE;
  return error.code == Errc::kSystem && is_for_descriptors ? errno : to_errno(error.code);
}

/// Sets errno. @return it, as calls do that answer 0 or an error.
inline int fail(int error) noexcept {
  errno = error;
  return error;
}

/// Sets errno. @return nullptr, as calls do that make an object.
inline decltype(nullptr) fail_null(int error) noexcept {
  errno = error;
  return nullptr;
}

inline int answer(const Status& status) noexcept {
  return status ? 0 : fail(to_errno(status.error().code));
}

/// Runs `make`, which may run out of memory.
template <typename F>
auto guarded(F&& make) noexcept -> decltype(make()) {
  const NotCancelled here;
  try {
    return make();
  } catch (...) {
    return fail_null(ENOMEM);
  }
}

}  // namespace uroce::abi
