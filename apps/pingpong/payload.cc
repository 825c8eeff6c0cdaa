#include "apps/pingpong/payload.h"

#include <algorithm>
#include <cstring>

#include "apps/common/pattern.h"

namespace uroce::apps {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::byte kStockByte{0x7b};

/// Bytes behind the start of each page.
template <typename Bytes, typename F>
void for_each_page(Bytes memory, const std::function<void()>& breathe, F&& visit) {
  constexpr std::size_t kWithoutBreath = 4U << 20U;
  for (std::size_t at = 0; at < memory.size(); at += kPage) {
    if (at % kWithoutBreath == 0 && at > 0) breathe();
    const auto page = memory.subspan(at, std::min(kPage, memory.size() - at));
    visit(page[0], page.subspan(1), at / kPage);
  }
}

std::uint64_t seed_of(std::uint32_t iteration, std::size_t page) noexcept {
  return (std::uint64_t{iteration} << 32U) + page;
}

}  // namespace

void Payload::fill(std::span<std::byte> memory, std::uint32_t iteration) const {
  for_each_page(memory.first(bytes_), breathe_,
                [&](std::byte& first, std::span<std::byte> rest, std::size_t page) {
                  first = std::byte{0};
                  if (is_client_) {
                    fill_pattern(rest, seed_of(iteration, page));
                  } else {
                    std::memset(rest.data(), static_cast<int>(kStockByte), rest.size());
                  }
                });
}

void Payload::check(std::span<const std::byte> memory, std::uint32_t received, std::uint32_t iteration) {
  std::uint64_t not_zero = 0;   // page starts
  std::uint64_t not_stock = 0;  // page starts
  std::uint64_t as_ours = 0;
  std::uint64_t as_stock = 0;
  const auto is_other = [](std::byte b) { return b != kStockByte; };
  for_each_page(memory.first(bytes_), breathe_,
                [&](std::byte first, std::span<const std::byte> rest, std::size_t page) {
                  not_zero += first != std::byte{0} ? 1 : 0;
                  not_stock += is_other(first) ? 1 : 0;
                  as_ours += pattern_errors(rest, seed_of(iteration, page));
                  as_stock += static_cast<std::uint64_t>(std::ranges::count_if(rest, is_other));
                });
  const std::uint64_t ours = as_ours + not_zero;
  const std::uint64_t stock = as_stock + std::min(not_zero, not_stock);
  errors_ += is_client_ ? ours : std::min(ours, stock);
  errors_ += received != bytes_ ? 1 : 0;
}

}  // namespace uroce::apps
