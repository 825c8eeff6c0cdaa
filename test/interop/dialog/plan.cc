#include "plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

namespace uroce::interop {
namespace {

struct Kind {
  std::string_view name;
  Verb verb;
};

constexpr std::array<Kind, 7> kKinds{{{"send", Verb::kSend},
                                      {"sendimm", Verb::kSendImm},
                                      {"write", Verb::kWrite},
                                      {"writeimm", Verb::kWriteImm},
                                      {"read", Verb::kRead},
                                      {"cas", Verb::kCompareSwap},
                                      {"faa", Verb::kFetchAdd}}};

bool is_atomic(Verb verb) noexcept {
  return verb == Verb::kCompareSwap || verb == Verb::kFetchAdd;
}

bool uses_receive(Verb verb) noexcept {
  return verb == Verb::kSend || verb == Verb::kSendImm || verb == Verb::kWriteImm;
}

/// Takes the number before the next colon off `text`.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  const auto word = text.substr(0, text.find(':'));
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return value;
}

void store_word(std::span<std::byte> memory, std::uint64_t offset, std::uint64_t value) noexcept {
  std::memcpy(memory.data() + offset, &value, sizeof value);
}

void copy_place(std::span<std::byte> to, std::span<const std::byte> from, const Request& place) noexcept {
  if (place.length > 0) std::memcpy(to.data() + place.offset, from.data() + place.offset, place.length);
}

std::string first_difference(std::span<const std::byte> want, std::span<const std::byte> have) {
  const auto at = std::mismatch(want.begin(), want.end(), have.begin());
  if (at.first == want.end()) return {};
  return "byte " + std::to_string(at.first - want.begin()) + " is " +
         std::to_string(std::to_integer<unsigned>(*at.second)) + ", must be " +
         std::to_string(std::to_integer<unsigned>(*at.first));
}

}  // namespace

std::uint64_t scramble(std::uint64_t value) noexcept {
  value += 0x9e37'79b9'7f4a'7c15;  // SplitMix64 (Steele, Lea, Flood 2014)
  value = (value ^ value >> 30) * 0xbf58'476d'1ce4'e5b9;
  value = (value ^ value >> 27) * 0x94d0'49bb'1331'11eb;
  return value ^ value >> 31;
}

std::optional<Plan> Plan::parse(const std::string& spec, std::uint64_t seed) {
  std::string_view rest = spec;
  const auto name = rest.substr(0, rest.find(':'));
  rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  const auto bytes = take_number(rest);
  const auto count = rest.empty() ? std::optional<std::uint32_t>{1} : take_number(rest);
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return k.name == name; });
  const bool is_mixed = name == "mixed";
  if (!bytes || !count || *count > Endpoint::kMaxWr) return std::nullopt;
  if (kind == kKinds.end() && !is_mixed && name != "sendread") return std::nullopt;

  Plan plan(seed);
  plan.counter_ = scramble(seed);
  for (std::uint32_t i = 0; i < *count; ++i) {
    const std::uint64_t chance = scramble(seed + i);
    Verb verb = i % 2 == 0 ? Verb::kSend : Verb::kRead;
    std::uint32_t size = *bytes;
    if (kind != kKinds.end()) verb = kind->verb;
    if (is_mixed) {
      verb = kKinds[chance % kKinds.size()].verb;
      size = static_cast<std::uint32_t>((chance >> 16) % (*bytes + 1ULL));
    }
    if (!plan.add(verb, size)) return std::nullopt;
  }
  return plan;
}

bool Plan::add(Verb verb, std::uint32_t bytes) {
  Step step;
  step.request = {.verb = verb,
                  .length = is_atomic(verb) ? 8 : bytes,
                  .offset = end_,
                  .remote_offset = end_,
                  .imm = static_cast<std::uint32_t>(scramble(seed_ ^ end_))};
  // Odd places for data, aligned ones for atomics. IBA 9.4.5.
  if (is_atomic(verb)) {
    add_atomic(step);
  } else {
    step.request.offset = step.request.remote_offset = end_ + scramble(end_) % 8;
  }
  end_ = (step.request.offset + step.request.length + kGuardBytes + 7) / 8 * 8;
  steps_.push_back(step);
  return end_ <= Endpoint::kMemoryBytes;
}

void Plan::add_atomic(Step& step) {
  Request& request = step.request;
  if (request.verb == Verb::kFetchAdd) {
    request.remote_offset = kCounterOffset;
    request.compare_add = scramble(end_);
    step.fetched = counter_;
    counter_ += request.compare_add;
    return;
  }
  step.fetched = scramble(seed_ ^ request.offset);
  const bool matches = step.fetched % 4 != 0;
  request.compare_add = matches ? step.fetched : step.fetched + 1;
  request.swap = scramble(step.fetched);
}

std::vector<Step> Plan::receives() const {
  std::vector<Step> found;
  std::copy_if(steps_.begin(), steps_.end(), std::back_inserter(found),
               [](const Step& step) { return uses_receive(step.request.verb); });
  return found;
}

std::vector<std::byte> Plan::initial(Side side) const {
  std::vector<std::byte> bytes(end_);
  const std::uint64_t key = scramble(seed_ * 4 + static_cast<std::uint64_t>(side));
  for (std::uint64_t at = 0; at < end_; at += 8) store_word(bytes, at, scramble(key + at));
  if (side == Side::kActive) return bytes;
  store_word(bytes, kCounterOffset, scramble(seed_));
  for (const Step& step : steps_) {
    if (step.request.verb == Verb::kCompareSwap) store_word(bytes, step.request.offset, step.fetched);
  }
  return bytes;
}

std::vector<std::byte> Plan::final(Side side) const {
  auto bytes = initial(side);
  const auto peer = initial(side == Side::kActive ? Side::kPassive : Side::kActive);
  for (const Step& step : steps_) {
    const Request& request = step.request;
    if (side == Side::kActive) {
      if (request.verb == Verb::kRead) copy_place(bytes, peer, request);
      if (is_atomic(request.verb)) store_word(bytes, request.offset, step.fetched);
    } else if (request.verb == Verb::kCompareSwap) {
      if (request.compare_add == step.fetched) store_word(bytes, request.remote_offset, request.swap);
    } else if (request.verb != Verb::kFetchAdd && request.verb != Verb::kRead) {
      copy_place(bytes, peer, request);
    }
  }
  if (side == Side::kPassive) store_word(bytes, kCounterOffset, counter_);
  return bytes;
}

void Plan::prepare_active(std::span<std::byte> memory) const {
  std::ranges::copy(initial(Side::kActive), memory.begin());
}

void Plan::prepare_passive(std::span<std::byte> memory) const {
  std::ranges::copy(initial(Side::kPassive), memory.begin());
}

std::string Plan::verify_active(std::span<const std::byte> memory) const {
  return first_difference(final(Side::kActive), memory);
}

std::string Plan::verify_passive(std::span<const std::byte> memory) const {
  return first_difference(final(Side::kPassive), memory);
}

}  // namespace uroce::interop
