#include "uroce/xrcd.h"

#include <new>

#include "verbs/xrcd_impl.h"

namespace uroce {

Xrcd::Xrcd(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Xrcd::Xrcd(Xrcd&&) noexcept = default;
Xrcd& Xrcd::operator=(Xrcd&&) noexcept = default;
Xrcd::~Xrcd() = default;

Result<Xrcd> Xrcd::create(Device& device) {
  try {
    return Xrcd(std::make_unique<Impl>(device.impl()));
  } catch (const std::bad_alloc&) {
    return Error{Errc::kNoMemory, "no memory for an XRC domain"};
  }
}

}  // namespace uroce
