#include "api/failing_new.h"

#include <cstdlib>
#include <new>

namespace {

bool may_allocate() noexcept {
  using namespace uroce::api;
  return !fail_for_good && (allocations_left < 0 || allocations_left-- > 0);
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = may_allocate() ? std::malloc(bytes == 0 ? 1 : bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return may_allocate() ? std::malloc(bytes == 0 ? 1 : bytes) : nullptr;
}
// Sanitizers have arrays of their own, which do not come through here.
void* operator new[](std::size_t bytes) {
  return operator new(bytes);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {  // GCC sees free() behind new otherwise
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
