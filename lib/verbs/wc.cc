#include "uroce/wc.h"

#include <array>

#include "transport/faults.h"

namespace uroce {

std::string_view to_string(WcStatus status) noexcept {
  constexpr std::array<std::string_view, 22> kNames{"success",
                                                    "local length error",
                                                    "local QP operation error",
                                                    "local EE context operation error",
                                                    "local protection error",
                                                    "Work Request Flushed Error",
                                                    "memory management operation error",
                                                    "bad response error",
                                                    "local access error",
                                                    "remote invalid request error",
                                                    "remote access error",
                                                    "remote operation error",
                                                    "transport retry counter exceeded",
                                                    "RNR retry counter exceeded",
                                                    "local RDD violation error",
                                                    "remote invalid RD request",
                                                    "aborted error",
                                                    "invalid EE context number",
                                                    "invalid EE context state",
                                                    "fatal error",
                                                    "response timeout error",
                                                    "general error"};
  return raw(status) < kNames.size() ? kNames[raw(status)] : "unknown";
}

std::string_view describe_vendor_err(std::uint8_t vendor_err) noexcept {
  return vendor_err < transport::kFaults.size() ? transport::kFaults[vendor_err].text : "unknown";
}

}  // namespace uroce
