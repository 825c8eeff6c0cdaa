// Commands that librdmacm writes to /dev/infiniband/rdma_cm.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "test/abi/rdma_cm_side.h"
#include "test/support/no_descriptors.h"

/// Of <infiniband/marshall.h>.
extern "C" void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);

namespace uroce::test {
namespace {

/// What one process has to hear from another.
class Pipe {
 public:
  Pipe() { REQUIRE(pipe(fds_) == 0); }
  ~Pipe() {
    for (const int fd : fds_) close(fd);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void tell() const { REQUIRE(write(fds_[1], "", 1) == 1); }
  [[nodiscard]] bool hears() const {
    pollfd wanted{.fd = fds_[0], .events = POLLIN, .revents = 0};
    char told = 0;
    return poll(&wanted, 1, 10'000) == 1 && read(fds_[0], &told, 1) == 1;
  }

 private:
  int fds_[2] = {-1, -1};
};

/// A program that connects and exits, without closing anything.
[[noreturn]] void connect_and_exit(const char* ip) noexcept {
  const File file;
  const std::uint32_t id = resolved(file, 2, ip, 7000);
  if (connect(file, id, 0x78, "") != 0 || file.next().event != kConnectResponse) _exit(1);
  rdma_ucm_accept ready{};
  ready.id = id;
  if (file.say(RDMA_USER_CM_CMD_ACCEPT, ready) != 0) _exit(2);
  std::exit(0);
}

/// A program that connects, and is still connected when it is asked.
[[noreturn]] void connect_and_hear_the_end(const char* ip, const Pipe& go, const Pipe& is_there) noexcept {
  alarm(30);
  if (!go.hears()) _exit(1);
  const File file;
  const std::uint32_t id = resolved(file, 2, ip, 7000);
  if (connect(file, id, 0x78, "") != 0 || file.next().event != kConnectResponse) _exit(2);
  rdma_ucm_accept ready{};
  ready.id = id;
  if (file.say(RDMA_USER_CM_CMD_ACCEPT, ready) != 0 || !go.hears()) _exit(3);
  if (file.is_readable(100)) _exit(4);
  is_there.tell();
  _exit(file.next().event == kDisconnected ? 0 : 5);
}

/// A child ends behind the library's exit handlers, and before a leak checker takes for lost what only
/// threads of its parent know.
bool is_left = false;
[[maybe_unused]] const int ends_early = std::atexit([] {
  if (is_left) _exit(0);
});

/// In a child: its parent's channel can only be closed. It may have one of its own.
[[noreturn]] void leave_and_exit(const File& parents) noexcept {
  alarm(30);
  if (parents.say(RDMA_USER_CM_CMD_CREATE_ID, rdma_ucm_create_id{}) != EIO) _exit(1);
  if (close_device(parents.fd) != 0) _exit(2);
  const auto* own = new File;
  listening(*own, 1, "0.0.0.0", 7000);
  if (own->is_readable(0) || close_device(own->fd) != 0) _exit(3);
  is_left = true;
  std::exit(1);
}

}  // namespace

TEST_CASE("an id is bound to an address of the port, and AF_IB is unknown", "[abi][rdmacm]") {
  const Own own;
  const File file;
  const std::uint32_t id = file.create(1);
  CHECK(file.say(RDMA_USER_CM_CMD_BIND, rdma_ucm_bind{}) == ENOSYS);
  CHECK(file.bind(id, "192.0.2.77", 7000) == EADDRNOTAVAIL);
  CHECK(file.query(id).node_guid == 0);
  REQUIRE(file.bind(id, own.ip, 7000) == 0);
  CHECK(file.bind(id, own.ip, 7001) == EINVAL);
  const auto known = file.query(id);
  CHECK(known.node_guid == ibv_get_device_guid(own.side.context->device));
  CHECK(known.port_num == 1);
  CHECK(known.num_paths == 0);
  const sockaddr_in6 bound = address(own.ip, 7000);
  CHECK(std::memcmp(&known.src_addr, &bound, sizeof(sockaddr_in)) == 0);
  const File other;
  const std::uint32_t second = other.create(2);
  CHECK(other.bind(second, own.ip, 7000) == EADDRINUSE);
  CHECK(other.bind(id, own.ip, 7002) == EINVAL);  // of another file
  rdma_ucm_create_id unknown{};
  unknown.ps = 0x77;
  CHECK(file.say(RDMA_USER_CM_CMD_CREATE_ID, unknown) == EINVAL);
  unknown.ps = RDMA_PS_TCP;
  CHECK(file.say(RDMA_USER_CM_CMD_CREATE_ID, unknown, 2) == ENOSPC);
}

TEST_CASE("a command that finds no descriptor says so, and can be given again", "[abi][rdmacm][errors]") {
  const Own own;
  const File file;
  const std::uint32_t id = file.create(1);
  rdma_ucm_bind_ip bind{};
  bind.id = id;
  bind.addr = address(own.ip, 7000);
  const auto is_bound = [&] { return file.say(RDMA_USER_CM_CMD_BIND_IP, bind) == 0; };
  CHECK(errno_without_descriptors(is_bound) == EMFILE);
  CHECK(is_bound());
}

TEST_CASE("however few descriptors there are, a command fails, or all events come", "[abi][rdmacm][errors]") {
  const std::size_t left = GENERATE(range<std::size_t>(0, 6));
  CAPTURE(left);
  const Own own;
  const File file;
  rdma_ucm_bind_ip bind{};
  bind.id = file.create(1);
  bind.addr = address(own.ip, 7000);
  rdma_ucm_resolve_ip resolve{};
  resolve.id = file.create(2);
  resolve.timeout_ms = 10'000;
  resolve.dst_addr = address(own.ip, 7000);
  const auto has_begun = [&] {  // and has all the threads that there will be
    return file.say(RDMA_USER_CM_CMD_BIND_IP, bind) == 0 &&
           file.say(RDMA_USER_CM_CMD_RESOLVE_IP, resolve) == 0 && file.is_readable(10'000);
  };
  const int error = errno_without_descriptors(has_begun, left);
  if (error != 0) {
    CHECK(error == EMFILE);
    REQUIRE(has_begun());
  }
  CHECK(file.next().event == kAddrResolved);
  REQUIRE(file.resolve_route(resolve.id) == 0);
  CHECK(file.next().event == kRouteResolved);
  REQUIRE(file.listen(bind.id) == 0);
  REQUIRE(connect(file, resolve.id, own.side.qp->qp_num, "") == 0);
  CHECK(file.next().event == kConnectRequest);
}

TEST_CASE("addresses of the loopback interface stand for the port's, and for the other end's",
          "[abi][rdmacm]") {
  Own own;
  File file;
  const std::uint32_t listener = listening(file, 1, "127.0.0.1", 7200);
  CHECK(text_of(file.query(listener).src_addr) == own.ip);
  const std::uint32_t here = resolved(file, 2, "127.0.0.1", 7200);  // somebody in this process listens
  CHECK(text_of(file.query(here).dst_addr) == own.ip);
  const std::uint32_t there = file.create(3);
  REQUIRE(file.resolve(there, "127.0.0.1", 7201) == 0);
  CHECK(text_of(file.query(there).dst_addr) == "10.77.0.2");
}

TEST_CASE("who listens in another port space, or could not, is not who is connected to here",
          "[abi][rdmacm]") {
  const Own own;
  const File file;
  const std::uint32_t datagrams = file.create(1, RDMA_PS_UDP);
  REQUIRE(file.bind(datagrams, own.ip, 7220) == 0);
  REQUIRE(file.listen(datagrams) == 0);
  const std::uint32_t shared = file.create(2);
  const std::uint32_t refused = file.create(3);
  for (const std::uint32_t id : {shared, refused}) {
    REQUIRE(file.share_port(id, 1) == 0);
    REQUIRE(file.bind(id, own.ip, 7221) == 0);
  }
  REQUIRE(file.listen(refused) == EADDRINUSE);
  for (const std::uint16_t port : {std::uint16_t{7220}, std::uint16_t{7221}}) {
    CAPTURE(port);
    const std::uint32_t id = file.create(4);
    REQUIRE(file.resolve(id, "127.0.0.1", port) == 0);
    CHECK(text_of(file.query(id).dst_addr) == "10.77.0.2");
  }
}

TEST_CASE("addresses of the loopback interface stand for the first of more than two ends", "[.][mesh]") {
  const Own own;
  CHECK(own.ip == std::string("10.77.0.3"));
  const File file;
  const std::uint32_t first = file.create(1);
  REQUIRE(file.resolve(first, "127.0.0.1", 7202) == 0);
  CHECK(text_of(file.query(first).dst_addr) == "10.77.0.1");
}

TEST_CASE("no address at all to connect to is the device itself, and so is ::1", "[abi][rdmacm]") {
  Own own;
  File file;
  (void)listening(file, 1, "0.0.0.0", 7210);
  const std::uint32_t v4 = resolved(file, 2, "0.0.0.0", 7210);
  CHECK(text_of(file.query(v4).dst_addr) == own.ip);
  for (const char* ip : {"::", "::1"}) {
    const std::uint32_t id = file.create(3);
    REQUIRE(file.resolve(id, address_v6(ip, 7210)) == 0);
    CAPTURE(ip);
    CHECK(file.next().event == kAddrResolved);
    const rdma_ucm_query_route_resp route = file.query(id);
    ibv_gid gid{};
    REQUIRE(ibv_query_gid(own.side.context, 1, 0, &gid) == 0);
    CHECK(std::memcmp(&route.dst_addr.sin6_addr, gid.raw, sizeof gid.raw) == 0);
  }
  rdma_ucm_bind_ip bind{};
  bind.id = file.create(4);
  bind.addr = address_v6("::1", 7211);
  CHECK(file.say(RDMA_USER_CM_CMD_BIND_IP, bind) == 0);
}

TEST_CASE("DESTROY_ID tells how many events were read, and removes the others", "[abi][rdmacm]") {
  const Own own;
  const File file;
  CHECK_FALSE(file.is_readable(0));
  REQUIRE(fcntl(file.fd, F_SETFL, O_NONBLOCK) == 0);
  rdma_ucm_event_resp response{};
  const rdma_ucm_get_event get{.response = reinterpret_cast<std::uint64_t>(&response)};
  CHECK(file.say(RDMA_USER_CM_CMD_GET_EVENT, get) == EAGAIN);
  const std::uint32_t id = file.create(5);
  REQUIRE(file.resolve(id, own.ip, 7000) == 0);
  CHECK(file.next().event == kAddrResolved);
  REQUIRE(file.resolve_route(id) == 0);
  CHECK(file.is_readable(0));
  CHECK(file.destroy(id) == 1);
  CHECK_FALSE(file.is_readable(0));
  CHECK(file.say(RDMA_USER_CM_CMD_GET_EVENT, get) == EAGAIN);
}

TEST_CASE("an address that the port does not reach brings ADDR_ERROR", "[abi][rdmacm]") {
  const Own own;
  const File file;
  const std::uint32_t id = file.create(1);
  rdma_ucm_resolve_ip body{};
  body.id = id;
  body.timeout_ms = 1;
  body.dst_addr = address(own.ip, 7000);
  auto& v4 = reinterpret_cast<sockaddr_in&>(body.dst_addr);
  v4.sin_addr.s_addr ^= htonl(0x20);  // on this link, and nobody's
  REQUIRE(file.say(RDMA_USER_CM_CMD_RESOLVE_IP, body) == 0);
  const auto event = file.next();
  CHECK(event.event == kAddrError);
  CHECK(static_cast<int>(event.status) == -ETIMEDOUT);
  CHECK(file.resolve_route(id) == EINVAL);
}

TEST_CASE("there is no way to an address of a kind that the port has none of, which is known at once",
          "[abi][rdmacm]") {
  const Own own;
  const File file;
  const std::uint32_t id = file.create(1);
  CHECK(file.resolve(id, address_v6("2001:db8::1", 7000)) == ENETUNREACH);
  CHECK_FALSE(file.is_readable(0));
  CHECK(file.resolve(id, own.ip, 7000) == 0);  // it can ask for another
  CHECK(file.next().event == kAddrResolved);
}

TEST_CASE("what the kernel refuses is refused", "[abi][rdmacm]") {
  const Own own;
  const File file;
  const std::uint32_t id = resolved(file, 1, own.ip, 7000);
  CHECK(file.resolve_route(id) == EINVAL);  // there is one
  CHECK_FALSE(file.is_readable(0));
  const std::uint32_t value = 1;
  CHECK(file.set_option(id, RDMA_OPTION_ID_TOS, &value, 4) == EINVAL);
  CHECK(file.set_option(id, RDMA_OPTION_ID_TOS, &value, 1) == 0);
  CHECK(file.set_option(id, RDMA_OPTION_ID_AFONLY, &value, 1) == EINVAL);
  CHECK(file.set_option(id, RDMA_OPTION_ID_AFONLY, &value, 4) == EINVAL);  // it has an address
  CHECK(file.set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, &value, 4) == EINVAL);
  CHECK(file.set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, &value, 1) == 0);
  const std::uint32_t datagrams = file.create(2, RDMA_PS_UDP);
  CHECK(file.set_option(datagrams, RDMA_OPTION_ID_ACK_TIMEOUT, &value, 1) == EINVAL);
}

TEST_CASE("an ACK timeout that is set is the QP's, 0 too: none", "[abi][rdmacm]") {
  const auto [set, timeout] = GENERATE(table<int, int>({{-1, 16}, {0, 0}, {20, 20}}));  // -1: not set
  CAPTURE(set);
  const Own own;
  const VerbsSide peer;
  const File file;
  (void)listening(file, 1, own.ip, 7000);
  const std::uint32_t id = file.create(2);
  const auto code = static_cast<std::uint8_t>(set);
  if (set >= 0) REQUIRE(file.set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, &code, sizeof code) == 0);
  REQUIRE(file.resolve(id, own.ip, 7000) == 0);
  CHECK(file.next().event == kAddrResolved);
  REQUIRE(file.resolve_route(id) == 0);
  CHECK(file.next().event == kRouteResolved);
  REQUIRE(connect(file, id, own.side.qp->qp_num, "") == 0);
  REQUIRE(accept(file, file.next().id, 3, peer.qp->qp_num) == 0);
  CHECK(file.next().event == kConnectResponse);
  for (const auto state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    rdma_ucm_init_qp_attr init{};
    init.id = id;
    init.qp_state = state;
    auto told = file.ask<ib_uverbs_qp_attr>(RDMA_USER_CM_CMD_INIT_QP_ATTR, init);
    ibv_qp_attr attr{};
    ibv_copy_qp_attr_from_kern(&attr, &told);
    attr.qp_state = state;
    REQUIRE(ibv_modify_qp(own.side.qp, &attr, static_cast<int>(told.qp_attr_mask)) == 0);
  }
  ibv_qp_attr attr{};
  ibv_qp_init_attr made{};
  REQUIRE(ibv_query_qp(own.side.qp, &attr, IBV_QP_TIMEOUT, &made) == 0);
  CHECK(attr.timeout == timeout);
}

TEST_CASE("whoever has asked, or is asked, has nothing to end before there is a connection, and no error",
          "[abi][rdmacm]") {
  const std::uint16_t space = GENERATE(std::uint16_t{RDMA_PS_TCP}, std::uint16_t{RDMA_PS_UDP});
  CAPTURE(space);
  const Own own;
  const VerbsSide peer;
  const File file;
  const auto end = [&file](std::uint32_t id) {
    return file.say(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = id});
  };
  const std::uint32_t listener = file.create(1, space);
  CHECK(end(listener) == EINVAL);
  REQUIRE(file.bind(listener, own.ip, 7000) == 0);
  CHECK(end(listener) == EINVAL);
  REQUIRE(file.listen(listener) == 0);
  const std::uint32_t id = resolved(file, 2, own.ip, 7000, space);
  CHECK(end(id) == EINVAL);
  REQUIRE(connect(file, id, own.side.qp->qp_num, "") == 0);
  CHECK(end(id) == 0);
  const auto request = file.next();
  REQUIRE(request.event == kConnectRequest);
  CHECK(end(request.id) == 0);
  CHECK(end(listener) == EINVAL);
  REQUIRE(accept(file, request.id, 3, peer.qp->qp_num) == 0);  // it goes on
  CHECK(file.next().event == (space == RDMA_PS_UDP ? kEstablished : kConnectResponse));
  CHECK(end(id) == 0);
}

TEST_CASE("listeners of all addresses of one family each have one port", "[abi][rdmacm]") {
  // As tgtd's
  const Own own;
  const File file;
  const std::uint32_t value = 1;
  const std::uint32_t four = file.create(1);
  const std::uint32_t six = file.create(2);
  REQUIRE(file.bind(four, "0.0.0.0", 7000) == 0);
  CHECK(file.bind(six, address_v6("::", 7000)) == EADDRINUSE);
  CHECK(file.set_option(six, RDMA_OPTION_ID_AFONLY, &value, 4) == 0);
  REQUIRE(file.bind(six, address_v6("::", 7000)) == 0);
  CHECK(file.listen(six) == 0);
  CHECK(file.listen(four) == 0);
  CHECK(file.set_option(six, RDMA_OPTION_ID_AFONLY, &value, 4) == EINVAL);
}

TEST_CASE("ids that all reuse an address are bound to one port, and the last of them can listen there",
          "[abi][rdmacm]") {
  const Own own;
  const File file;
  const std::uint32_t first = file.create(1);
  const std::uint32_t second = file.create(2);
  CHECK(file.share_port(first, 1) == 0);
  REQUIRE(file.bind(first, own.ip, 7000) == 0);
  CHECK(file.bind(second, own.ip, 7000) == EADDRINUSE);
  CHECK(file.share_port(second, 1) == 0);
  REQUIRE(file.bind(second, own.ip, 7000) == 0);
  CHECK(file.share_port(second, 0) == EINVAL);
  CHECK(file.listen(second) == EADDRINUSE);
  file.destroy(first);
  CHECK(file.listen(second) == 0);
  const std::uint32_t third = file.create(3);
  CHECK(file.share_port(third, 1) == 0);
  CHECK(file.bind(third, own.ip, 7000) == EADDRINUSE);
}

TEST_CASE("events that are not read move with their id", "[abi][rdmacm]") {
  const Own own;
  const File from;
  const std::uint32_t id = from.create(9);
  REQUIRE(from.resolve(id, own.ip, 7000) == 0);
  CHECK(from.next().event == kAddrResolved);
  REQUIRE(from.resolve_route(id) == 0);
  const File to;
  rdma_ucm_migrate_id body{};
  body.id = id;
  body.fd = static_cast<__u32>(from.fd);
  CHECK(to.ask<rdma_ucm_migrate_resp>(RDMA_USER_CM_CMD_MIGRATE_ID, body).events_reported == 1);
  CHECK_FALSE(from.is_readable(0));
  CHECK(to.next().uid == 9);
  CHECK(to.destroy(id) == 2);
}

TEST_CASE("a connection is asked for, accepted, established and ended, on one loop and between two",
          "[abi][rdmacm]") {
  const bool has_loops = GENERATE(false, true);
  const Setting loops("UROCE_LCORES", has_loops ? "0,1" : "");
  const Own own;
  const VerbsSide peer(has_loops ? 1 : 0);
  const File file;
  const std::uint32_t listener = listening(file, 1, own.ip, 7000);
  const std::uint32_t id = resolved(file, 2, own.ip, 7000);
  REQUIRE(connect(file, id, own.side.qp->qp_num, "hello") == 0);
  const auto request = file.next();
  CHECK(request.event == kConnectRequest);
  CHECK(request.uid == 1);
  CHECK(request.param.conn.qp_num == own.side.qp->qp_num);
  CHECK(request.param.conn.initiator_depth == 3);  // seen from this side
  CHECK(request.param.conn.responder_resources == 2);
  CHECK(request.param.conn.private_data_len == 56);
  CHECK(std::memcmp(request.param.conn.private_data, "hello", 6) == 0);
  REQUIRE(accept(file, request.id, 3, peer.qp->qp_num) == 0);
  const auto reply = file.next();
  CHECK(reply.event == kConnectResponse);
  CHECK(reply.uid == 2);
  CHECK(reply.param.conn.qp_num == peer.qp->qp_num);
  CHECK(reply.ece.vendor_id == 0);  // the program had named none
  rdma_ucm_init_qp_attr init{};
  init.id = id;
  init.qp_state = IBV_QPS_RTR;
  const auto attr = file.ask<ib_uverbs_qp_attr>(RDMA_USER_CM_CMD_INIT_QP_ATTR, init);
  CHECK(attr.dest_qp_num == peer.qp->qp_num);
  CHECK((attr.qp_attr_mask & IBV_QP_AV) != 0);
  CHECK(attr.ah_attr.is_global == 1);
  rdma_ucm_accept ready{};
  ready.id = id;
  REQUIRE(file.say(RDMA_USER_CM_CMD_ACCEPT, ready) == 0);
  const auto established = file.next();
  CHECK(established.event == kEstablished);
  CHECK(established.uid == 3);
  REQUIRE(file.say(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = id}) == 0);
  CHECK(file.next().event == kDisconnected);
  CHECK(file.next().event == kDisconnected);
  CHECK(file.destroy(listener) == 1);
}

TEST_CASE("whoever takes a reply behind which its peer has left is connected, and then not",
          "[abi][rdmacm]") {
  const Own own;
  const VerbsSide peer;
  const File file;
  (void)listening(file, 1, own.ip, 7000);
  const std::uint32_t id = resolved(file, 2, own.ip, 7000);
  REQUIRE(connect(file, id, own.side.qp->qp_num, "") == 0);
  const auto request = file.next();
  REQUIRE(accept(file, request.id, 3, peer.qp->qp_num) == 0);
  CHECK(file.next().event == kConnectResponse);
  REQUIRE(file.say(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = request.id}) == 0);
  const auto ended = file.next();
  CHECK(ended.event == kDisconnected);
  CHECK(ended.uid == 3);
  rdma_ucm_accept ready{};
  ready.id = id;
  CHECK(file.say(RDMA_USER_CM_CMD_ACCEPT, ready) == 0);
  const auto told = file.next();
  CHECK(told.event == kDisconnected);
  CHECK(told.uid == 2);
}

TEST_CASE("a channel may close with a request that nobody has read, whatever its id", "[abi][rdmacm]") {
  const Own own;
  const File client;
  {
    const File server;
    const std::uint32_t first = server.create(1);
    listening(server, 2, own.ip, 7000);
    server.destroy(first);  // the request will have its number, which is below the listener's
    const std::uint32_t id = resolved(client, 3, own.ip, 7000);
    REQUIRE(connect(client, id, own.side.qp->qp_num, "") == 0);
    REQUIRE(server.is_readable(10'000));
  }
  CHECK(client.next().event == kRejected);
}

TEST_CASE("retry counts beyond 7 are as many as there can be", "[abi][rdmacm]") {
  const Own own;
  const VerbsSide peer;
  const File file;
  listening(file, 1, own.ip, 7000);
  const std::uint32_t id = resolved(file, 2, own.ip, 7000);
  rdma_ucm_connect body{};
  body.id = id;
  body.conn_param.valid = 1;
  body.conn_param.qp_num = own.side.qp->qp_num;
  body.conn_param.retry_count = 8;
  body.conn_param.rnr_retry_count = 10;
  REQUIRE(file.say(RDMA_USER_CM_CMD_CONNECT, body) == 0);
  const auto request = file.next();
  CHECK(request.param.conn.retry_count == 7);
  CHECK(request.param.conn.rnr_retry_count == 7);
}

TEST_CASE("a listener for connections hears nothing of those who look for datagrams", "[abi][rdmacm]") {
  const Own own;
  const File file;
  rdma_ucm_create_id body{};
  body.ps = RDMA_PS_IB;
  body.uid = 1;
  body.qp_type = IBV_QPT_RC;
  const std::uint32_t listener = file.ask<rdma_ucm_create_id_resp>(RDMA_USER_CM_CMD_CREATE_ID, body).id;
  REQUIRE(file.bind(listener, own.ip, 7000) == 0);
  REQUIRE(file.listen(listener) == 0);
  body.uid = 2;
  body.qp_type = GENERATE(IBV_QPT_UD, IBV_QPT_UC);
  const std::uint32_t id = file.ask<rdma_ucm_create_id_resp>(RDMA_USER_CM_CMD_CREATE_ID, body).id;
  REQUIRE(file.resolve(id, own.ip, 7000) == 0);
  CHECK(file.next().event == kAddrResolved);
  REQUIRE(file.resolve_route(id) == 0);
  CHECK(file.next().event == kRouteResolved);
  REQUIRE(connect(file, id, own.side.qp->qp_num, "") == 0);
  const auto answer = file.next();
  CHECK(answer.uid == 2);
  CHECK(answer.event == (body.qp_type == IBV_QPT_UD ? kUnreachable : kRejected));
}

TEST_CASE("a process that exits ends its connections first", "[abi][rdmacm]") {
  VerbsSide::use_own_link();
  const Pipe is_heard;
  std::fflush(stdout);  // the child exits, too
  const pid_t child = fork();
  setenv("UROCE_IP", child == 0 ? "10.77.0.2/24" : "10.77.0.1/24", 1);
  if (child == 0) {
    if (!is_heard.hears()) _exit(3);
    connect_and_exit("10.77.0.1");
  }
  {
    const File file;
    listening(file, 1, "10.77.0.1", 7000);
    is_heard.tell();
    const auto request = file.next();
    CHECK(request.event == kConnectRequest);
    REQUIRE(accept(file, request.id, 3, 0x77) == 0);  // nobody looks at the QPs
    CHECK(file.next().event == kEstablished);
    CHECK(file.next().event == kDisconnected);
  }
  unsetenv("UROCE_IP");
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a child that was forked closes its parent's channel, and ends no connection",
          "[abi][rdmacm][fork]") {
  VerbsSide::use_own_link();
  const Pipe go;
  const Pipe is_there;
  std::fflush(stdout);  // children exit, too
  const pid_t peer = fork();
  setenv("UROCE_IP", peer == 0 ? "10.77.0.2/24" : "10.77.0.1/24", 1);
  if (peer == 0) connect_and_hear_the_end("10.77.0.1", go, is_there);
  {
    const File file;
    listening(file, 1, "10.77.0.1", 7000);
    go.tell();
    const auto request = file.next();
    REQUIRE(accept(file, request.id, 3, 0x77) == 0);  // nobody looks at the QPs
    CHECK(file.next().event == kEstablished);
    const pid_t child = fork();
    if (child == 0) leave_and_exit(file);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK_FALSE(file.is_readable(0));
    go.tell();
    CHECK(is_there.hears());
    REQUIRE(file.say(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = request.id}) == 0);
    CHECK(file.next().event == kDisconnected);
  }
  unsetenv("UROCE_IP");
  int status = -1;
  REQUIRE(waitpid(peer, &status, 0) == peer);
  CHECK(status == 0);
}

TEST_CASE("whoever asks where nobody listens, or is refused, hears REJECTED", "[abi][rdmacm]") {
  const Own own;
  const File file;
  const std::uint32_t nobody = resolved(file, 2, own.ip, 7009);
  REQUIRE(connect(file, nobody, own.side.qp->qp_num, "") == 0);
  const auto refused = file.next();
  CHECK(refused.event == kRejected);
  CHECK(refused.status == 8);  // invalid service id
  listening(file, 1, own.ip, 7000);
  const std::uint32_t id = resolved(file, 4, own.ip, 7000);
  REQUIRE(connect(file, id, own.side.qp->qp_num, "") == 0);
  const auto request = file.next();
  rdma_ucm_reject reject{};
  reject.id = request.id;
  reject.private_data_len = 2;
  std::memcpy(reject.private_data, "no", 2);
  REQUIRE(file.say(RDMA_USER_CM_CMD_REJECT, reject) == 0);
  const auto said_no = file.next();
  CHECK(said_no.event == kRejected);
  CHECK(said_no.uid == 4);
  CHECK(said_no.status == 28);  // consumer
  rdma_ucm_conn_param only_private{};
  std::memcpy(only_private.private_data, "no", 2);
  only_private.private_data_len = 148;
  CHECK(std::memcmp(&said_no.param.conn, &only_private, sizeof only_private) == 0);
}

TEST_CASE("librdmacm is told what it knows of, if it is older than ECE and the index of a device",
          "[abi][rdmacm][old]") {
  const Own own;
  const File file;
  const std::uint32_t id = file.create(1);
  REQUIRE(file.resolve(id, own.ip, 7000) == 0);
  REQUIRE(file.is_readable(10'000));
  rdma_ucm_event_resp event{};
  event.ece.attr_mod = 2;
  const rdma_ucm_get_event get{.response = reinterpret_cast<std::uint64_t>(&event)};
  CHECK(file.say(RDMA_USER_CM_CMD_GET_EVENT, get, offsetof(rdma_ucm_event_resp, reserved) - 1) == ENOSPC);
  REQUIRE(file.say(RDMA_USER_CM_CMD_GET_EVENT, get, offsetof(rdma_ucm_event_resp, ece)) == 0);
  CHECK(event.event == kAddrResolved);
  CHECK(event.ece.attr_mod == 2);
  rdma_ucm_query_route_resp route{};
  route.ibdev_index = 77;
  rdma_ucm_query query{};
  query.response = reinterpret_cast<std::uint64_t>(&route);
  query.id = id;
  constexpr std::size_t kOld = offsetof(rdma_ucm_query_route_resp, ibdev_index);
  CHECK(file.say(RDMA_USER_CM_CMD_QUERY_ROUTE, query, kOld - 1) == ENOSPC);
  REQUIRE(file.say(RDMA_USER_CM_CMD_QUERY_ROUTE, query, kOld) == 0);
  CHECK(route.port_num == 1);
  CHECK(route.ibdev_index == 77);
}

TEST_CASE("requests beyond a backlog that nobody has read wait for it", "[abi][rdmacm]") {
  const Own own;
  const File servers;
  const File clients;
  const std::uint32_t listener = servers.create(1);
  REQUIRE(servers.bind(listener, own.ip, 7000) == 0);
  REQUIRE(servers.listen(listener, 1) == 0);
  constexpr unsigned kClients = 3;
  for (unsigned i = 0; i < kClients; ++i) {
    REQUIRE(connect(clients, resolved(clients, 2 + i, own.ip, 7000), 0x70 + i, "") == 0);
  }
  CHECK_FALSE(clients.is_readable(200));  // none is refused meanwhile
  for (unsigned i = 0; i < kClients; ++i) {
    const auto request = servers.next();
    REQUIRE(request.event == kConnectRequest);
    REQUIRE(accept(servers, request.id, 3, 0x90 + i) == 0);
    CHECK(clients.next().event == kConnectResponse);
  }
}

TEST_CASE("a request that cannot be accepted is refused", "[abi][rdmacm]") {
  const Own own;
  const File file;
  (void)listening(file, 1, own.ip, 7000);
  REQUIRE(connect(file, resolved(file, 2, own.ip, 7000), 0x70, "") == 0);
  const auto request = file.next();
  REQUIRE(request.event == kConnectRequest);
  rdma_ucm_accept body{};
  body.id = request.id;
  body.conn_param.valid = 1;
  body.conn_param.private_data_len = 197;
  CHECK(file.say(RDMA_USER_CM_CMD_ACCEPT, body) == EINVAL);
  const auto answer = file.next();
  CHECK(answer.event == kRejected);
  CHECK(answer.status == 28);
}

}  // namespace uroce::test
