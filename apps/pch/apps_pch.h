/// Large headers of other projects, compiled once for the program.
#ifndef UROCE_APPS_PCH_H
#define UROCE_APPS_PCH_H

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#endif
