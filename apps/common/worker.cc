#include "apps/common/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "apps/common/clock.h"
#include "apps/common/cores.h"
#include "apps/common/json_text.h"
#include "apps/common/stop.h"

namespace uroce::apps {
namespace {

constexpr std::size_t kMaxMessage = 64 * 1024;  // bytes of one request or answer
constexpr int kIdleMs = 20;

Status send_message(int fd, const Json& message) {
  const auto text = to_text(message);
  if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) return {};
  return Error{.code = Errc::kPeer, .text = std::strerror(errno)};
}

/// One message; a null value at the end of the stream.
Json receive_message(int fd) {
  std::vector<char> text(kMaxMessage);
  ssize_t length = ::recv(fd, text.data(), text.size(), 0);
  if (length < 0 && errno == ECONNRESET)  // it has ended before it read all; what it said is there
    length = ::recv(fd, text.data(), text.size(), 0);
  if (length <= 0) return {};
  return Json::parse(text.data(), text.data() + length, nullptr, false);
}

bool is_readable(int fd, int timeout_ms) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, timeout_ms) > 0;
}

/// How often the kernel has taken the core from this process for another.
std::int64_t interruptions() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

Json answer_of(const Error& error) {
  return {{"code", static_cast<int>(error.code)}, {"error", error.text}};
}

Error error_of(const Json& answer) {
  return {.code = static_cast<Errc>(answer.value("code", static_cast<int>(Errc::kSystem))),
          .text = answer.value("error", "")};
}

Json answer_to(Service& service, const Json& request) {
  const auto before = interruptions();
  auto answer = service.handle(request);
  if (answer) {
    (*answer)["interruptions"] = interruptions() - before;
    return Json{{"ok", std::move(*answer)}};
  }
  return answer_of(answer.error());
}

/// Until it is told to end, or nobody is there who could.
void serve(int fd, int core, const Worker::Factory& factory) {
  const auto pinned = pin_to_core(core);
  const auto service = factory();
  while (!is_stopped()) {
    if (!is_readable(fd, kIdleMs)) {
      service->idle();
      continue;
    }
    const Json request = receive_message(fd);
    if (!request.is_object() || request.value("op", "") == "exit") return;
    const Json answer = pinned ? answer_to(*service, request) : answer_of(pinned.error());
    if (!send_message(fd, answer)) return;
  }
}

/// The life of a worker process: nothing is thrown into what it has a copy of, its parent's functions. That
/// is the answer to the request it is at, or to the next one.
/// @return the exit code
int live(int fd, int core, const Worker::Factory& factory) noexcept {
  Error error;
  try {
    serve(fd, core, factory);
    return 0;
  } catch (const std::bad_alloc&) {
    error = {.code = Errc::kNoMemory, .text = "no memory is left"};
  } catch (const std::exception& thrown) {
    error = {.code = Errc::kSystem, .text = thrown.what()};
  }
  (void)send_message(fd, answer_of(error));
  return exit_code(error.code);
}

int milliseconds_until(std::uint64_t until_ns) {
  const std::uint64_t now = now_ns();
  return until_ns > now ? static_cast<int>((until_ns - now) / kMillisecond) : 0;
}

bool has_ended(pid_t pid, std::uint64_t within_ns, int& status) {
  const std::uint64_t until = now_ns() + within_ns;
  while (true) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return true;
    if (now_ns() >= until) return false;
    ::usleep(1000);
  }
}

/// Of this process: all are told to end before the first one is waited for.
std::vector<pid_t>& alive() {
  static std::vector<pid_t> pids;
  return pids;
}

}  // namespace

Result<Worker> Worker::spawn(std::string name, int core, const Factory& factory) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Error{.code = Errc::kSystem, .text = fmt::format("socketpair: {}", std::strerror(errno))};
  }
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return Error{.code = Errc::kSystem, .text = fmt::format("fork: {}", std::strerror(errno))};
  }
  if (pid == 0) {
    stop_with_parent();
    if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
    ::close(ends[0]);
    const int exit_code = live(ends[1], core, factory);
    std::fflush(nullptr);
    ::_exit(exit_code);
  }
  ::close(ends[1]);
  alive().push_back(pid);
  return Worker(std::move(name), pid, ends[0]);
}

Worker::Worker(Worker&& other) noexcept
    : name_(std::move(other.name_)), pid_(std::exchange(other.pid_, -1)), fd_(std::exchange(other.fd_, -1)) {}

Worker& Worker::operator=(Worker&& other) noexcept {
  if (this == &other) return *this;
  stop();
  name_ = std::move(other.name_);
  pid_ = std::exchange(other.pid_, -1);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

Worker::~Worker() {
  stop();
}

void Worker::stop() noexcept {
  if (pid_ < 0) return;
  constexpr char kExit[] = R"({"op":"exit"})";
  (void)!::send(fd_, kExit, sizeof kExit - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  int status = 0;
  bool ended = !is_stopped() && has_ended(pid_, kSecond, status);
  if (!ended) {
    for (const pid_t pid : alive()) {
      if (pid == pid_ || is_stopped()) ::kill(pid, kStopWorker);  // whatever it is at
    }
    ended = has_ended(pid_, kStopSeconds / 2 * kSecond, status);
  }
  if (!ended) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  ::close(fd_);
  std::erase(alive(), pid_);
  pid_ = fd_ = -1;
}

Status Worker::send(const Json& request) {
  if (pid_ < 0) return Error{.code = Errc::kPeer, .text = fmt::format("{} is gone", name_)};
  if (send_message(fd_, request)) return {};
  if (is_readable(fd_, 0)) {
    if (const Json last = receive_message(fd_); last.contains("error")) return error_of(last);
  }
  return death();
}

Error Worker::death() {
  int status = 0;
  std::string how = "closed its channel";
  if (has_ended(pid_, kSecond / 2, status)) {
    std::erase(alive(), pid_);
    pid_ = -1;
    ::close(std::exchange(fd_, -1));
    how = WIFSIGNALED(status)
              ? fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
              : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  }
  return {.code = Errc::kPeer, .text = fmt::format("{} {}", name_, how)};
}

bool Worker::first_to_answer(const Worker& a, const Worker& b, std::uint64_t until_ns) {
  pollfd both[2] = {{.fd = a.fd_, .events = POLLIN, .revents = 0},
                    {.fd = b.fd_, .events = POLLIN, .revents = 0}};
  (void)::poll(both, 2, milliseconds_until(until_ns));
  return both[1].revents == 0;
}

Result<Json> Worker::receive(std::uint64_t until_ns) {
  if (is_stopped()) return stopped();
  if (pid_ < 0) return Error{.code = Errc::kPeer, .text = fmt::format("{} is gone", name_)};
  if (!is_readable(fd_, milliseconds_until(until_ns))) {
    if (is_stopped()) return stopped();
    return Error{.code = Errc::kTimeout, .text = fmt::format("{} did not answer in time", name_)};
  }
  Json answer = receive_message(fd_);
  if (!answer.is_object()) return death();
  if (answer.contains("ok")) return std::move(answer["ok"]);
  return error_of(answer);
}

Result<Json> Worker::ask(const Json& request, std::uint64_t timeout_ns) {
  if (auto sent = send(request); !sent) return sent.error();
  return receive(now_ns() + timeout_ns);
}

Result<Pair::Answers> Pair::call(const Json& to_client, const Json& to_server, std::uint64_t timeout_ns) {
  const std::uint64_t until = now_ns() + timeout_ns;
  if (broken) return Error{.code = Errc::kPeer, .text = "out of use since an earlier failure"};
  broken = true;  // unless all goes well
  if (auto sent = server.send(to_server); !sent) return sent.error();
  if (auto sent = client.send(to_client); !sent) return sent.error();
  // Whoever fails first knows the reason; the other would only report that its peer is silent.
  const bool client_first = Worker::first_to_answer(client, server, until);
  Worker& first = client_first ? client : server;
  Worker& second = client_first ? server : client;
  auto one = first.receive(until);
  if (!one) return one.error();
  auto two = second.receive(until);
  if (!two) return two.error();
  broken = false;
  if (client_first) return Answers{.client = std::move(*one), .server = std::move(*two)};
  return Answers{.client = std::move(*two), .server = std::move(*one)};
}

Result<Pair> Pair::spawn(const std::string& what, int client_core, int server_core,
                         const Worker::Factory& client, const Worker::Factory& server) {
  auto one = Worker::spawn(what + " client process", client_core, client);
  if (!one) return one.error();
  auto two = Worker::spawn(what + " server process", server_core, server);
  if (!two) return two.error();
  return Pair{.client = std::move(*one), .server = std::move(*two)};
}

Result<Json> Pair::open_and_connect() {
  if (broken) return Error{.code = Errc::kPeer, .text = "out of use since an earlier failure"};
  broken = true;  // unless all goes well
  const auto at_server = server.ask({{"op", "open"}}, kStartNs);
  if (!at_server) return at_server.error();
  auto at_client = client.ask({{"op", "open"}}, kStartNs);
  if (!at_client) return at_client.error();
  broken = false;
  const auto connected =
      call({{"op", "connect"}, {"peer", *at_server}}, {{"op", "connect"}, {"peer", *at_client}}, kStartNs);
  if (!connected) return connected.error();
  return at_client;
}

}  // namespace uroce::apps
