/// What the examples do when something fails: say why, and end.
#pragma once

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>

#include "uroce/cq.h"

[[noreturn]] inline void fail(const std::string& why, int code = 1) {
  std::cerr << why << '\n';
  std::exit(code);
}

inline void must(bool done, const char* why) {
  if (!done) fail(why);
}

template <typename T>
T must(uroce::Result<T> result) {
  if (!result) fail(result.error().text, exit_code(result.error().code));
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

/// Waits for the next completion.
inline void complete(uroce::Cq& cq) {
  uroce::Wc wc;
  while (cq.poll({&wc, 1}) == 0) must(cq.wait(std::chrono::seconds(10)), "nothing came within 10 s");
  if (wc.ok()) return;
  fail(std::string(to_string(wc.status)) + ": " + std::string(uroce::describe_vendor_err(wc.vendor_err)));
}
