// liburoce-preload.so: gives the stock librdmacm its /dev/infiniband/rdma_cm. That path, and descriptors that
// it was opened as, are handed to uroce's libibverbs.so.1; what programs look for in the device's folder of
// sysfs is found where UROCE_SYSFS says; all else goes where it would have gone.
#include <sys/cdefs.h>
// Programs probe for EFAULT by calls without a path: no declaration is to promise that there is one.
#undef __nonnull
#define __nonnull(arguments)

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Names of the C library under which programs find it; its own headers declare some of them under others.
#define UROCE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr const char* kRdmaCm = "/dev/infiniband/rdma_cm";
constexpr const char* kVerbs = "/dev/infiniband/uverbs0";  // as the device names itself; only looked at
constexpr int kDescriptors = 1 << 16;                      // beyond, the device cannot be opened

/// Which descriptors are the device. Written before the number is known to others, and after.
unsigned char is_device[kDescriptors];

/// Whose they are: the process that opened the first one, or a child of it that fork() has made. One that
/// vfork(), _Fork() or clone() has made has the descriptors, and nothing to hand them to: the first runs on
/// its parent's memory, in the others nobody has told the library of the fork.
pid_t owner;

bool is_ours(int fd) noexcept {
  return fd >= 0 && fd < kDescriptors && __atomic_load_n(&is_device[fd], __ATOMIC_RELAXED) != 0 &&
         getpid() == __atomic_load_n(&owner, __ATOMIC_RELAXED);
}
/// @return whether it was ours
bool mark(int fd, bool ours) noexcept {
  return __atomic_exchange_n(&is_device[fd], static_cast<unsigned char>(ours ? 1 : 0), __ATOMIC_RELAXED) != 0;
}

/// The function of that name behind this library.
template <typename F>
F next(F& known, const char* name) noexcept {
  if (known == nullptr) {
    void* found = dlsym(RTLD_NEXT, name);
    std::memcpy(&known, &found, sizeof known);
  }
  return known;
}

/// What uroce's libibverbs.so.1 has for us; nullptr where another one is loaded, or none.
template <typename F>
F entry(F& known, const char* name) noexcept {
  if (known != nullptr) return known;
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* found = dlsym(library, name);
  std::memcpy(&known, &found, sizeof known);
  dlclose(library);  // whoever loaded it keeps it: it is never unloaded
  return known;
}

int (*entry_open)(int flags);
ssize_t (*entry_write)(int fd, const void* bytes, std::size_t count);
int (*entry_end)(int fd);

int (*next_open)(const char* path, int flags, ...);
int (*next_openat)(int folder, const char* path, int flags, ...);
ssize_t (*next_write)(int fd, const void* bytes, std::size_t count);
int (*next_close)(int fd);
int (*next_close_range)(unsigned first, unsigned last, int flags);
void (*next_closefrom)(int first);
int (*next_dup2)(int from, int to);
int (*next_dup3)(int from, int to, int flags);
int (*next_fstat)(int fd, struct stat* out);
int (*next_fxstat)(int version, int fd, struct stat* out);
int (*next_stat)(const char* path, struct stat* out);
int (*next_lstat)(const char* path, struct stat* out);
int (*next_xstat)(int version, const char* path, struct stat* out);
int (*next_lxstat)(int version, const char* path, struct stat* out);
int (*next_statx)(int folder, const char* path, int flags, unsigned mask, struct statx* out);
int (*next_access)(const char* path, int mode);
DIR* (*next_opendir)(const char* path);
FILE* (*next_fopen)(const char* path, const char* mode);
FILE* (*next_fopen64)(const char* path, const char* mode);

/// A path, or where it is when it leads into the device's folder of sysfs.
class Real {
 public:
  explicit Real(const char* path) noexcept : path_(path) {
    constexpr std::size_t kLength = sizeof kFolder - 1;
    if (path == nullptr || path[0] != '/' || path[1] != 's') return;
    if (std::strncmp(path, kFolder, kLength) != 0) return;
    if (path[kLength] != '/' && path[kLength] != '\0') return;
    const char* instead = std::getenv("UROCE_SYSFS");
    if (instead == nullptr) return;
    const int length = std::snprintf(text_, sizeof text_, "%s%s", instead, path + kLength);
    if (length > 0 && static_cast<std::size_t>(length) < sizeof text_) path_ = text_;
  }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;
  operator const char*() const noexcept { return path_; }

 private:
  static constexpr char kFolder[] = "/sys/class/infiniband/uroce0";
  const char* path_;
  char text_[512];
};

void own_process() noexcept {
  __atomic_store_n(&owner, getpid(), __ATOMIC_RELAXED);
}

/// Before the first descriptor is marked.
void find_owner() noexcept {
  pid_t nobody = 0;
  const bool is_first =
      __atomic_compare_exchange_n(&owner, &nobody, getpid(), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  if (is_first) pthread_atfork(nullptr, nullptr, own_process);
}

/// Opens the device. @return whether it is ours to open; `fd` is -1 then if that failed.
bool open_device(const char* path, int flags, int& fd) noexcept {
  if (path == nullptr || std::strcmp(path, kRdmaCm) != 0) return false;
  const auto opens = entry(entry_open, "uroce_rdma_cm_open");
  if (opens == nullptr || entry(entry_write, "uroce_rdma_cm_write") == nullptr ||
      entry(entry_end, "uroce_rdma_cm_end") == nullptr) {
    return false;
  }
  fd = opens(flags);
  if (fd >= kDescriptors) {
    entry_end(fd);
    next(next_close, "close")(fd);
    errno = EMFILE;
    fd = -1;
  }
  if (fd >= 0) {
    find_owner();
    mark(fd, true);
  }
  return true;
}

/// The numbers of a character device: those of the kernel's, which librdmacm compares, if there is one.
dev_t device_number(const char* path) noexcept {
  struct stat real {};
  const auto stats = next(next_stat, "stat");
  const int before = errno;
  if (stats != nullptr && stats(path, &real) == 0 && S_ISCHR(real.st_mode)) return real.st_rdev;
  errno = before;
  constexpr unsigned kInfiniband = 231;
  return makedev(kInfiniband, 255);
}

void describe(const char* path, struct stat& out) noexcept {
  out.st_mode = S_IFCHR | 0666;
  out.st_rdev = device_number(path);
}

bool is_device_path(const char* path) noexcept {
  return path != nullptr && path[0] == '/' && path[1] == 'd' &&
         (std::strcmp(path, kRdmaCm) == 0 || std::strcmp(path, kVerbs) == 0);
}

bool is_empty(const char* path) noexcept {
  return path == nullptr || path[0] == '\0';
}

/// stat() of a path. @return whether it was one of ours.
bool stat_device(const char* path, struct stat* out) noexcept {
  if (!is_device_path(path)) return false;
  *out = {};
  out->st_nlink = 1;
  describe(path, *out);
  return true;
}

/// Closes the device, though another thread may be about to: the number is about to stand for something else.
void take_number(int fd) noexcept {
  if (!is_ours(fd)) return;
  close(fd);
  mark(fd, false);
}

/// Closes those of these descriptors that are the device.
void close_ours(unsigned first, unsigned last) noexcept {
  for (unsigned fd = first; fd <= last && fd < kDescriptors; ++fd) take_number(static_cast<int>(fd));
}

/// `to` is about to stand for something else, if `from` is open.
void give_up(int from, int to) noexcept {
  const int before = errno;
  if (fcntl(from, F_GETFD) >= 0) take_number(to);
  errno = before;
}

bool has_mode(int flags) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

mode_t mode_of(int flags, va_list words) noexcept {
  return has_mode(flags) ? static_cast<mode_t>(va_arg(words, unsigned)) : 0;
}

}  // namespace

UROCE_EXPORT int open(const char* path, int flags, ...) {
  va_list words;
  va_start(words, flags);
  const mode_t mode = mode_of(flags, words);
  va_end(words);
  int fd = -1;
  return open_device(path, flags, fd) ? fd : next(next_open, "open")(Real(path), flags, mode);
}

UROCE_EXPORT int open64(const char* path, int flags, ...) {
  va_list words;
  va_start(words, flags);
  const mode_t mode = mode_of(flags, words);
  va_end(words);
  int fd = -1;
  return open_device(path, flags, fd) ? fd : next(next_open, "open")(Real(path), flags | O_LARGEFILE, mode);
}

UROCE_EXPORT int openat(int folder, const char* path, int flags, ...) {
  va_list words;
  va_start(words, flags);
  const mode_t mode = mode_of(flags, words);
  va_end(words);
  int fd = -1;
  return open_device(path, flags, fd) ? fd : next(next_openat, "openat")(folder, Real(path), flags, mode);
}

UROCE_EXPORT int openat64(int folder, const char* path, int flags, ...) {
  va_list words;
  va_start(words, flags);
  const mode_t mode = mode_of(flags, words);
  va_end(words);
  int fd = -1;
  return open_device(path, flags, fd)
             ? fd
             : next(next_openat, "openat")(folder, Real(path), flags | O_LARGEFILE, mode);
}

// What open() becomes under _FORTIFY_SOURCE.
UROCE_EXPORT int __open_2(const char* path, int flags) {
  return open(path, flags);
}
UROCE_EXPORT int __open64_2(const char* path, int flags) {
  return open64(path, flags);
}

UROCE_EXPORT ssize_t write(int fd, const void* bytes, std::size_t count) {
  if (__builtin_expect(is_ours(fd), 0)) return entry_write(fd, bytes, count);
  return next(next_write, "write")(fd, bytes, count);
}

UROCE_EXPORT int close(int fd) {
  if (__builtin_expect(is_ours(fd), 0)) {
    if (entry_end(fd) != 0) return -1;
    if (!mark(fd, false)) return 0;  // somebody else has closed it meanwhile
  }
  return next(next_close, "close")(fd);
}

// Whoever is given such a number afterwards writes to something else.
UROCE_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  constexpr int kOnExec = 1 << 2;  // CLOSE_RANGE_CLOEXEC
  if ((flags & kOnExec) == 0) close_ours(first, last);
  const auto closes = next(next_close_range, "close_range");
  if (closes != nullptr) return closes(first, last, flags);
  errno = ENOSYS;  // as of a C library before 2.34
  return -1;
}

UROCE_EXPORT void closefrom(int first) noexcept {
  close_ours(first < 0 ? 0 : static_cast<unsigned>(first), ~0U);
  if (const auto closes = next(next_closefrom, "closefrom")) closes(first);
}

UROCE_EXPORT int dup2(int from, int to) noexcept {
  if (__builtin_expect(is_ours(to) && from != to, 0)) give_up(from, to);
  return next(next_dup2, "dup2")(from, to);
}

UROCE_EXPORT int dup3(int from, int to, int flags) noexcept {
  if (__builtin_expect(is_ours(to) && from != to, 0)) give_up(from, to);
  return next(next_dup3, "dup3")(from, to, flags);
}

UROCE_EXPORT int fstat(int fd, struct stat* out) {
  const int result = next(next_fstat, "fstat")(fd, out);
  if (result == 0 && is_ours(fd)) describe(kRdmaCm, *out);
  return result;
}

UROCE_EXPORT int __fxstat(int version, int fd, struct stat* out) {
  const int result = next(next_fxstat, "__fxstat")(version, fd, out);
  if (result == 0 && is_ours(fd)) describe(kRdmaCm, *out);
  return result;
}

UROCE_EXPORT int stat(const char* path, struct stat* out) {
  return stat_device(path, out) ? 0 : next(next_stat, "stat")(Real(path), out);
}

UROCE_EXPORT int lstat(const char* path, struct stat* out) {
  return stat_device(path, out) ? 0 : next(next_lstat, "lstat")(Real(path), out);
}

UROCE_EXPORT int __xstat(int version, const char* path, struct stat* out) {
  return stat_device(path, out) ? 0 : next(next_xstat, "__xstat")(version, Real(path), out);
}

UROCE_EXPORT int __lxstat(int version, const char* path, struct stat* out) {
  return stat_device(path, out) ? 0 : next(next_lxstat, "__lxstat")(version, Real(path), out);
}

UROCE_EXPORT int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out) {
  struct stat known {};
  const bool is_own_descriptor = is_empty(path) && (flags & AT_EMPTY_PATH) != 0 && is_ours(folder);
  if (!is_own_descriptor && !stat_device(path, &known)) {
    return next(next_statx, "statx")(folder, Real(path), flags, mask, out);
  }
  if (is_own_descriptor) describe(kRdmaCm, known);
  *out = {};
  out->stx_mask = STATX_TYPE | STATX_MODE;
  out->stx_mode = static_cast<decltype(out->stx_mode)>(known.st_mode);
  out->stx_nlink = 1;
  out->stx_rdev_major = major(known.st_rdev);
  out->stx_rdev_minor = minor(known.st_rdev);
  return 0;
}

UROCE_EXPORT int access(const char* path, int mode) {
  return is_device_path(path) ? 0 : next(next_access, "access")(Real(path), mode);
}

UROCE_EXPORT DIR* opendir(const char* path) {
  return next(next_opendir, "opendir")(Real(path));
}

UROCE_EXPORT FILE* fopen(const char* path, const char* mode) {
  return next(next_fopen, "fopen")(Real(path), mode);
}

UROCE_EXPORT FILE* fopen64(const char* path, const char* mode) {
  return next(next_fopen64, "fopen64")(Real(path), mode);
}

// On 64-bit systems struct stat64 is struct stat.
static_assert(sizeof(struct stat) == sizeof(struct stat64));
UROCE_EXPORT int fstat64(int fd, struct stat64* out) {
  return fstat(fd, reinterpret_cast<struct stat*>(out));
}
UROCE_EXPORT int stat64(const char* path, struct stat64* out) {
  return stat(path, reinterpret_cast<struct stat*>(out));
}
UROCE_EXPORT int lstat64(const char* path, struct stat64* out) {
  return lstat(path, reinterpret_cast<struct stat*>(out));
}
UROCE_EXPORT int __fxstat64(int version, int fd, struct stat64* out) {
  return __fxstat(version, fd, reinterpret_cast<struct stat*>(out));
}
UROCE_EXPORT int __xstat64(int version, const char* path, struct stat64* out) {
  return __xstat(version, path, reinterpret_cast<struct stat*>(out));
}
UROCE_EXPORT int __lxstat64(int version, const char* path, struct stat64* out) {
  return __lxstat(version, path, reinterpret_cast<struct stat*>(out));
}
