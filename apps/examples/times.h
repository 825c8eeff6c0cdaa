/// How times that were measured are told.
#pragma once

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string_view>
#include <vector>

using Clock = std::chrono::steady_clock;

inline double ns_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

inline void tell(std::string_view what, std::vector<double> ns) {
  std::ranges::sort(ns);
  std::cout << what << ", " << ns.size() << " times, us:";
  for (const double percent : {50.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto rank = static_cast<std::size_t>(percent / 100 * static_cast<double>(ns.size() - 1));
    if (!ns.empty()) std::cout << "  " << percent << " % " << ns[rank] / 1000;
  }
  std::cout << std::endl;
}
