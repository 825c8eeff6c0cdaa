/// Whether memory that a program registers is there.
#pragma once

#include <cstddef>
#include <span>

namespace uroce::abi {

/// Makes its pages present, as pinning them would: what cannot be made so, or not with these rights, the
/// engine must not touch.
/// @param writes  not only reads
/// @return 0, EFAULT, or ENOMEM: there is no memory for them
[[nodiscard]] int make_present(std::span<const std::byte> memory, bool writes) noexcept;

}  // namespace uroce::abi
