/// The loop of objects that have to be on one.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "verbs/device_impl.h"

namespace uroce {

/// The loop that users of something have in common: the first chooses it, for as long as there is any.
///
/// Threads: any. Lifetime: outlives its users.
class SharedLoop {
 public:
  explicit SharedLoop(Device::Impl& device) noexcept : device_(device) {}
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;

  /// One user, while it lives.
  class User {
   public:
    User() noexcept = default;
    explicit User(SharedLoop& of) noexcept : of_(&of) {}
    User(User&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    User& operator=(User&& other) noexcept {
      std::swap(of_, other.of_);
      return *this;
    }
    ~User() {
      if (of_ != nullptr) of_->leave();
    }
    /// Index of the loop.
    [[nodiscard]] unsigned loop() const noexcept { return of_->loop_; }

   private:
    SharedLoop* of_ = nullptr;
  };

  /// @return nothing if others are on another loop
  [[nodiscard]] std::optional<User> enter(unsigned loop) noexcept {
    const std::lock_guard lock(mutex_);
    if (users_ == 0) loop_ = loop;
    if (loop_ != loop) return std::nullopt;
    ++users_;
    return User(*this);
  }
  /// For whom each loop will do.
  [[nodiscard]] User enter() noexcept {
    const std::lock_guard lock(mutex_);
    ++users_;
    return User(*this);
  }

  /// Runs `command` while nobody else touches the loop; nobody chooses another one meanwhile.
  template <typename Run>
  void execute(Run&& command) {
    const std::lock_guard lock(mutex_);
    device_.runners[loop_]->execute(std::forward<Run>(command));
  }

  [[nodiscard]] bool is_of(const Device::Impl& device) const noexcept { return &device_ == &device; }

 private:
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    --users_;
  }

  Device::Impl& device_;
  std::mutex mutex_;  // guards what follows; users read it without
  unsigned loop_ = 0;
  std::size_t users_ = 0;
};

}  // namespace uroce
