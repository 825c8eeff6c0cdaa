/// /dev/infiniband/rdma_cm without a kernel: what the stock librdmacm writes there is done by a Cm.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "abi/rdmacm/kernel.h"
#include "uroce/ah.h"
#include "uroce/cm.h"
#include "uroce/pd.h"

namespace uroce::abi {

class Engine;
struct UcmFile;

/// What the program calls an id: a struct rdma_cm_id.
struct UcmId {
  std::uint32_t handle = 0;
  std::uint64_t uid = 0;  ///< the program's name for it; 0: a request that is not accepted yet
  UcmFile* file = nullptr;
  PortSpace space = PortSpace::kTcp;
  QpType type = QpType::kRc;
  std::uint32_t events_reported = 0;
  std::optional<CmId> cm;  ///< made when first needed
  std::optional<CmAddress> local;
  std::optional<CmAddress> remote;
  AhAttr path;
  bool has_device = false;  ///< its address is one of the device's
  bool is_resolving = false;
  bool is_resolved = false;  ///< `path` is known
  bool has_route = false;
  bool has_peer = false;  ///< has asked one, or been asked
  bool shares_port = false;
  bool is_v6_only = false;
  bool tells_ece = false;  ///< the program named options; else the peer's are not its business
  std::uint8_t traffic_class = 0;
  std::optional<std::uint8_t> ack_timeout;  ///< of its QP, code; 0: none; unset: the manager's
  unsigned backlog = 0;                     ///< listener: requests that may be unread

  [[nodiscard]] bool is_datagram() const noexcept { return type == QpType::kUd; }
};

struct UcmGroup {
  std::uint64_t uid = 0;
  UcmId* id = nullptr;
  std::uint32_t events_reported = 0;
};

struct UcmEvent {
  UcmId* id = nullptr;  ///< whose count it is on
  UcmGroup* group = nullptr;
  UcmId* request = nullptr;  ///< the new id that it brings
  rdma_ucm_event_resp response{};
};

/// An open "file": one rdma_event_channel. The count of its descriptor, an eventfd, is the number of events.
struct UcmFile {
  explicit UcmFile(int descriptor) noexcept : fd(descriptor) {}

  void push(const UcmEvent& event);
  void pop();
  /// Removes the events that `is_over` chooses.
  template <typename F>
  void purge(F&& is_over) {
    const std::size_t removed = std::erase_if(events, is_over);
    for (std::size_t i = 0; i < removed; ++i) count_down();
  }

  /// Before it is closed: lets a thread that takes one event after the other come back for the next, for a
  /// while since it took the last one, unless it has turned to something else. In the kernel it would be
  /// there long before, and go on waiting; rping ends with an error where the file is gone.
  /// @param lock  of the mutex that guards all this
  void await_reader(std::unique_lock<std::mutex>& lock);

  const int fd;
  std::atomic<bool> closed{false};
  std::deque<UcmEvent> events;
  pid_t reader = 0;  ///< the thread that asked for an event last, has it, and has asked for nothing since
  std::chrono::steady_clock::time_point read;  ///< when it got that
  std::condition_variable asked;               ///< nobody is the reader any more

 private:
  void count_down() const;
};

/// The commands of <rdma/rdma_user_cm.h> for IPv4 and IPv6. AF_IB is refused as by kernels that lack it, so
/// QUERY, RESOLVE_ADDR and JOIN_MCAST are not asked for.
///
/// Threads: any. Lifetime: for ever. The Cm is open while there are files that have used it. A child that was
/// forked meanwhile has one of its own, where files of its parent can be closed, and hear EIO.
class Ucm {
 public:
  static Ucm& instance();

  int open(int flags);
  ssize_t write(int fd, std::span<const std::byte> command);
  int end(int fd);  ///< of a file; the caller closes the descriptor

 private:
  /// One command; each handler answers 0 or an errno.
  struct Call {
    std::shared_ptr<UcmFile> file;
    std::span<const std::byte> in;
    std::size_t room = 0;  // for the response
  };
  using Handler = int (Ucm::*)(const Call&);
  struct Command {
    Handler handler = nullptr;
    bool uses_cm = false;
  };
  static Command command_of(std::uint32_t number) noexcept;

  struct Resolution {
    std::uint64_t serial = 0;
    UcmId* id = nullptr;
    Gid to;
    Gid from;
    std::shared_ptr<Ah> asking;  // while there is a handle, its Ethernet address is asked for
    std::chrono::steady_clock::time_point until;
  };

  // ucm.cc: files, ids, the Cm
  Ucm(Engine& engine, bool is_childs) : engine_(engine), is_childs_(is_childs) {}
  static std::atomic<Ucm*>& current();
  static void at_exit();
  void end(UcmFile& file);
  void end_all();
  Status open_cm();
  void close_cm();
  void release_cm();
  void run();
  void wake() const;
  bool resolve_some();
  void end_resolution(const Resolution& of, const Result<AhAttr>& path);
  UcmId& make_id(UcmFile& file);
  UcmId* find(const Call& call, std::uint32_t handle);
  Status give_cm_id(UcmId& id);
  void destroy(UcmId& id);
  std::shared_ptr<UcmFile> file_of(int fd);
  void note_command();

  // commands.cc
  int create_id(const Call& call);
  int destroy_id(const Call& call);
  int bind_ip(const Call& call);
  int resolve_ip(const Call& call);
  int resolve_route(const Call& call);
  int query_route(const Call& call);
  int listen(const Call& call);
  int init_qp_attr(const Call& call);
  int set_option(const Call& call);
  /// What the id is to be, and its CmId, if it has one.
  int set_flag(UcmId& id, bool UcmId::*kept, Status (CmChannel::*command)(CmId, bool), bool value);
  int migrate_id(const Call& call);
  [[nodiscard]] std::optional<CmAddress> on_port(std::optional<CmAddress> address, const UcmId* from) const;
  int bind_id(UcmId& id, const CmAddress& address);

  // connect_commands.cc
  int connect(const Call& call);
  int accept(const Call& call);
  Status refuse(const UcmId& id, std::span<const std::byte> private_data);
  int reject(const Call& call);
  int disconnect(const Call& call);
  int notify(const Call& call);
  int join_ip_mcast(const Call& call);
  int leave_mcast(const Call& call);

  // events.cc
  int get_event(const Call& call);
  void note_reader(UcmFile& file);
  void deliver(const CmEvent& event);
  void deliver_request(const CmEvent& event);
  void tell(UcmId& id, UcmEventType event, int status = 0);

  Engine& engine_;                                           // this process's, unless it was forked
  const bool is_childs_;                                     // files that are not known are its parent's
  std::mutex opening_;                                       // one at a time opens or closes the Cm
  std::mutex mutex_;                                         // guards what follows
  std::unordered_map<int, std::shared_ptr<UcmFile>> files_;  // by descriptor
  std::unordered_map<pid_t, UcmFile*> read_by_;              // by thread: of which it is the reader
  std::vector<std::unique_ptr<UcmId>> ids_;                  // by handle
  std::set<std::uint32_t> free_;                             // handles below ids_.size()
  std::unordered_map<std::uint32_t, UcmId*> by_cm_id_;
  std::unordered_map<std::uint32_t, std::unique_ptr<UcmGroup>> groups_;
  std::uint32_t next_group_ = 0;
  std::vector<Resolution> resolutions_;
  std::uint64_t next_resolution_ = 0;

  Cm* cm_ = nullptr;  // with channel_ and thread_: changed with both mutexes held
  std::optional<CmChannel> channel_;
  std::optional<Pd> pd_;  // of handles
  std::thread thread_;
  int wake_fd_ = -1;
  std::atomic<bool> stopping_{false};
};

}  // namespace uroce::abi
