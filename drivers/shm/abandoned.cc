#include "drivers/shm/abandoned.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
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

bool is_bell_of(const fs::path& file, const fs::path& backing) {
  struct stat status {};
  return file != backing && backing_file_of(file) == backing && ::lstat(file.c_str(), &status) == 0 &&
         S_ISFIFO(status.st_mode);
}

/// As an end leaves it, or one that was killed while it made it.
bool is_link(int file) noexcept {
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return false;
  LinkHeader header;
  const ssize_t bytes = ::pread(file, &header, sizeof(header), 0);
  return bytes == 0 ||
         (bytes == static_cast<ssize_t>(sizeof(header)) && (header.magic == kMagic || header.magic == 0));
}

/// Nobody holds a side, nor can take one while the caller holds the setup lock.
bool is_abandoned(int file, const std::string& path) noexcept {
  return try_lock(file, kSetupLock) && !is_locked_by_other(file, kSideLock) &&
         !is_locked_by_other(file, kSideLock + 1) && is_still_at(file, path) && is_link(file);
}

void remove_if_abandoned(const std::vector<fs::path>& files, const fs::path& backing) {
  const std::string path = backing.string();
  std::vector<fs::path> bells;
  for (const fs::path& file : files) {
    if (is_bell_of(file, backing)) bells.push_back(file);
  }
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  if (is_abandoned(file, path)) {
    for (const fs::path& bell : bells) ::unlink(bell.c_str());
    ::unlink(path.c_str());
  }
  ::close(file);  // drops the lock
}

}  // namespace

void remove_abandoned_links(const std::string& path) noexcept try {
  const fs::path own(path);
  const std::string prefix = fs::path(link_path("")).filename().string();
  std::vector<fs::path> files;
  std::set<fs::path> links;
  // Not a directory_iterator, which ends the program where there is no memory for it.
  struct Close {
    void operator()(DIR* folder) const noexcept { ::closedir(folder); }
  };
  const std::unique_ptr<DIR, Close> folder(::opendir(own.parent_path().c_str()));
  while (const dirent* entry = folder == nullptr ? nullptr : ::readdir(folder.get())) {
    if (!std::string_view(entry->d_name).starts_with(prefix)) continue;
    files.push_back(own.parent_path() / entry->d_name);
    if (const fs::path backing = backing_file_of(files.back()); backing != own) links.insert(backing);
  }
  for (const fs::path& backing : links) remove_if_abandoned(files, backing);
} catch (const std::exception&) {
  // No memory, or a folder that cannot be read: what was abandoned stays until the next link is made.
}

}  // namespace uroce::drivers::shm
