/// The endpoint over uroce's public API.
#include <arpa/inet.h>

#include <array>
#include <sstream>
#include <stdexcept>

#include "endpoint.h"
#include "uroce/cq.h"
#include "uroce/device.h"
#include "uroce/mr.h"
#include "uroce/pd.h"
#include "uroce/qp.h"

namespace uroce::interop {
namespace {

template <typename T>
T need(Result<T> made) {
  if (!made) throw std::runtime_error(made.error().text);
  return std::move(made).value();
}

void need_ok(const Status& status) {
  if (!status) throw std::runtime_error(status.error().text);
}

/// UROCE_* variables and options --port, --ip (several, or one list with commas), --pcap, --fault.
Config config_from(const Options& options) {
  const auto text = [&](const char* name) {
    const auto found = options.find(name);
    return found == options.end() ? std::string{} : found->second;
  };
  Config config = need(apply_environment({}));
  config.port = text("port");
  std::istringstream addresses(text("ip"));
  for (std::string address; std::getline(addresses, address, ',');) config.ip.push_back(address);
  config.pcap = text("pcap");
  config.fault = text("fault");
  config.mode = Mode::kApp;
  config.no_huge = true;
  return config;
}

WrOpcode opcode_of(Verb verb) {
  constexpr std::array kOpcodes{WrOpcode::kSend,
                                WrOpcode::kSendWithImm,
                                WrOpcode::kRdmaWrite,
                                WrOpcode::kRdmaWriteWithImm,
                                WrOpcode::kRdmaRead,
                                WrOpcode::kAtomicCmpAndSwp,
                                WrOpcode::kAtomicFetchAndAdd};
  return kOpcodes.at(static_cast<std::size_t>(verb));
}

class UroceEndpoint final : public Endpoint {
 public:
  UroceEndpoint(const Config& config, const LinkAttr& attr, std::uint32_t psn)
      : device_(need(Device::open(config))),
        pd_(need(Pd::create(device_))),
        send_cq_(need(Cq::create(device_, 2 * kMaxWr))),
        recv_cq_(need(Cq::create(device_, 2 * kMaxWr))),
        mr_(need(Mr::alloc(pd_, kMemoryBytes, access::kAll))),
        qp_(need(Qp::create(pd_, send_cq_, recv_cq_, {.max_send_wr = kMaxWr, .max_recv_wr = kMaxWr}))),
        gid_(device_.gids().at(attr.gid_index).gid),
        psn_(psn) {}

  Identity identity() const override {
    return {.qpn = raw(qp_.qpn()),
            .psn = psn_,
            .rkey = raw(mr_.rkey()),
            .address = mr_.addr(),
            .gid = to_string(gid_)};
  }

  std::span<std::byte> memory() noexcept override { return mr_.memory().first(kMemoryBytes); }

  void connect(const Identity& peer, const LinkAttr& attr) override {
    peer_ = peer;
    const auto gid = Gid::parse(peer.gid);
    const auto mtu = path_mtu_from_bytes(attr.mtu);
    if (!gid || !mtu) throw std::runtime_error("bad GID or path MTU");
    QpAttr wanted;
    wanted.path_mtu = *mtu;
    wanted.dest_qpn = Qpn{peer.qpn};
    wanted.rq_psn = Psn{peer.psn};
    wanted.sq_psn = Psn{psn_};
    wanted.access_flags = access::kAll;
    wanted.dgid = *gid;
    wanted.sgid_index = attr.gid_index;
    wanted.max_rd_atomic = wanted.max_dest_rd_atomic = attr.rd_atomic;
    wanted.min_rnr_timer = attr.min_rnr_timer;
    wanted.timeout = attr.timeout;
    wanted.retry_cnt = attr.retry_cnt;
    wanted.rnr_retry = attr.rnr_retry;
    need_ok(qp_.connect(wanted));
  }

  void post_receive(std::uint64_t id, std::uint64_t offset, std::uint32_t length) override {
    const Sge sge = mr_.sge(offset, length);
    if (!qp_.post_recv(RecvWr{.wr_id = id, .sges = {&sge, 1}})) throw std::runtime_error("receive not taken");
  }

  void post(std::uint64_t id, const Request& request) override {
    const Sge sge = mr_.sge(request.offset, request.length);
    const SendWr wr{.wr_id = id,
                    .sges = {&sge, 1},
                    .opcode = opcode_of(request.verb),
                    .flags = send_flag::kSignaled,
                    .imm_data = htonl(request.imm),
                    .remote_addr = peer_.address + request.remote_offset,
                    .rkey = Rkey{request.rkey},
                    .compare_add = request.compare_add,
                    .swap = request.swap};
    if (!qp_.post_send(wr)) throw std::runtime_error("request not taken");
  }

  std::size_t poll(std::span<Completion> out) override {
    const std::size_t sends = take(send_cq_, out);
    return sends + take(recv_cq_, out.subspan(sends));
  }

  void idle() noexcept override { device_.progress(); }

  std::string counters() const override {
    std::ostringstream lines;
    for (const Counter& counter : device_.counters()) lines << counter.name << ' ' << counter.value << '\n';
    return lines.str();
  }

 private:
  static constexpr std::size_t kBurst = 32;

  static std::size_t take(Cq& cq, std::span<Completion> out) {
    std::array<Wc, kBurst> taken{};
    const std::size_t count = cq.poll(std::span(taken).first(std::min(kBurst, out.size())));
    for (std::size_t i = 0; i < count; ++i) {
      const Wc& wc = taken[i];
      out[i] = {.id = wc.wr_id,
                .status = static_cast<int>(wc.status),
                .bytes = wc.byte_len,
                .has_imm = (wc.flags & wc_flag::kWithImm) != 0,
                .imm = ntohl(wc.imm_data)};
    }
    return count;
  }

  Device device_;
  Pd pd_;
  Cq send_cq_;
  Cq recv_cq_;
  Mr mr_;
  Qp qp_;
  Gid gid_;
  std::uint32_t psn_;
  Identity peer_;
};

}  // namespace

std::unique_ptr<Endpoint> make_endpoint(const Options& options, const LinkAttr& attr, std::uint32_t psn) {
  return std::make_unique<UroceEndpoint>(config_from(options), attr, psn);
}

}  // namespace uroce::interop
