#include "uroce/mr.h"

#include <bit>
#include <new>
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

Status check_access(std::uint32_t flags) {
  constexpr std::uint32_t kKnown = access::kAll | access::kMwBind | access::kFlushGlobal |
                                   access::kFlushPersistent | access::kInvalidatable | access::kZeroBased;
  constexpr std::uint32_t kWrites = access::kRemoteWrite | access::kRemoteAtomic;
  if ((flags & kWrites) != 0 && (flags & access::kLocalWrite) == 0) {
    return Error{Errc::kInvalid, "remote write and atomic access need local write access too"};
  }
  if ((flags & ~kKnown) != 0) return Error{Errc::kInvalid, "unknown access flags"};
  if ((flags & access::kFlushPersistent) != 0 && !mem::can_write_back()) {
    return Error{Errc::kUnsupported, "this processor cannot write its caches back from user space"};
  }
  return {};
}

bool lies_in(std::span<const std::byte> whole, std::span<const std::byte> part) noexcept {
  const auto first = std::bit_cast<std::uintptr_t>(whole.data());
  const auto at = std::bit_cast<std::uintptr_t>(part.data());
  return at >= first && at - first < whole.size();
}

std::uint64_t address_of(std::span<std::byte> memory) noexcept {
  return std::bit_cast<std::uint64_t>(memory.data());
}

mem::Region region_of(std::span<std::byte> memory, std::uint64_t addr, std::uint32_t pd,
                      std::uint32_t access_flags) noexcept {
  return {.addr = addr,
          .length = memory.size(),
          .pd = pd,
          .access = access_flags,
          .shift = address_of(memory) - addr};
}

}  // namespace

struct Mr::Impl {
  Impl(Device::Impl& device_impl, std::span<std::byte> bytes, const mem::Region& of, std::uint32_t region_key)
      : device(device_impl), memory(bytes), region(of), key(region_key) {}
  ~Impl() { device.keys.remove(key); }  // before `owned` goes
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Device::Impl& device;
  std::optional<mem::HugeBuffer> owned;
  std::span<std::byte> memory;
  mem::Region region;
  std::uint32_t key;
};

Mr::Mr(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Mr::Mr(Mr&&) noexcept = default;
Mr& Mr::operator=(Mr&&) noexcept = default;
Mr::~Mr() = default;

Result<Mr> Mr::reg(Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags) {
  return reg(pd, memory, access_flags, address_of(memory));
}

Result<Mr> Mr::reg(Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags, std::uint64_t addr) {
  if (Status fits = check_access(access_flags); !fits) return fits.error();
  if (addr + memory.size() < addr) return Error{Errc::kInvalid, "the region would pass the last address"};
  const mem::Region region = region_of(memory, addr, pd.number(), access_flags);
  auto key = pd.device().keys.insert(region);
  if (!key) return key.error();
  try {
    return Mr(std::make_unique<Impl>(pd.device(), memory, region, *key));
  } catch (const std::bad_alloc&) {
    pd.device().keys.remove(*key);
    return Error{Errc::kNoMemory, "no memory for another memory region"};
  }
}

Result<Mr> Mr::alloc(Pd& pd, std::size_t bytes, std::uint32_t access_flags) {
  auto buffer = mem::HugeBuffer::allocate(bytes, pd.device().config.no_huge);
  if (!buffer) return buffer.error();
  auto mr = reg(pd, buffer->bytes().first(bytes), access_flags);
  if (mr) mr->impl_->owned = std::move(*buffer);
  return mr;
}

Status Mr::dereg() {
  Status status = impl_->device.keys.remove_unbound(impl_->key);
  if (status) impl_.reset();
  return status;
}

Status Mr::rereg(std::uint32_t changes, Pd& pd, std::span<std::byte> memory, std::uint32_t access_flags) {
  const bool moves = (changes & mr_change::kTranslation) != 0;
  const bool joins = (changes & mr_change::kPd) != 0;
  const std::uint32_t access = (changes & mr_change::kAccess) != 0 ? access_flags : impl_->region.access;
  if (changes == 0 || changes > (mr_change::kTranslation | mr_change::kPd | mr_change::kAccess)) {
    return Error{Errc::kInvalid, "a region is registered anew with another memory, PD or access"};
  }
  if (joins && &pd.device() != &impl_->device) {
    return Error{Errc::kInvalid, "the PD belongs to another device"};
  }
  if (Status fits = check_access(access); !fits) return fits;
  const std::span<std::byte> bytes = moves ? memory : impl_->memory;
  const std::uint64_t addr = moves ? address_of(memory) : impl_->region.addr;
  const mem::Region region = region_of(bytes, addr, joins ? pd.number() : impl_->region.pd, access);
  if (Status replaced = impl_->device.keys.replace(impl_->key, region); !replaced) return replaced;
  impl_->memory = bytes;
  impl_->region = region;
  if (impl_->owned && !lies_in(impl_->owned->bytes(), bytes)) impl_->owned.reset();
  return {};
}

std::span<std::byte> Mr::memory() const noexcept {
  return impl_->memory;
}
std::uint64_t Mr::addr() const noexcept {
  return impl_->region.first();
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
