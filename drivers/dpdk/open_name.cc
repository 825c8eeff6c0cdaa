#include "drivers/dpdk/open_name.h"

#include <mutex>
#include <set>

namespace uroce::drivers::dpdk {
namespace {

struct Names {
  std::mutex mutex;
  std::set<std::string> open;
};

/// Never destroyed: a port may be closed by a destructor that runs at the process's end.
Names& names() {
  static Names& all = *new Names;
  return all;
}

}  // namespace

Result<OpenName> OpenName::take(std::string name) {
  const std::lock_guard lock(names().mutex);
  if (!names().open.insert(name).second) {
    return Error{Errc::kNameInUse, name + " is open in this process already; use that port"};
  }
  return OpenName(std::move(name));
}

OpenName::~OpenName() {
  if (name_.empty()) return;
  const std::lock_guard lock(names().mutex);
  names().open.erase(name_);
}

}  // namespace uroce::drivers::dpdk
