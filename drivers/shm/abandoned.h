/// What killed programs leave behind.
#pragma once

#include <string>

namespace uroce::drivers::shm {

/// Removes all files of the links beside `path`, of the same user, that no process holds any more: two ends
/// that were both killed could not, and that name may never be opened again.
/// Control: any thread. Errors: what cannot be removed stays.
void remove_abandoned_links(const std::string& path) noexcept;

}  // namespace uroce::drivers::shm
