/// What librdmacm writes to /dev/infiniband/rdma_cm, and how a connection is made by it.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <string>

#include "abi/rdmacm/rdma_cm.h"
#include "test/abi/verbs_side.h"

namespace uroce::test {

// Of enum rdma_cm_event_type.
inline constexpr std::uint32_t kAddrResolved = 0;
inline constexpr std::uint32_t kAddrError = 1;
inline constexpr std::uint32_t kRouteResolved = 2;
inline constexpr std::uint32_t kConnectRequest = 4;
inline constexpr std::uint32_t kConnectResponse = 5;
inline constexpr std::uint32_t kUnreachable = 7;
inline constexpr std::uint32_t kRejected = 8;
inline constexpr std::uint32_t kEstablished = 9;
inline constexpr std::uint32_t kDisconnected = 10;

inline sockaddr_in6 address(const char* ip, std::uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, ip, &v4.sin_addr) == 1);
  sockaddr_in6 out{};
  std::memcpy(&out, &v4, sizeof v4);
  return out;
}

inline sockaddr_in6 address_v6(const char* ip, std::uint16_t port) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  out.sin6_port = htons(port);
  REQUIRE(inet_pton(AF_INET6, ip, &out.sin6_addr) == 1);
  return out;
}

inline std::string text_of(const sockaddr_in6& from) {
  sockaddr_in v4{};
  std::memcpy(&v4, &from, sizeof v4);
  return inet_ntoa(v4.sin_addr);
}

/// As the preloaded close() does it.
inline int close_device(int fd) {
  return uroce_rdma_cm_end(fd) == 0 ? close(fd) : -1;
}

/// One rdma_event_channel.
class File {
 public:
  File() : fd(uroce_rdma_cm_open(O_CLOEXEC)) { REQUIRE(fd >= 0); }
  ~File() { CHECK(close_device(fd) == 0); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// @return 0 or errno
  template <typename Body>
  int say(std::uint32_t command, const Body& body, std::size_t room = 1024) const {
    struct {
      rdma_ucm_cmd_hdr header;
      Body body;
    } whole{{command, sizeof body, static_cast<__u16>(room)}, body};
    static_assert(sizeof whole == sizeof(rdma_ucm_cmd_hdr) + sizeof(Body));
    const ssize_t written = uroce_rdma_cm_write(fd, &whole, sizeof whole);
    return written == static_cast<ssize_t>(sizeof whole) ? 0 : errno;
  }
  template <typename Response, typename Body>
  Response ask(std::uint32_t command, Body body) const {
    Response response{};
    body.response = reinterpret_cast<std::uint64_t>(&response);
    CHECK(say(command, body, sizeof response) == 0);
    return response;
  }
  std::uint32_t create(std::uint64_t uid, std::uint16_t space = RDMA_PS_TCP) const {
    rdma_ucm_create_id body{};
    body.uid = uid;
    body.ps = space;
    return ask<rdma_ucm_create_id_resp>(RDMA_USER_CM_CMD_CREATE_ID, body).id;
  }
  int bind(std::uint32_t id, const sockaddr_in6& at) const {
    rdma_ucm_bind_ip body{};
    body.id = id;
    body.addr = at;
    return say(RDMA_USER_CM_CMD_BIND_IP, body);
  }
  int bind(std::uint32_t id, const char* ip, std::uint16_t port) const { return bind(id, address(ip, port)); }
  rdma_ucm_query_route_resp query(std::uint32_t id) const {
    rdma_ucm_query body{};
    body.id = id;
    return ask<rdma_ucm_query_route_resp>(RDMA_USER_CM_CMD_QUERY_ROUTE, body);
  }
  int resolve(std::uint32_t id, const sockaddr_in6& to) const {
    rdma_ucm_resolve_ip body{};
    body.id = id;
    body.timeout_ms = 10'000;
    body.dst_addr = to;
    return say(RDMA_USER_CM_CMD_RESOLVE_IP, body);
  }
  int resolve(std::uint32_t id, const char* ip, std::uint16_t port) const {
    return resolve(id, address(ip, port));
  }
  int resolve_route(std::uint32_t id) const {
    return say(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{.id = id, .timeout_ms = 10'000});
  }
  int listen(std::uint32_t id, std::uint32_t backlog = 8) const {
    return say(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = backlog});
  }
  int set_option(std::uint32_t id, std::uint32_t name, const void* value, std::uint32_t bytes) const {
    const rdma_ucm_set_option body{.optval = reinterpret_cast<std::uint64_t>(value),
                                   .id = id,
                                   .level = RDMA_OPTION_ID,
                                   .optname = name,
                                   .optlen = bytes};
    return say(RDMA_USER_CM_CMD_SET_OPTION, body);
  }
  int share_port(std::uint32_t id, int shares) const {
    return set_option(id, RDMA_OPTION_ID_REUSEADDR, &shares, sizeof shares);
  }
  std::uint32_t destroy(std::uint32_t id) const {
    rdma_ucm_destroy_id body{};
    body.id = id;
    return ask<rdma_ucm_destroy_id_resp>(RDMA_USER_CM_CMD_DESTROY_ID, body).events_reported;
  }
  bool is_readable(int timeout_ms) const {
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&wanted, 1, timeout_ms) == 1;
  }
  /// The next event, which comes within seconds.
  rdma_ucm_event_resp next() const {
    REQUIRE(is_readable(10'000));
    return ask<rdma_ucm_event_resp>(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{});
  }

  const int fd;
};

/// The device with its first IPv4 address.
struct Own {
  VerbsSide side;
  char ip[INET_ADDRSTRLEN] = "";

  Own() {
    ibv_gid gid{};
    REQUIRE(ibv_query_gid(side.context, 1, 1, &gid) == 0);
    REQUIRE(inet_ntop(AF_INET, gid.raw + 12, ip, sizeof ip) != nullptr);
  }
};

/// An id that has a way to `ip`.
inline std::uint32_t resolved(const File& file, std::uint64_t uid, const char* ip, std::uint16_t port,
                              std::uint16_t space = RDMA_PS_TCP) {
  const std::uint32_t id = file.create(uid, space);
  REQUIRE(file.resolve(id, ip, port) == 0);
  const auto event = file.next();
  CHECK(event.event == kAddrResolved);
  CHECK(event.uid == uid);
  REQUIRE(file.resolve_route(id) == 0);
  CHECK(file.next().event == kRouteResolved);
  return id;
}

inline std::uint32_t listening(const File& file, std::uint64_t uid, const char* ip, std::uint16_t port) {
  const std::uint32_t id = file.create(uid);
  REQUIRE(file.bind(id, ip, port) == 0);
  REQUIRE(file.listen(id) == 0);
  return id;
}

inline int connect(const File& file, std::uint32_t id, std::uint32_t qpn, const char* text) {
  rdma_ucm_connect body{};
  body.id = id;
  body.conn_param.valid = 1;
  body.conn_param.qp_num = qpn;
  body.conn_param.responder_resources = 3;
  body.conn_param.initiator_depth = 2;
  body.conn_param.private_data_len = static_cast<__u8>(std::strlen(text));
  std::memcpy(body.conn_param.private_data, text, std::strlen(text));
  return file.say(RDMA_USER_CM_CMD_CONNECT, body);
}

inline int accept(const File& file, std::uint32_t id, std::uint64_t uid, std::uint32_t qpn) {
  rdma_ucm_accept body{};
  body.id = id;
  body.uid = uid;
  body.conn_param.valid = 1;
  body.conn_param.qp_num = qpn;
  return file.say(RDMA_USER_CM_CMD_ACCEPT, body);
}

}  // namespace uroce::test
