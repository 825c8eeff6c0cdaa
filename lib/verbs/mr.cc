#include "uroce/mr.h"

#include <bit>
#include <optional>

#include "mem/hugepage.h"
#include "mem/write_back.h"
#include "uroce/wr.h"
#include "verbs/device_impl.h"

namespace uroce {

Result<Pd> Pd::create(Device& device) {
  const std::lock_guard lock(device.impl().control);
  return Pd(device.impl(), device.impl().next_pd++);
}

namespace {

constexpr std::uint32_t kKnownAccess =
    access::kAll | access::kFlushGlobal | access::kFlushPersistent | access::kInvalidatable;

}  // namespace

struct Mr::Impl {
  Impl(Device::Impl& device_impl, std::span<std::byte> bytes, std::uint32_t region_key)
      : device(device_impl), memory(bytes), key(region_key) {}
  ~Impl() { device.keys.remove(key); }  // before `owned` goes
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Device::Impl& device;
  std::optional<mem::HugeBuffer> owned;
  std::span<std::byte> memory;
  std::uint32_t key;
};

Mr::Mr(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Mr::Mr(Mr&&) noexcept = default;
Mr& Mr::operator=(Mr&&) noexcept = default;
Mr::~Mr() = default;

Result<Mr> Mr::reg(Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags) {
  const std::uint32_t writes = access::kRemoteWrite | access::kRemoteAtomic;
  if ((access_flags & writes) != 0 && (access_flags & access::kLocalWrite) == 0) {
    return Error{Errc::kInvalid, "remote write and atomic access need local write access too"};
  }
  if ((access_flags & ~kKnownAccess) != 0) return Error{Errc::kInvalid, "unknown access flags"};
  if ((access_flags & access::kFlushPersistent) != 0 && !mem::can_write_back()) {
    return Error{Errc::kUnsupported, "this processor cannot write its caches back from user space"};
  }
  Device::Impl& device = pd.device();
  auto key = device.keys.insert({.addr = std::bit_cast<std::uint64_t>(memory.data()),
                                 .length = memory.size(),
                                 .pd = pd.number(),
                                 .access = access_flags});
  if (!key) return key.error();
  return Mr(std::make_unique<Impl>(device, memory, *key));
}

Result<Mr> Mr::alloc(Pd& pd, std::size_t bytes, std::uint32_t access_flags) {
  auto buffer = mem::HugeBuffer::allocate(bytes, pd.device().config.no_huge);
  if (!buffer) return buffer.error();
  auto mr = reg(pd, buffer->bytes().first(bytes), access_flags);
  if (mr) mr->impl_->owned = std::move(*buffer);
  return mr;
}

std::span<std::byte> Mr::memory() const noexcept {
  return impl_->memory;
}
std::uint64_t Mr::addr() const noexcept {
  return std::bit_cast<std::uint64_t>(impl_->memory.data());
}
Lkey Mr::lkey() const noexcept {
  return Lkey{impl_->key};
}
Rkey Mr::rkey() const noexcept {
  return Rkey{impl_->key};
}
Sge Mr::sge(std::size_t offset, std::uint32_t length) const noexcept {
  return {addr() + offset, length, lkey()};
}

}  // namespace uroce
