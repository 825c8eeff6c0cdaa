#include "drivers/dpdk/interface.h"

#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace uroce::drivers::dpdk {
namespace {

std::string existing_names() {
  std::string names;
  struct if_nameindex* list = if_nameindex();
  if (list == nullptr) return names;
  for (const auto* item = list; item->if_name != nullptr; ++item) {
    if (!names.empty()) names += ", ";
    names += item->if_name;
  }
  if_freenameindex(list);
  return names;
}

/// @return -1: there is none.
int socket_for_questions() noexcept {
  return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

/// A socket to ask about one interface.
class Query {
 public:
  explicit Query(const std::string& name) : fd_(socket_for_questions()) {
    name.copy(request_.ifr_name, IFNAMSIZ - 1);
  }
  ~Query() {
    if (fd_ >= 0) close(fd_);
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  const ifreq* ask(unsigned long what) noexcept {
    return ioctl(fd_, what, &request_) == 0 ? &request_ : nullptr;
  }
  std::string driver() {
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    request_.ifr_data = reinterpret_cast<char*>(&info);
    return ask(SIOCETHTOOL) != nullptr ? info.driver : "";
  }
  void read_queues(Interface& found) noexcept {
    ethtool_channels channels{};
    channels.cmd = ETHTOOL_GCHANNELS;
    request_.ifr_data = reinterpret_cast<char*>(&channels);
    if (ask(SIOCETHTOOL) == nullptr) return;
    found.rx_queues = std::max(1U, channels.rx_count + channels.combined_count);
    found.has_combined_queues = channels.max_combined != 0;
    if (found.has_combined_queues) found.xdp_queues = std::max(1U, channels.combined_count);
  }

 private:
  int fd_;
  ifreq request_{};
};

bool has_capability(unsigned capability) noexcept {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[capability / 32].effective >> (capability % 32) & 1U) != 0;
}

/// Under `uroce run`, which has its library found through the environment: the loader ignores that for
/// programs with capabilities of their own, but not for those that are given ambient ones.
bool is_found_by_environment() {
  const char* preloaded = std::getenv("LD_PRELOAD");
  return preloaded != nullptr &&
         std::string_view(preloaded).find("liburoce-preload") != std::string_view::npos;
}

/// "cap_net_raw,cap_bpf" -> "+net_raw,+bpf"
std::string for_setpriv(std::string_view capabilities) {
  constexpr std::string_view kPrefix = "cap_";
  std::string all;
  for (std::size_t at = 0; at < capabilities.size();) {
    const std::size_t end = std::min(capabilities.find(',', at), capabilities.size());
    const auto name = capabilities.substr(at, end - at);
    all += (all.empty() ? "+" : ",+") + std::string(name.substr(kPrefix.size()));
    at = end + 1;
  }
  return all;
}

Error missing(const std::string& driver, std::string_view capability, std::string_view lower) {
  std::string text = driver + " needs " + std::string(capability) + "; ";
  if (is_found_by_environment()) {
    const std::string all = for_setpriv(lower);
    text +=
        "sudo uroce run ..., or: sudo setpriv --reuid $(id -u) --regid $(id -g) --init-groups --inh-caps " +
        all + " --ambient-caps " + all + " uroce run ...";
  } else {
    text += "run with sudo, or once: sudo setcap " + std::string(lower) + "+ep PROGRAM";
  }
  return Error{Errc::kPermission, text};
}

}  // namespace

bool interface_exists(const std::string& name) {
  return if_nametoindex(name.c_str()) != 0;
}

Result<Interface> find_interface(const std::string& name) {
  if (name.empty()) {
    return Error{Errc::kConfig,
                 "name the network interface, e.g. af_packet:eth0; existing: " + existing_names()};
  }
  if (name.size() >= IFNAMSIZ || !interface_exists(name)) {
    return Error{Errc::kNotFound,
                 "no network interface '" + name + "'; existing: " + existing_names() + "; see: ip link"};
  }
  Interface found;
  Query query(name);
  found.index = if_nametoindex(name.c_str());
  if (const ifreq* answer = query.ask(SIOCGIFMTU)) found.mtu = static_cast<std::uint32_t>(answer->ifr_mtu);
  if (const ifreq* answer = query.ask(SIOCGIFFLAGS)) found.is_up = (answer->ifr_flags & IFF_UP) != 0;
  found.is_veth = query.driver() == "veth";
  query.read_queues(found);
  std::uint32_t program = 0;
  found.has_xdp_program = bpf_xdp_query_id(static_cast<int>(found.index), 0, &program) == 0 && program != 0;
  return found;
}

InterfaceWatch::InterfaceWatch(const std::string& name) : name_(name) {
  static_cast<void>(state());
}

InterfaceWatch::~InterfaceWatch() {
  if (fd_ >= 0) close(fd_);
}

port::LinkState InterfaceWatch::state() noexcept {
  if (fd_ < 0) fd_ = socket_for_questions();
  if (fd_ >= 0) seen_ = look();
  return seen_;
}

port::LinkState InterfaceWatch::look() noexcept {
  ifreq request{};
  name_.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_ifindex = index_;
  // By its number as soon as that is known: its name may change.
  if (ioctl(fd_, index_ == 0 ? SIOCGIFINDEX : SIOCGIFNAME, &request) != 0) {
    return errno == ENODEV ? port::LinkState::kGone : port::LinkState::kDown;
  }
  index_ = request.ifr_ifindex;
  if (ioctl(fd_, SIOCGIFFLAGS, &request) != 0) return port::LinkState::kDown;
  constexpr int kCarrying = IFF_UP | IFF_RUNNING;
  return (request.ifr_flags & kCarrying) == kCarrying ? port::LinkState::kUp : port::LinkState::kDown;
}

Status require_up(const std::string& name, const Interface& interface) {
  if (interface.is_up) return {};
  return Error{Errc::kBadState,
               "network interface '" + name + "' is down; run: sudo ip link set " + name + " up"};
}

Status require_all_queues(const std::string& name, const Interface& interface, unsigned bound) {
  if (interface.rx_queues <= bound) return {};
  const std::string count = std::to_string(bound);
  const bool is_mixed = interface.rx_queues > interface.xdp_queues;
  const std::string wanted =
      interface.has_combined_queues ? (is_mixed ? "rx 0 combined " : "combined ") + count : "rx " + count;
  return Error{Errc::kConfig, "af_xdp would hear only " + count + " of the " +
                                  std::to_string(interface.rx_queues) + " receive queues of " + name +
                                  "; run: sudo ethtool -L " + name + ' ' + wanted +
                                  "   or steer flows and add start_queue=0"};
}

Status require_right(Right right, const std::string& driver) {
  switch (right) {
    case Right::kRawSockets:
      if (!has_capability(CAP_NET_RAW))
        return missing(driver, "CAP_NET_RAW and CAP_NET_ADMIN", "cap_net_raw,cap_net_admin");
      return {};
    case Right::kNetAdmin:
      if (!has_capability(CAP_NET_ADMIN)) return missing(driver, "CAP_NET_ADMIN", "cap_net_admin");
      return {};
    case Right::kXdp:
      if (has_capability(CAP_SYS_ADMIN)) return {};
      if (!has_capability(CAP_NET_ADMIN) || !has_capability(CAP_NET_RAW) || !has_capability(CAP_BPF)) {
        return missing(driver, "CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF", "cap_net_admin,cap_net_raw,cap_bpf");
      }
      return {};
    case Right::kTunDevice:
      if (access("/dev/net/tun", R_OK | W_OK) == 0) return {};
      return errno == ENOENT ? Error{Errc::kNotFound, driver + " needs /dev/net/tun; run: sudo modprobe tun"}
                             : Error{Errc::kPermission, driver + " may not open /dev/net/tun; run with sudo"};
  }
  return {};
}

}  // namespace uroce::drivers::dpdk
