#include "abi/rdmacm/ucm.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <system_error>

#include "abi/ibverbs/engine.h"
#include "abi/ibverbs/errors.h"
#include "abi/rdmacm/rdma_cm.h"
#include "base/cancellation.h"
#include "base/eventfd.h"
#include "base/no_signals.h"

namespace uroce::abi {

void UcmFile::push(const UcmEvent& event) {
  events.push_back(event);
  if (!signal_eventfd(fd)) events.pop_back();  // nobody takes any
}

void UcmFile::await_reader(std::unique_lock<std::mutex>& lock) {
  constexpr auto kMost = std::chrono::milliseconds(100);
  const bool may_come = reader != 0 && reader != gettid() && tgkill(getpid(), reader, 0) == 0 &&
                        (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
  if (may_come) asked.wait_until(lock, read + kMost, [this] { return reader == 0; });
}

void UcmFile::pop() {
  events.pop_front();
  count_down();
}

/// There is one for each event: does not block.
void UcmFile::count_down() const {
  drain_eventfd(fd);
}

std::atomic<Ucm*>& Ucm::current() {
  static std::atomic<Ucm*> ucm = new Ucm(Engine::instance(), false);  // its thread may outlive static objects
  return ucm;
}

/// In a child that was forked, what its parent had is never touched again: it has no threads here, but
/// connections there.
Ucm& Ucm::instance() {
  Ucm* ucm = current().load(std::memory_order_acquire);
  Engine& engine = Engine::instance();
  if (&ucm->engine_ == &engine) return *ucm;
  auto own = std::unique_ptr<Ucm>(new Ucm(engine, true));
  if (!current().compare_exchange_strong(ucm, own.get(), std::memory_order_acq_rel)) return *ucm;
  return *own.release();
}

int Ucm::open(int flags) {
  const int fd = eventfd(0, EFD_SEMAPHORE | (flags & O_CLOEXEC) | (flags & O_NONBLOCK));
  if (fd < 0) return -1;
  static_assert(EFD_CLOEXEC == O_CLOEXEC && EFD_NONBLOCK == O_NONBLOCK);
  const std::lock_guard lock(mutex_);
  files_[fd] = std::make_shared<UcmFile>(fd);
  return fd;
}

/// Whoever gives a command has come back for the next event, or will not.
void Ucm::note_command() {
  const std::lock_guard lock(mutex_);
  const auto found = read_by_.find(gettid());
  if (found == read_by_.end()) return;
  found->second->reader = 0;
  found->second->asked.notify_all();
  read_by_.erase(found);
}

std::shared_ptr<UcmFile> Ucm::file_of(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(fd);
  return found == files_.end() ? nullptr : found->second;
}

ssize_t Ucm::write(int fd, std::span<const std::byte> command) {
  if (command.size() < sizeof(rdma_ucm_cmd_hdr)) return fail(EINVAL), -1;
  rdma_ucm_cmd_hdr header{};
  std::memcpy(&header, command.data(), sizeof header);
  const auto body = command.subspan(sizeof header);
  if (header.in > body.size()) return fail(EINVAL), -1;
  const Call call{.file = file_of(fd), .in = body.first(header.in), .room = header.out};
  if (call.file == nullptr) return fail(is_childs_ ? EIO : EBADF), -1;
  note_command();
  int error = 0;
  if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
    error = get_event(call);
  } else {
    const NotCancelled here;
    const Command known = command_of(header.cmd);
    if (known.handler == nullptr) return fail(ENOSYS), -1;
    if (known.uses_cm) {
      errno = 0;
      if (Status opened = open_cm(); !opened) return fail(to_errno(opened.error())), -1;
    }
    const std::lock_guard lock(mutex_);
    error = call.file->closed ? EBADF : (this->*known.handler)(call);
  }
  return error == 0 ? static_cast<ssize_t>(command.size()) : (fail(error), -1);
}

int Ucm::end(int fd) {
  bool is_last = false;
  {
    std::unique_lock lock(mutex_);
    const auto found = files_.find(fd);
    if (found == files_.end()) return is_childs_ ? 0 : (fail(EBADF), -1);
    const std::shared_ptr<UcmFile> file = found->second;
    file->await_reader(lock);
    const auto now = files_.find(fd);  // another thread may have closed it, and the number be a new one's
    if (now == files_.end() || now->second != file) return fail(EBADF), -1;
    files_.erase(now);
    end(*file);
    is_last = files_.empty();
  }
  if (is_last) close_cm();
  return 0;
}

/// Its ids are over, and commands that still come for it fail.
void Ucm::end(UcmFile& file) {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] != nullptr && ids_[i]->file == &file) destroy(*ids_[i]);
  }
  if (file.reader != 0) read_by_.erase(file.reader);
  file.closed = true;
}

/// As the kernel closes the files of a process that ends: peers hear of it. By a thread of its own, which is
/// not waited for in vain: a signal handler that calls exit() may have interrupted whoever holds a lock.
void Ucm::at_exit() {
  constexpr auto kMost = std::chrono::milliseconds(500);
  Ucm& ucm = *current().load(std::memory_order_acquire);
  if (&ucm.engine_ != &Engine::instance()) return;  // a child that was forked
  const auto ended = std::make_shared<std::promise<void>>();
  const std::future<void> is_over = ended->get_future();
  const NoSignals signals;
  std::thread([&ucm, ended] {
    ucm.end_all();
    ended->set_value();
  }).detach();
  is_over.wait_for(kMost);
}

void Ucm::end_all() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [fd, file] : std::exchange(files_, {})) end(*file);
  }
  close_cm();
}

// The Cm, and the thread that hears from it.

Status Ucm::open_cm() {
  const std::lock_guard opening(opening_);
  if (cm_ != nullptr) return {};
  auto cm = engine_.enter_cm();
  if (!cm) {
    std::fprintf(stderr, "uroce: %s\n", cm.error().text.c_str());
    return cm.error();
  }
  auto channel = CmChannel::create(**cm);
  auto pd = Pd::create((*cm)->device());
  const bool can_wait = channel && pd && channel->fd() >= 0;  // which is made now
  wake_fd_ = can_wait ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (wake_fd_ < 0) {
    const int why = errno;
    channel = Error{Errc::kSystem, {}};  // it is of what goes now
    engine_.leave_cm();
    errno = why;
    return Error{Errc::kSystem, "no descriptor or memory is left for the communication manager"};
  }
  const std::lock_guard lock(mutex_);
  channel_.emplace(std::move(*channel));
  pd_.emplace(std::move(*pd));
  stopping_ = false;
  cm_ = *cm;
  try {
    const NoSignals signals;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    release_cm();
    return Error{Errc::kSystem, "no thread is left for the communication manager"};
  }
  static const int registered = std::atexit(at_exit);
  (void)registered;
  return {};
}

/// The last file is closed: unless one was opened meanwhile.
void Ucm::close_cm() {
  const std::lock_guard opening(opening_);
  {
    const std::lock_guard lock(mutex_);
    if (cm_ == nullptr || !files_.empty()) return;
    stopping_ = true;
    wake();
  }
  thread_.join();
  const std::lock_guard lock(mutex_);
  release_cm();
}

void Ucm::release_cm() {
  channel_.reset();
  pd_.reset();
  cm_ = nullptr;
  ::close(wake_fd_);
  engine_.leave_cm();
}

void Ucm::wake() const {
  signal_eventfd(wake_fd_);
}

void Ucm::run() {
  pthread_setname_np(pthread_self(), "uroce-rdma-cm");
  constexpr int kAgain = 1;  // ms: somebody's Ethernet address is waited for
  pollfd fds[2] = {{.fd = channel_->fd(), .events = POLLIN, .revents = 0},
                   {.fd = wake_fd_, .events = POLLIN, .revents = 0}};
  while (!stopping_) {
    CmEvent event;
    while (channel_->next(event)) {
      const std::lock_guard lock(mutex_);
      deliver(event);
    }
    const bool is_resolving = resolve_some();
    if (poll(fds, 2, is_resolving ? kAgain : -1) <= 0 || fds[1].revents == 0) continue;
    drain_eventfd(wake_fd_);
  }
}

/// Looks at each address that is waited for. @return whether any is left.
bool Ucm::resolve_some() {
  std::vector<Resolution> all;
  {
    const std::lock_guard lock(mutex_);
    all = resolutions_;
  }
  for (const Resolution& one : all) {
    const auto path = cm_->resolve(one.to, one.from, std::chrono::milliseconds(0));
    const bool goes_on =
        !path && path.error().code == Errc::kTimeout && std::chrono::steady_clock::now() < one.until;
    if (!goes_on) end_resolution(one, path);
  }
  const std::lock_guard lock(mutex_);
  return !resolutions_.empty();
}

void Ucm::end_resolution(const Resolution& of, const Result<AhAttr>& path) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(resolutions_.begin(), resolutions_.end(),
                                  [&](const Resolution& one) { return one.serial == of.serial; });
  if (found == resolutions_.end()) return;  // the id is gone
  UcmId& id = *found->id;
  resolutions_.erase(found);
  id.is_resolving = false;
  int error = 0;
  if (!path) {
    error = path.error().code == Errc::kTimeout ? ETIMEDOUT : ENETUNREACH;
  } else {
    const Gid source = cm_->device().gids()[path->sgid_index].gid;
    if (!id.local.has_value()) error = bind_id(id, {source, 0});
    if (error == 0) id.local->ip = source;
  }
  if (error != 0) return tell(id, UcmEventType::kAddrError, -error);
  id.path = *path;
  id.has_device = id.is_resolved = true;
  tell(id, UcmEventType::kAddrResolved);
}

// Ids

UcmId& Ucm::make_id(UcmFile& file) {
  auto made = std::make_unique<UcmId>();
  made->file = &file;
  if (free_.empty()) {
    made->handle = static_cast<std::uint32_t>(ids_.size());
    ids_.push_back(nullptr);
  } else {  // the smallest: librdmacm knows no large ones
    made->handle = *free_.begin();
    free_.erase(free_.begin());
  }
  return *(ids_[made->handle] = std::move(made));
}

/// The id of a command, which belongs to its file.
UcmId* Ucm::find(const Call& call, std::uint32_t handle) {
  UcmId* id = handle < ids_.size() ? ids_[handle].get() : nullptr;
  return id != nullptr && id->file == call.file.get() ? id : nullptr;
}

Status Ucm::give_cm_id(UcmId& id) {
  if (id.cm.has_value()) return {};
  auto made = channel_->create_id(id.space);
  if (!made) return made.error();
  if (id.shares_port) (void)channel_->share_port(*made, true);  // it is new
  if (id.is_v6_only) (void)channel_->set_v6_only(*made, true);
  id.cm = *made;
  by_cm_id_[raw(*made)] = &id;
  return {};
}

/// With its events, and with the requests at a listener that the program has not read; or, one of those, with
/// the event that tells of it.
void Ucm::destroy(UcmId& id) {
  std::vector<UcmId*> unread;
  id.file->purge([&](const UcmEvent& event) {
    if (event.id == &id && event.request != nullptr) unread.push_back(event.request);
    return event.id == &id || event.request == &id;
  });
  for (UcmId* request : unread) destroy(*request);
  std::erase_if(resolutions_, [&](const Resolution& one) { return one.id == &id; });
  std::erase_if(groups_, [&](const auto& group) { return group.second->id == &id; });
  if (id.cm.has_value()) {
    by_cm_id_.erase(raw(*id.cm));
    channel_->close(*id.cm);
  }
  free_.insert(id.handle);
  ids_[id.handle].reset();
}

}  // namespace uroce::abi

using uroce::NotCancelled;
using uroce::abi::fail;
using uroce::abi::Ucm;

// Of the exceptions, a thread that is cancelled is none of ours.
extern "C" {

int uroce_rdma_cm_open(int flags) {
  const NotCancelled here;
  try {
    return Ucm::instance().open(flags);
  } catch (const std::exception&) {
    return fail(ENOMEM), -1;
  }
}

ssize_t uroce_rdma_cm_write(int fd, const void* command, std::size_t bytes) {
  try {
    return Ucm::instance().write(fd, {static_cast<const std::byte*>(command), bytes});
  } catch (const std::exception&) {
    return fail(ENOMEM), -1;
  }
}

int uroce_rdma_cm_end(int fd) {
  const NotCancelled here;
  try {
    return Ucm::instance().end(fd);
  } catch (const std::exception&) {
    return fail(ENOMEM), -1;
  }
}

}  // extern "C"
