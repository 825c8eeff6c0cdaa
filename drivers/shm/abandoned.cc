#include "drivers/shm/abandoned.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "drivers/shm/file_lock.h"
#include "drivers/shm/layout.h"
#include "drivers/shm/link.h"

namespace uroce::drivers::shm {
namespace {

namespace fs = std::filesystem;

/// Of a file of a link, bells included.
fs::path backing_file_of(const fs::path& file) {
  const std::string name = file.filename().string();
  return file.parent_path() / name.substr(0, name.find('~'));
}

bool is_link(int file) noexcept {
  LinkHeader header;
  return ::pread(file, &header, sizeof(header), 0) == static_cast<ssize_t>(sizeof(header)) &&
         header.magic == kMagic;
}

/// Nobody holds a side, nor can take one while the caller holds the setup lock.
bool is_abandoned(int file, const std::string& path) noexcept {
  return try_lock(file, kSetupLock) && !is_locked_by_other(file, kSideLock) &&
         !is_locked_by_other(file, kSideLock + 1) && is_still_at(file, path) && is_link(file);
}

void remove_if_abandoned(const std::vector<fs::path>& files, const fs::path& backing) {
  const int file = ::open(backing.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  if (is_abandoned(file, backing.string())) {
    std::error_code ignored;
    for (const fs::path& bell : files) {
      if (bell != backing && backing_file_of(bell) == backing) fs::remove(bell, ignored);
    }
    fs::remove(backing, ignored);
  }
  ::close(file);  // drops the lock
}

}  // namespace

void remove_abandoned_links(const std::string& path) noexcept try {
  const fs::path own(path);
  const std::string prefix = fs::path(link_path("")).filename().string();
  std::vector<fs::path> files;
  std::set<fs::path> links;
  std::error_code error;
  for (auto entry = fs::directory_iterator(own.parent_path(), error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    files.push_back(entry->path());
    if (const fs::path backing = backing_file_of(entry->path()); backing != own) links.insert(backing);
  }
  for (const fs::path& backing : links) remove_if_abandoned(files, backing);
} catch (const std::exception&) {
  // No memory, or a folder that cannot be read: what was abandoned stays until the next link is made.
}

}  // namespace uroce::drivers::shm
