/// Allocations that fail on purpose, in programs that are linked with failing_new.cc.
#pragma once

namespace uroce::api {

inline thread_local long allocations_left = -1;  ///< of this thread until one fails; negative: all succeed
inline thread_local bool fail_for_good = false;  ///< all

}  // namespace uroce::api
