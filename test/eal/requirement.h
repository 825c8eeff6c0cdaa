/// What a test binary needs beside EAL.
#pragma once

#include <string>

namespace uroce::test {

/// Prepares what the tests share, before any thread runs. @return empty, or why they cannot run here.
std::string missing_requirement();

}  // namespace uroce::test
