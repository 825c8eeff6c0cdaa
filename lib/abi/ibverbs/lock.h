/// Mutual exclusion of application threads.
#pragma once

#include <mutex>

namespace uroce::abi {

/// verbs promise that every call may be made from any thread, the C++ API asks for one at a time. Objects of
/// a thread domain do without.
///
/// Threads: any.
class Lock {
 public:
  explicit Lock(bool is_needed) noexcept : is_needed_(is_needed) {}

  void lock() {
    if (is_needed_) mutex_.lock();
  }
  void unlock() {
    if (is_needed_) mutex_.unlock();
  }

 private:
  const bool is_needed_;
  std::mutex mutex_;
};

}  // namespace uroce::abi
