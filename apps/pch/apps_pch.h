/// Large headers of other projects, compiled once for the program. Not CLI11's: whoever sees it compiles much
/// of it again, which takes longer than all else.
#ifndef UROCE_APPS_PCH_H
#define UROCE_APPS_PCH_H

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#endif
