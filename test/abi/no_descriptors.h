/// A process that has used up its descriptors.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace uroce::test {

/// Nothing can be opened while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = dup(0);
    REQUIRE(next >= 0);
    close(next);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace uroce::test
