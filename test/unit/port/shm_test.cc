#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "drivers/shm/layout.h"
#include "drivers/shm/link.h"
#include "drivers/shm/open.h"
#include "port_helpers.h"
#include "shared_bytes.h"
#include "support/full_at.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

namespace {

using PortPtr = std::unique_ptr<port::Port>;

PortOptions options_for(const std::string& name, const std::string& more = "") {
  PortOptions options;
  options.spec = "shm:" + name + more;
  return options;
}

PortPtr open_one(const PortOptions& options) {
  auto ports = open_shm(options);
  if (!ports) FAIL(ports.error().text);
  REQUIRE(ports->size() == 1);
  return std::move(ports->front());
}

/// Both ends of a fresh link, in this process.
struct Pair {
  explicit Pair(const std::string& what, const std::string& more = "")
      : name(unique_name(what)), a(open_one(options_for(name, more))), b(open_one(options_for(name, more))) {
    settle(*a, *b);
  }
  std::string name;
  PortPtr a;
  PortPtr b;
};

bool is_readable(int fd, int timeout_ms) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, timeout_ms) == 1;
}

}  // namespace

TEST_CASE("the first end of an shm link is side 0 and the next side 1, with MACs of their own",
          "[shm][open]") {
  const Pair link("sides");
  CHECK(link.a->info().side == 0);
  CHECK(link.b->info().side == 1);
  CHECK(link.a->info().ends == 2);
  CHECK(link.a->info().name == "shm:" + link.name);
  CHECK(link.a->info().link_mtu == 4200);
  CHECK_FALSE(link.a->info().mac == link.b->info().mac);
  CHECK((link.a->info().mac.raw[0] & 0x03) == 0x02);
}

TEST_CASE("a side can be asked for", "[shm][open]") {
  const std::string name = unique_name("forced");
  const PortPtr b = open_one(options_for(name, ",side=1"));
  CHECK(b->info().side == 1);
  const PortPtr a = open_one(options_for(name));
  CHECK(a->info().side == 0);
}

TEST_CASE("a third end is refused, with the holders and what to do", "[shm][open]") {
  const Pair link("third");
  const auto third = open_shm(options_for(link.name));
  REQUIRE_FALSE(third);
  CHECK(third.error().code == Errc::kNameInUse);
  CHECK(third.error().text.find("PID " + std::to_string(::getpid())) != std::string::npos);
  CHECK(third.error().text.find("kill PID") != std::string::npos);
  CHECK(third.error().text.find('\n') == std::string::npos);
}

TEST_CASE("the last end to leave removes all files of the link", "[shm][open]") {
  const std::string path = [] {
    const Pair link("files");
    CHECK(::access(shm::link_path(link.name).c_str(), F_OK) == 0);
    return shm::link_path(link.name);
  }();
  for (const char* suffix : {"", "~0.0", "~1.0"}) CHECK(::access((path + suffix).c_str(), F_OK) != 0);
}

/// Two ends in a process that is gone, without having taken leave.
void kill_ends(const PortOptions& options) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto ends = {open_shm(options), open_shm(options)};
    ::_exit(std::all_of(ends.begin(), ends.end(), [](const auto& end) { return bool{end}; }) ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

TEST_CASE("of killed ends nothing is left when the link has been made again, with fewer queues",
          "[shm][open]") {
  const std::string name = unique_name("fewer");
  PortOptions options = options_for(name);
  options.queues = 2;
  kill_ends(options);
  CHECK(::access((shm::link_path(name) + "~1.1").c_str(), F_OK) == 0);
  { const PortPtr again = open_one(options_for(name)); }
  for (const char* suffix : {"", "~0.0", "~1.0", "~0.1", "~1.1"})
    CHECK(::access((shm::link_path(name) + suffix).c_str(), F_OK) != 0);
}

TEST_CASE("what killed ends leave behind is removed when another link is made", "[shm][open]") {
  const std::string name = unique_name("killed");
  kill_ends(options_for(name));
  const Pair live("live");
  const PortPtr half = open_one(options_for(unique_name("half")));
  const PortPtr another = open_one(options_for(unique_name("another")));
  for (const char* suffix : {"", "~0.0", "~1.0"}) {
    CHECK(::access((shm::link_path(name) + suffix).c_str(), F_OK) != 0);
    CHECK(::access((shm::link_path(live.name) + suffix).c_str(), F_OK) == 0);
    CHECK(::access((shm::link_path(unique_name("half")) + suffix).c_str(), F_OK) == 0);
  }
}

TEST_CASE("files that are no link's are left alone, but for what a link is begun with", "[shm][open]") {
  const std::string path = shm::link_path(unique_name("foreign"));
  const std::string contents =
      GENERATE(as<std::string>{}, "text", std::string(4096, 'x'), "", std::string(4096, '\0'));
  const bool is_begun = contents.find_first_not_of('\0') == std::string::npos;
  CAPTURE(contents.size(), is_begun);
  for (const char* suffix : {"", "~", "~notes"}) std::ofstream(path + suffix) << contents;
  const PortPtr port = open_one(options_for(unique_name("other")));
  CHECK((::access(path.c_str(), F_OK) == 0) != is_begun);
  for (const char* suffix : {"~", "~notes"}) CHECK(::access((path + suffix).c_str(), F_OK) == 0);
  for (const char* suffix : {"", "~", "~notes"}) ::unlink((path + suffix).c_str());
}

TEST_CASE("ends that disagree about the link are told so", "[shm][open]") {
  const std::string name = unique_name("disagree");
  const PortPtr a = open_one(options_for(name, ",ring=128K"));
  CHECK(open_shm(options_for(name, ",ring=256K")).error().code == Errc::kConfig);
  PortOptions more_queues = options_for(name);
  more_queues.queues = 2;
  CHECK(open_shm(more_queues).error().text ==
        "shm: queues (cores that --lcores names) 2 differs from the other end's 1; give both ends the same");
  PortOptions other_mtu = options_for(name);
  other_mtu.link_mtu = 9000;
  CHECK(open_shm(other_mtu).error().code == Errc::kConfig);
  CHECK(open_shm(options_for(name)));  // says nothing, so takes what is there
}

TEST_CASE("a link that another version has made, or that was cut, is refused", "[shm][open]") {
  const std::string name = unique_name("foreign-link");
  const PortPtr a = open_one(options_for(name));
  SharedBytes shared(name);
  const auto why_not = [&] { return open_shm(options_for(name)).error().text; };
  for (const std::size_t word : {offsetof(shm::LinkHeader, magic), offsetof(shm::LinkHeader, version)}) {
    const std::uint32_t known = shared.load32(word);
    shared.store32(word, known + 1);
    CHECK(why_not().find("another version") != std::string::npos);
    shared.store32(word, known);
  }
  const std::string path = shm::link_path(name);
  REQUIRE(::truncate(path.c_str(), static_cast<off_t>(shared.size() - 4096)) == 0);
  CHECK(why_not().find("PID " + std::to_string(::getpid())) != std::string::npos);
  REQUIRE(::truncate(path.c_str(), static_cast<off_t>(shared.size())) == 0);
  CHECK(open_shm(options_for(name)));
}

TEST_CASE("a link whose file or bell is something else is refused, and what was made of it is removed",
          "[shm][open]") {
  const std::string name = unique_name("bell");
  const std::string path = shm::link_path(name);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(open_shm(options_for(name)).error().code == Errc::kPermission);
  ::unlink(path.c_str());
  std::ofstream(path + "~0.0") << "text";
  const auto refused = open_shm(options_for(name));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::kPermission);
  CHECK(::access(path.c_str(), F_OK) != 0);
  ::unlink((path + "~0.0").c_str());
}

TEST_CASE("a link that a limit of file sizes has no room for is refused, and nothing of it stays",
          "[shm][open]") {
  const std::string name = unique_name("limited");
  CHECK(end_of_full_at(100'000, [&] {
          const auto refused = open_shm(options_for(name, ",ring=256K"));
          return !refused && refused.error().code == Errc::kNoMemory &&
                 refused.error().text.find("raise ulimit -f or give a smaller ring=") != std::string::npos;
        }) == "good");
  for (const char* suffix : {"", "~0.0", "~1.0"})
    CHECK(::access((shm::link_path(name) + suffix).c_str(), F_OK) != 0);
}

TEST_CASE("a forked child that closes its copy leaves the link to its parent", "[shm][open]") {
  Pair link("copy");
  const pid_t child = ::fork();
  if (child == 0) {
    link.a.reset();
    link.b.reset();
    ::_exit(0);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  for (const char* suffix : {"", "~0.0", "~1.0"})
    CHECK(::access((shm::link_path(link.name) + suffix).c_str(), F_OK) == 0);
  const Bytes frame = random_bytes(100, 1);
  REQUIRE(send(*link.a, frame));
  CHECK(receive(*link.b) == std::vector<Bytes>{frame});
  CHECK(link.a->counters().tx_dropped == 0);
}

TEST_CASE("bad names, sizes and options are refused", "[shm][open]") {
  for (const char* name : {"", "a/b", "a b", "~", "x~0.0"}) {
    INFO(name);
    CHECK(open_shm(options_for(name)).error().code == Errc::kConfig);
  }
  const std::string name = unique_name("sizes");
  for (const char* option :
       {",ring=100K", ",ring=4K", ",ring=32K", ",ring=512M", ",ring=4G", ",side=2", ",colour=red"}) {
    INFO(option);
    CHECK(open_shm(options_for(name, option)).error().code == Errc::kConfig);
  }
  CHECK(open_shm(options_for(unique_name("AZ-az_09."))));
  for (const std::uint32_t link_mtu : {575U, 9601U}) {
    PortOptions options = options_for(name);
    options.link_mtu = link_mtu;
    CHECK(open_shm(options).error().code == Errc::kConfig);
  }
  for (const std::uint32_t queues : {0U, 65U}) {
    PortOptions options = options_for(name, ",ring=64K");
    options.queues = queues;
    CHECK(open_shm(options).error().code == Errc::kConfig);
  }
}

TEST_CASE("frames of every size cross the link whole and in order, many times round the ring",
          "[shm][data]") {
  const Pair link("sizes-all", ",ring=64K");
  const std::uint32_t largest = link.a->info().link_mtu + 18;
  std::uint64_t seed = 0;
  for (std::uint32_t len = 14; len <= largest; len += len < 300 ? 1 : 37) {
    const Bytes there = random_bytes(len, ++seed);
    const Bytes back = random_bytes(len, ++seed);
    REQUIRE(send(*link.a, there));
    REQUIRE(send(*link.b, back));
    REQUIRE(receive(*link.b) == std::vector<Bytes>{there});
    REQUIRE(receive(*link.a) == std::vector<Bytes>{back});
  }
  CHECK(link.a->counters().tx_bytes == link.b->counters().rx_bytes);
  CHECK(link.a->counters().tx_frames == link.b->counters().rx_frames);
  CHECK(link.a->counters().tx_dropped == 0);
  CHECK(link.b->counters().rx_malformed == 0);
}

TEST_CASE("frames written by whole lines cross the link among others, many times round the ring",
          "[shm][data][lines]") {
  const Pair link("lines", ",ring=64K");
  REQUIRE(link.a->lends_lines());
  Random random(7);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const Bytes frame = random_bytes(14 + random.below(627), i);
    if (random.below(8) == 0) {  // a claim that is forgotten
      const auto len = static_cast<std::uint32_t>(14 + random.below(627));
      REQUIRE((random.below(2) == 0 ? link.a->tx_claim(len) : link.a->tx_claim_lines(len)) != nullptr);
    }
    REQUIRE((random.below(4) == 0 ? send(*link.a, frame) : send_lines(*link.a, frame)));
    REQUIRE(receive_soon(*link.b) == std::vector<Bytes>{frame});
  }
  CHECK(link.b->counters().rx_malformed == 0);
}

TEST_CASE("a frame being written by whole lines is not seen before it is committed", "[shm][data][lines]") {
  const Pair link("lines-unseen");
  std::byte* const room = link.a->tx_claim_lines(100);
  REQUIRE(room != nullptr);
  const std::size_t lead = std::bit_cast<std::uintptr_t>(room) % 64;
  std::memset(room, 0xff, 100);
  std::memset(room - lead, 0, lead);
  CHECK(receive(*link.b).empty());
  link.a->tx_commit();
  CHECK(receive(*link.b) == std::vector<Bytes>{Bytes(100, std::byte{0xff})});
}

TEST_CASE("without a peer what is written by whole lines is dropped", "[shm][peer][lines]") {
  const PortPtr port = open_one(options_for(unique_name("lines-alone")));
  const std::uint64_t before = port->counters().tx_dropped;
  for (std::uint32_t len = 14; len <= 640; ++len) REQUIRE(send_lines(*port, random_bytes(len, len)));
  CHECK(port->counters().tx_dropped == before + 627);
}

TEST_CASE("a frame that does not fit the link is refused", "[shm][data]") {
  const Pair link("too-long");
  for (const std::uint32_t len : {link.a->info().link_mtu + 19, 13U}) {
    CHECK(link.a->tx_claim(100) != nullptr);
    CHECK(link.a->tx_claim(len) == nullptr);
    link.a->tx_commit();  // nothing is claimed
  }
  CHECK(receive(*link.b).empty());
}

TEST_CASE("a claim without commit is forgotten", "[shm][data]") {
  const Pair link("forgotten");
  CHECK(link.a->tx_claim(100) != nullptr);
  CHECK(link.a->tx_claim(2000) != nullptr);
  const Bytes frame = random_bytes(64, 1);
  REQUIRE(send(*link.a, frame));
  CHECK(receive(*link.b) == std::vector<Bytes>{frame});
}

TEST_CASE("a peer that does not read causes back-pressure, not loss", "[shm][data]") {
  const Pair link("full", ",ring=64K");
  const std::uint64_t refused = link.a->counters().tx_no_room;
  std::vector<Bytes> sent;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const Bytes frame = random_bytes(60 + i % 3000, i);
    if (!send(*link.a, frame)) break;
    sent.push_back(frame);
  }
  CHECK(sent.size() < 10000);
  CHECK(sent.size() > 20);
  CHECK(link.a->counters().tx_no_room == refused + 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));  // longer than the patience: the kernel is asked
  CHECK_FALSE(send(*link.a, sent[0]));
  std::vector<Bytes> arrived;
  for (int burst = 0; burst < 1000 && arrived.size() < sent.size(); ++burst) {
    for (Bytes& frame : receive(*link.b, 5)) arrived.push_back(std::move(frame));
  }
  CHECK(arrived == sent);
  CHECK(send(*link.a, sent[0]));
  CHECK(link.a->counters().tx_dropped == 0);
}

TEST_CASE("what comes first after an empty burst is shown alone, and it is known whether there is more",
          "[shm][data]") {
  const Pair link("first");
  std::vector<Bytes> sent;
  for (std::uint64_t i = 0; i < 5; ++i) sent.push_back(random_bytes(100, i));
  for (int round = 0; round < 3; ++round) {
    CHECK(receive(*link.b).empty());
    REQUIRE(send(*link.a, sent[0]));
    CHECK(receive(*link.b) == std::vector<Bytes>{sent[0]});
    CHECK_FALSE(link.b->shows_more());
    CHECK(receive(*link.b).empty());
    for (const Bytes& frame : sent) REQUIRE(send(*link.a, frame));
    CHECK(receive(*link.b) == std::vector<Bytes>{sent[0]});
    CHECK(link.b->shows_more());  // timers wait for what is left
    CHECK(receive(*link.b) == std::vector<Bytes>(sent.begin() + 1, sent.end()));
    CHECK_FALSE(link.b->shows_more());
  }
}

TEST_CASE("shown frames stay as they are until they are released", "[shm][data]") {
  const Pair link("in-place", ",ring=64K");
  std::vector<Bytes> sent;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Bytes frame = random_bytes(1500, i);
    if (!send(*link.a, frame)) break;
    sent.push_back(frame);
  }
  std::array<port::RxFrame, port::kBurst> shown;
  REQUIRE(receive(*link.b) == std::vector<Bytes>{sent[0]});
  const unsigned count = link.b->rx_burst(shown);
  REQUIRE(count == port::kBurst);
  for (std::uint64_t i = 0; i < 100; ++i) CHECK_FALSE(send(*link.a, random_bytes(4000, 5000 + i)));
  for (unsigned i = 0; i < count; ++i) {
    CHECK(Bytes(shown[i].data, shown[i].data + shown[i].len) == sent[i + 1]);
  }
  link.b->rx_release();
  CHECK(send(*link.a, random_bytes(4000, 1)));
}

TEST_CASE("without a peer frames are dropped and counted, and do not block", "[shm][peer]") {
  const std::string name = unique_name("alone");
  const PortPtr a = open_one(options_for(name));
  for (int i = 0; i < 5000; ++i) REQUIRE(send(*a, random_bytes(1000, 1)));
  a->tx_commit();  // nothing is claimed
  CHECK(a->counters().tx_dropped == 5000);
  CHECK(a->counters().tx_frames == 0);

  const PortPtr b = open_one(options_for(name));
  settle(*a, *b);
  const Bytes frame = random_bytes(100, 2);
  REQUIRE(send(*a, frame));
  CHECK(receive(*b) == std::vector<Bytes>{frame});
}

TEST_CASE("a peer that leaves and comes back gets nothing that was meant for its predecessor",
          "[shm][peer]") {
  Pair link("comes-back");
  for (std::uint64_t i = 0; i < 10; ++i) REQUIRE(send(*link.a, random_bytes(200, i)));
  CHECK(receive(*link.b).size() == 1);
  CHECK(receive(*link.b, 3).size() == 3);
  const Bytes last_words = random_bytes(300, 77);
  REQUIRE(send(*link.b, last_words));
  link.b.reset();
  REQUIRE(send(*link.a, random_bytes(200, 20)));  // to nobody
  CHECK(link.a->counters().tx_dropped == 7);      // 6 unread, 1 without a peer

  link.b = open_one(options_for(link.name));
  CHECK(link.b->info().side == 1);
  const Bytes first_words = random_bytes(300, 78);
  CHECK_FALSE(send(*link.b, first_words));  // a has not agreed to the new stream yet
  CHECK(receive(*link.a) == std::vector<Bytes>{last_words});
  settle(*link.a, *link.b);
  REQUIRE(send(*link.b, first_words));
  CHECK(receive(*link.a) == std::vector<Bytes>{first_words});
  const Bytes fresh = random_bytes(200, 30);
  REQUIRE(send(*link.a, fresh));
  CHECK(receive(*link.b) == std::vector<Bytes>{fresh});
  CHECK(link.a->counters().peer_restarts == 1);
  CHECK(link.b->counters().peer_restarts == 0);
}

TEST_CASE("each queue is a link of its own", "[shm][queues]") {
  PortOptions options = options_for(unique_name("queues"), ",ring=64K");
  options.queues = 3;
  auto a = open_shm(options);
  auto b = open_shm(options);
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE(a->size() == 3);
  for (std::size_t queue = 0; queue < 3; ++queue) {
    settle(*(*a)[queue], *(*b)[queue]);
    REQUIRE(send(*(*a)[queue], random_bytes(100 + queue, queue)));
  }
  for (std::size_t queue = 0; queue < 3; ++queue) {
    CHECK(receive(*(*b)[queue]) == std::vector<Bytes>{random_bytes(100 + queue, queue)});
    CHECK((*a)[queue]->info().mac == (*a)[0]->info().mac);
  }
}

TEST_CASE("a sleeping end is woken by a frame, and only then", "[shm][sleep]") {
  const Pair link("sleep");
  REQUIRE(link.b->rx_fd() >= 0);
  REQUIRE(link.b->arm_rx());
  link.a->tx_flush();
  CHECK_FALSE(is_readable(link.b->rx_fd(), 0));
  REQUIRE(send(*link.a, random_bytes(100, 1)));
  CHECK(is_readable(link.b->rx_fd(), 1000));
  link.b->disarm_rx();
  CHECK_FALSE(is_readable(link.b->rx_fd(), 0));
  CHECK_FALSE(link.b->arm_rx());  // the frame is still waiting
  CHECK(receive(*link.b).size() == 1);
  CHECK(link.b->arm_rx());
  link.b->disarm_rx();
}

TEST_CASE("who leaves ringing to its caller does not ring itself", "[shm][sleep]") {
  const Pair link("sleep-due");
  DueBell due;
  link.a->leave_ringing_to(&due);
  REQUIRE(link.b->arm_rx());
  REQUIRE(send(*link.a, random_bytes(100, 1)));
  CHECK_FALSE(is_readable(link.b->rx_fd(), 0));
  const int bell = due.take();
  REQUIRE(bell >= 0);
  DueBell::ring(bell);
  CHECK(is_readable(link.b->rx_fd(), 1000));
  CHECK(receive(*link.b).size() == 1);
  link.b->disarm_rx();
  REQUIRE(send(*link.a, random_bytes(100, 1)));
  CHECK(due.take() == -1);  // it is awake
  link.a->leave_ringing_to(nullptr);
  CHECK(receive(*link.b).size() == 1);
  REQUIRE(link.b->arm_rx());
  REQUIRE(send(*link.a, random_bytes(100, 1)));
  CHECK(is_readable(link.b->rx_fd(), 1000));
}

TEST_CASE("an end can be made to ring for a thread beside that of the loop", "[shm][sleep]") {
  const Pair link("sleep-beside");
  link.b->disarm_rx();  // it was rung when the link began
  REQUIRE(send(*link.a, random_bytes(100, 1)));
  REQUIRE(link.b->arm_rx_beside());  // what has come is the loop's
  CHECK_FALSE(is_readable(link.b->rx_fd(), 0));
  REQUIRE(send(*link.a, random_bytes(100, 2)));
  CHECK(is_readable(link.b->rx_fd(), 1000));
  CHECK(receive(*link.b).size() + receive(*link.b).size() == 2);
  link.b->disarm_rx();
  CHECK_FALSE(is_readable(link.b->rx_fd(), 0));
  REQUIRE(send(*link.a, random_bytes(100, 3)));
  CHECK_FALSE(is_readable(link.b->rx_fd(), 0));
}

TEST_CASE("an end that has woken is rung for no more, and one that sleeps is, wherever its stream has got to",
          "[shm][sleep]") {
  Pair link("sleep-stream");
  const Bytes frame = random_bytes(100, 1);
  REQUIRE(link.b->arm_rx());
  link.b->disarm_rx();
  REQUIRE(send(*link.a, frame));
  CHECK_FALSE(is_readable(link.b->rx_fd(), 0));
  link.b.reset();
  link.b = open_one(options_for(link.name));
  CHECK(link.a->tx_claim(64) == nullptr);  // offers a stream
  CHECK(receive(*link.b).empty());         // takes the offer
  REQUIRE(link.b->arm_rx());
  REQUIRE(send(*link.a, frame));  // as far as in the stream before
  CHECK(is_readable(link.b->rx_fd(), 1000));
}

TEST_CASE("a sleeping end is woken by a new peer that has something to say", "[shm][sleep]") {
  Pair link("sleep-restart");
  link.a.reset();
  receive(*link.b);
  REQUIRE(link.b->arm_rx());
  link.a = open_one(options_for(link.name));
  CHECK_FALSE(send(*link.a, random_bytes(100, 1)));  // offers a stream
  CHECK(is_readable(link.b->rx_fd(), 1000));
  link.b->disarm_rx();
  CHECK(receive(*link.b).empty());  // takes the offer
  CHECK(send(*link.a, random_bytes(100, 1)));
}

TEST_CASE("a sleeping end is woken by a new peer whose predecessor died with its hand at the bell",
          "[shm][sleep]") {
  Pair link("sleep-death");
  REQUIRE(link.b->arm_rx());
  SharedBytes shared(link.name);
  const std::size_t sleeping = shm::Geometry{}.control_at(0, link.a->info().side) +
                               offsetof(shm::RingControl, consumer) + offsetof(shm::ConsumerLine, sleep);
  REQUIRE(shared.load32(sleeping) == shm::kAsleep);
  shared.store32(sleeping, shm::kDrowsy);
  link.a.reset();
  link.a = open_one(options_for(link.name));
  CHECK_FALSE(send(*link.a, random_bytes(100, 1)));  // offers a stream
  CHECK(is_readable(link.b->rx_fd(), 1000));
}

TEST_CASE("an end that has not slept does not look as if it had", "[shm][sleep]") {
  Pair link("sleep-states");
  SharedBytes shared(link.name);
  const std::size_t sleep = shm::Geometry{}.control_at(0, link.a->info().side) +
                            offsetof(shm::RingControl, consumer) + offsetof(shm::ConsumerLine, sleep);
  link.b->disarm_rx();
  CHECK(shared.load32(sleep) == shm::kAwake);
  REQUIRE(link.b->arm_rx());
  CHECK(shared.load32(sleep) == shm::kAsleep);
  link.b->disarm_rx();
  CHECK(shared.load32(sleep) == shm::kDrowsy);
  link.b->keep_awake();
  CHECK(shared.load32(sleep) == shm::kAwake);
}

TEST_CASE("two threads exchange frames while one of them sleeps again and again", "[shm][sleep]") {
  const Pair link("sleep-race");
  constexpr unsigned kFrames = 20000;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool was_woken = true;
  std::thread sleeper([&] {
    unsigned seen = 0;
    while (seen < kFrames && std::chrono::steady_clock::now() < deadline) {
      const auto frames = receive(*link.b, 4);
      seen += static_cast<unsigned>(frames.size());
      for (const Bytes& frame : frames) {
        while (!send(*link.b, frame) && std::chrono::steady_clock::now() < deadline)
          std::this_thread::yield();
      }
      if (!frames.empty() || !link.b->arm_rx()) continue;
      was_woken = was_woken && is_readable(link.b->rx_fd(), 10'000);  // there is always more to come
      link.b->disarm_rx();
      if (seen % 5 == 0) link.b->keep_awake();  // so that sleep begins with its barrier again
    }
  });
  unsigned echoed = 0;
  for (unsigned i = 0; i < kFrames && std::chrono::steady_clock::now() < deadline; ++i) {
    while (!send(*link.a, random_bytes(64, i)) && std::chrono::steady_clock::now() < deadline) {
    }
    if (i % 7 == 0) {  // let it fall asleep at varying moments
      while (echoed < i && std::chrono::steady_clock::now() < deadline) {
        echoed += static_cast<unsigned>(receive(*link.a).size());
      }
    }
  }
  while (echoed < kFrames && std::chrono::steady_clock::now() < deadline) {
    echoed += static_cast<unsigned>(receive(*link.a).size());
  }
  sleeper.join();
  CHECK(echoed == kFrames);
  CHECK(was_woken);
}
