// Names of numbers, and rates.
#include <array>
#include <cstddef>
#include <string_view>

#include "abi/ibverbs/verbs.h"
#include "uroce/wc.h"

namespace uroce::abi {

namespace {

template <std::size_t N>
const char* name_at(const std::array<const char*, N>& names, int index) noexcept {
  return index >= 0 && static_cast<std::size_t>(index) < N ? names[static_cast<std::size_t>(index)]
                                                           : "unknown";
}

struct Rate {
  ibv_rate code;
  int mult;  // of 2.5 Gb/s; 0: none
  int mbps;
};

constexpr std::array kRates = {Rate{IBV_RATE_2_5_GBPS, 1, 2500},      Rate{IBV_RATE_5_GBPS, 2, 5000},
                               Rate{IBV_RATE_10_GBPS, 4, 10000},      Rate{IBV_RATE_20_GBPS, 8, 20000},
                               Rate{IBV_RATE_30_GBPS, 12, 30000},     Rate{IBV_RATE_40_GBPS, 16, 40000},
                               Rate{IBV_RATE_60_GBPS, 24, 60000},     Rate{IBV_RATE_80_GBPS, 32, 80000},
                               Rate{IBV_RATE_120_GBPS, 48, 120000},   Rate{IBV_RATE_14_GBPS, 0, 14062},
                               Rate{IBV_RATE_56_GBPS, 0, 56250},      Rate{IBV_RATE_112_GBPS, 0, 112500},
                               Rate{IBV_RATE_168_GBPS, 0, 168750},    Rate{IBV_RATE_25_GBPS, 0, 25781},
                               Rate{IBV_RATE_100_GBPS, 0, 103125},    Rate{IBV_RATE_200_GBPS, 0, 206250},
                               Rate{IBV_RATE_300_GBPS, 0, 309375},    Rate{IBV_RATE_28_GBPS, 11, 28125},
                               Rate{IBV_RATE_50_GBPS, 20, 53125},     Rate{IBV_RATE_400_GBPS, 160, 425000},
                               Rate{IBV_RATE_600_GBPS, 240, 637500},  Rate{IBV_RATE_800_GBPS, 320, 850000},
                               Rate{IBV_RATE_1200_GBPS, 480, 1275000}};

}  // namespace

}  // namespace uroce::abi

using namespace uroce::abi;

extern "C" {

const char* ibv_node_type_str(ibv_node_type type) {
  static constexpr std::array kNames = {"unknown",           "InfiniBand channel adapter",
                                        "InfiniBand switch", "InfiniBand router",
                                        "iWARP NIC",         "usNIC",
                                        "usNIC UDP",         "unspecified"};
  return name_at(kNames, type);
}

const char* ibv_port_state_str(ibv_port_state state) {
  static constexpr std::array kNames = {"no state change (NOP)", "down", "init", "armed", "active",
                                        "active defer"};
  return name_at(kNames, state);
}

const char* ibv_event_type_str(ibv_event_type type) {
  static constexpr std::array kNames = {"CQ error",
                                        "local work queue catastrophic error",
                                        "invalid request local work queue error",
                                        "local access violation work queue error",
                                        "communication established",
                                        "send queue drained",
                                        "path migrated",
                                        "path migration request error",
                                        "local catastrophic error",
                                        "port active",
                                        "port error",
                                        "LID change",
                                        "P_Key change",
                                        "SM change",
                                        "SRQ catastrophic error",
                                        "SRQ limit reached",
                                        "last WQE reached",
                                        "client reregistration",
                                        "GID table change",
                                        "WQ fatal"};
  return name_at(kNames, type);
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  if (status == IBV_WC_TM_ERR) return "TM error";
  if (status == IBV_WC_TM_RNDV_INCOMPLETE) return "TM software rendezvous";
  if (status < 0 || status > IBV_WC_TM_RNDV_INCOMPLETE) return "unknown";
  return uroce::to_string(static_cast<uroce::WcStatus>(status)).data();  // of literals
}

int ibv_rate_to_mult(ibv_rate code) {
  for (const Rate& rate : kRates) {
    if (rate.code == code && rate.mult != 0) return rate.mult;
  }
  return -1;
}

ibv_rate mult_to_ibv_rate(int mult) {
  for (const Rate& rate : kRates) {
    if (rate.mult == mult && mult != 0) return rate.code;
  }
  return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate code) {
  for (const Rate& rate : kRates) {
    if (rate.code == code) return rate.mbps;
  }
  return -1;
}

ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate& rate : kRates) {
    if (rate.mbps == mbps) return rate.code;
  }
  return IBV_RATE_MAX;
}

}  // extern "C"
