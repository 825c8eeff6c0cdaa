#include "session.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace uroce::interop {
namespace {

constexpr int kAcceptMs = 30'000;
constexpr std::uint64_t kReceive = 1ULL
                                   << 63;  // marks the ids of receives: an error completion tells no opcode

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

int accept_one(const std::string& port) {
  const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  if (bind(listener, static_cast<const sockaddr*>(static_cast<const void*>(&any)), sizeof any) != 0 ||
      listen(listener, 1) != 0) {
    fail("cannot listen on port " + port + ": " + std::strerror(errno));
  }
  pollfd ready{.fd = listener, .events = POLLIN, .revents = 0};
  const int fd = ::poll(&ready, 1, kAcceptMs) == 1 ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  close(listener);
  if (fd < 0) fail("nobody connected to port " + port);
  return fd;
}

int connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) fail("cannot resolve " + host);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int outcome = ::connect(fd, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  if (outcome != 0) fail("cannot connect to " + host + " port " + port + ": " + std::strerror(errno));
  return fd;
}

}  // namespace

Lines::Lines(const std::string& host, const std::string& port)
    : fd_(host.empty() ? accept_one(port) : connect_to(host, port)) {
  const int yes = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

Lines::~Lines() {
  close(fd_);
}

void Lines::write(const std::string& line) {
  const std::string text = line + "\n";
  if (send(fd_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    fail("the peer has closed the dialog");
  }
}

bool Lines::read(std::string& line) {
  std::array<char, 4096> data{};
  const ssize_t bytes = recv(fd_, data.data(), data.size(), MSG_DONTWAIT);
  if (bytes > 0) received_.append(data.data(), static_cast<std::size_t>(bytes));
  const auto end = received_.find('\n');
  if (end == std::string::npos) {
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
      fail("the peer has closed the dialog");
    return false;
  }
  line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return true;
}

void Session::pump() {
  std::array<Completion, 32> batch{};
  const std::size_t count = endpoint_.poll(batch);
  for (Completion& completion : std::span(batch).first(count)) {
    auto& queue = (completion.id & kReceive) != 0 ? receives_ : sends_;
    completion.id &= ~kReceive;
    queue.push_back(completion);
  }
  if (count == 0) endpoint_.idle();
}

std::string Session::wait_line() {
  const auto deadline = Clock::now() + kPatience;
  std::string line;
  while (!lines_.read(line)) {
    if (Clock::now() > deadline) fail("the peer's program says nothing");
    pump();
  }
  return line;
}

Completion Session::wait_completion(std::deque<Completion>& from) {
  const auto deadline = Clock::now() + kPatience;
  while (from.empty()) {
    if (Clock::now() > deadline) fail("a completion is missing");
    pump();
  }
  const Completion first = from.front();
  from.pop_front();
  return first;
}

void Session::connect(const LinkAttr& attr) {
  const Identity own = endpoint_.identity();
  std::ostringstream line;
  line << own.qpn << ' ' << own.psn << ' ' << own.rkey << ' ' << own.address << ' ' << own.gid;
  lines_.write(line.str());
  std::istringstream answer(wait_line());
  if (!(answer >> peer_.qpn >> peer_.psn >> peer_.rkey >> peer_.address >> peer_.gid)) {
    fail("the peer's identity is malformed: " + answer.str());
  }
  endpoint_.connect(peer_, attr);
  lines_.write("connected");
  if (wait_line() != "connected") fail("the peer is not connected");
}

void Session::ask(const std::string& command) {
  lines_.write(command);
  const std::string answer = wait_line();
  if (answer != "ok") fail("passive side: " + answer);
}

void Session::run_active(const std::vector<std::string>& specs, std::uint64_t seed) {
  for (const std::string& spec : specs) {
    std::string kind;
    std::istringstream words(spec);
    std::getline(words, kind, ':');
    try {
      unsigned first = 0;
      char colon = 0;
      unsigned delay_ms = 0;
      words >> first >> colon >> delay_ms;
      if (kind == "late") {
        run_batch("send:" + std::to_string(first), seed, delay_ms);
      } else if (kind == "wrongkey" || kind == "toolong") {
        run_refused(kind, static_cast<int>(first));
      } else {
        run_batch(spec, seed, 0);
      }
    } catch (const std::runtime_error& fault) {
      fail(spec + " with seed " + std::to_string(seed) + ": " + fault.what());
    }
    std::printf("ok %s\n", spec.c_str());
    std::fflush(stdout);
    ++seed;
  }
  ask("bye");
}

void Session::run_batch(const std::string& spec, std::uint64_t seed, unsigned delay_ms) {
  const auto plan = Plan::parse(spec, seed);
  if (!plan) fail("no such batch");
  plan->prepare_active(endpoint_.memory());
  ask("batch " + spec + ' ' + std::to_string(seed) + ' ' + std::to_string(delay_ms));
  post_all(*plan);
  const std::string fault = plan->verify_active(endpoint_.memory());
  if (!fault.empty()) fail("memory of the active side: " + fault);
  ask("verify");
}

void Session::post_all(const Plan& plan) {
  std::uint64_t id = 0;
  for (const Step& step : plan.steps()) {
    Request request = step.request;
    request.rkey = peer_.rkey;
    endpoint_.post(id++, request);
  }
  for (std::uint64_t want = 0; want < id; ++want) {
    const Completion got = wait_completion(sends_);
    if (got.status != 0)
      fail("request " + std::to_string(want) + " ended with status " + std::to_string(got.status));
    if (got.id != want)
      fail("request " + std::to_string(got.id) + " completed before " + std::to_string(want));
  }
}

void Session::run_refused(const std::string& kind, int status) {
  const bool wrong_key = kind == "wrongkey";
  ask(wrong_key ? "nothing" : "batch send:8 1 0");
  Request request{
      .verb = wrong_key ? Verb::kWrite : Verb::kSend, .length = 64, .rkey = peer_.rkey ^ 0x5aa5'0000};
  endpoint_.post(0, request);
  const Completion got = wait_completion(sends_);
  if (got.status != status) fail("refused with status " + std::to_string(got.status));
}

void Session::run_passive() {
  for (;;) {
    std::istringstream line(wait_line());
    std::string command;
    line >> command;
    if (command == "batch") {
      std::string spec;
      std::uint64_t seed = 0;
      unsigned delay_ms = 0;
      line >> spec >> seed >> delay_ms;
      serve_batch(spec, seed, delay_ms);
    } else if (command == "verify") {
      std::string fault = verify_receives();
      if (fault.empty()) fault = plan_->verify_passive(endpoint_.memory());
      lines_.write(fault.empty() ? "ok" : fault);
    } else {
      lines_.write("ok");
      if (command == "bye") return;
    }
  }
}

void Session::serve_batch(const std::string& spec, std::uint64_t seed, unsigned delay_ms) {
  auto plan = Plan::parse(spec, seed);
  if (!plan) return lines_.write("no such batch");
  plan_ = std::make_unique<Plan>(std::move(*plan));
  plan_->prepare_passive(endpoint_.memory());
  if (delay_ms > 0) {
    lines_.write("ok");
    const auto start = Clock::now();
    while (Clock::now() - start < std::chrono::milliseconds(delay_ms)) pump();
  }
  std::uint64_t id = 0;
  for (const Step& step : plan_->receives()) {
    endpoint_.post_receive(kReceive | id++, step.request.offset, step.request.length);
  }
  if (delay_ms == 0) lines_.write("ok");
}

std::string Session::verify_receives() {
  std::uint64_t want = 0;
  for (const Step& step : plan_->receives()) {
    const Request& request = step.request;
    const Completion got = wait_completion(receives_);
    const std::string which = "receive " + std::to_string(want) + ": ";
    if (got.status != 0) return which + "status " + std::to_string(got.status);
    if (got.id != want) return which + "completed as number " + std::to_string(got.id);
    if (got.bytes != request.length) return which + std::to_string(got.bytes) + " bytes";
    if (got.has_imm != (request.verb != Verb::kSend)) return which + "immediate data missing or not sent";
    if (got.has_imm && got.imm != request.imm) return which + "immediate data differ";
    ++want;
  }
  return {};
}

}  // namespace uroce::interop
