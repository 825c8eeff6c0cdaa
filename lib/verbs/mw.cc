#include "uroce/mw.h"

#include <utility>

#include "uroce/qp.h"
#include "verbs/device_impl.h"

namespace uroce {

Result<Mw> Mw::create(Pd& pd, MwType type) {
  if (type != MwType::kType1 && type != MwType::kType2A && type != MwType::kType2B) {
    return Error{Errc::kInvalid, "memory windows are of type 1, 2A or 2B"};
  }
  auto key = pd.device().keys.insert_window(type, pd.number());
  if (!key) return key.error();
  return Mw(pd.device(), type, Rkey{*key});
}

Mw::Mw(Mw&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), type_(other.type_), rkey_(other.rkey_) {}

Mw& Mw::operator=(Mw&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(type_, other.type_);
  std::swap(rkey_, other.rkey_);
  return *this;
}

Mw::~Mw() {
  if (device_ != nullptr) device_->keys.remove_window(raw(rkey(0)));
}

Result<Rkey> Qp::bind_mw(Mw& mw, const MwBind& bind, std::uint64_t wr_id, std::uint8_t flags) {
  if (mw.type() != MwType::kType1) {
    return Error{Errc::kInvalid, "windows of type 2 are bound by work requests with the opcode kBindMw"};
  }
  const Rkey next = mw.rkey(static_cast<std::uint8_t>(raw(mw.rkey()) + 1));
  if (!post_send(
          {.wr_id = wr_id, .opcode = WrOpcode::kBindMw, .flags = flags, .rkey = next, .bind = &bind})) {
    return Error{Errc::kBadState, "the send queue is full, or the QP takes no work requests in this state"};
  }
  mw.rkey_ = next;
  return next;
}

}  // namespace uroce
