/// A process that has used up its descriptors.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

namespace uroce::test {

/// Makes a call while nothing can be opened, or no more than that. It checks nothing by itself: the sanitizer
/// of undefined behaviour takes an object that it has no descriptor to look at for a wrong one.
/// @param call  answers whether it went well
/// @param left  descriptors that there still are
/// @return      0, or what it has left in errno
template <typename Call>
int errno_without_descriptors(Call&& call, std::size_t left = 0) {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  std::vector<int> next(left + 1);
  for (int& one : next) one = dup(0);
  REQUIRE(next.back() >= 0);
  for (const int one : next) close(one);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.back());
  const int limited = setrlimit(RLIMIT_NOFILE, &none);
  errno = 0;
  const int error = call() ? 0 : errno;
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE(limited == 0);
  return error;
}

}  // namespace uroce::test
