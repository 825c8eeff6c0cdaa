#include "drivers/dpdk/kernel_filter.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace uroce::drivers::dpdk {
namespace {

// Linux 6.6 and later; not in older headers.
constexpr auto kTcxIngress = static_cast<bpf_attach_type>(46);
constexpr std::int32_t kTcxNext = -1;
constexpr std::int32_t kTcxDrop = 2;

// Offsets in a frame without VLAN tag; bytes.
constexpr int kEtherType = 12;
constexpr int kIpv4VersionLength = 14;
constexpr int kIpv4Fragment = 20;
constexpr int kIpv4Protocol = 23;
constexpr int kIpv4Destination = 30;
constexpr int kIpv4UdpPort = 36;
constexpr int kIpv4Headers = 42;
constexpr int kIpv6Next = 20;
constexpr int kIpv6Destination = 38;
constexpr int kIpv6UdpPort = 56;
constexpr int kIpv6Headers = 62;

constexpr std::uint32_t kUdp = 17;
constexpr std::uint32_t kRocePort = 4791;

/// The program, written instruction by instruction: Linux,
/// Documentation/bpf/standardization/instruction-set.rst.
class Program {
 public:
  /// Places that are jumped to.
  enum class To : std::uint8_t { kIpv6, kNext, kDrop, kCount };

  Program() noexcept { add(BPF_ALU64 | BPF_MOV | BPF_X, {.to = BPF_REG_6, .from = BPF_REG_1}); }

  /// Register 0 is what the frame's metadata say.
  void load(std::size_t field_of_skb) noexcept {
    const auto at = static_cast<std::int16_t>(field_of_skb);
    add(BPF_LDX | BPF_MEM | BPF_W, {.to = BPF_REG_0, .from = BPF_REG_6, .offset = at});
  }
  /// Register 0 is that part of the frame, in this machine's byte order.
  /// @param size  BPF_B, BPF_H or BPF_W
  void load_frame(int size, int at) noexcept { add(BPF_LD | BPF_ABS | size, {.value = at}); }
  void go(To to) noexcept {
    jumps_[jump_count_++] = {count_, to};
    add(BPF_JMP | BPF_JA, {});
  }
  /// Jumps by what register 0 is. @param condition  BPF_JEQ and so on
  void go(int condition, std::uint32_t value, To to) noexcept {
    jumps_[jump_count_++] = {count_, to};
    skip(condition, value, 0);
  }
  /// Likewise, over the next `count` instructions.
  void skip(int condition, std::uint32_t value, std::size_t count) noexcept {
    const auto distance = static_cast<std::int16_t>(count);
    add(BPF_JMP32 | condition | BPF_K, {.offset = distance, .value = static_cast<std::int32_t>(value)});
  }
  /// What follows is at that place.
  void here(To to) noexcept { places_[raw(to)] = count_; }
  void end(std::int32_t verdict) noexcept {
    add(BPF_ALU | BPF_MOV | BPF_K, {.to = BPF_REG_0, .value = verdict});
    add(BPF_JMP | BPF_EXIT, {});
  }
  /// @return the descriptor of the program; negative: the kernel does not take it
  [[nodiscard]] int give_to_kernel() noexcept {
    for (std::size_t i = 0; i < jump_count_; ++i) {
      const Jump& jump = jumps_[i];
      code_[jump.from].off = static_cast<std::int16_t>(places_[raw(jump.to)] - jump.from - 1);
    }
    return bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "uroce", "BSD", code_.data(), count_, nullptr);
  }

 private:
  struct Operands {
    std::uint8_t to = 0;  ///< register
    std::uint8_t from = 0;
    std::int16_t offset = 0;
    std::int32_t value = 0;
  };
  struct Jump {
    std::size_t from;
    To to;
  };
  static constexpr std::size_t kInstructions = 64 + KernelFilter::kMost * 9;

  void add(int code, const Operands& operands) noexcept {
    bpf_insn& instruction = code_[count_++];
    instruction.code = static_cast<std::uint8_t>(code);
    instruction.dst_reg = operands.to & 0xf;
    instruction.src_reg = operands.from & 0xf;
    instruction.off = operands.offset;
    instruction.imm = operands.value;
  }

  std::array<bpf_insn, kInstructions> code_{};
  std::array<Jump, 16 + KernelFilter::kMost> jumps_{};
  std::array<std::size_t, raw(To::kCount)> places_{};
  std::size_t count_ = 0;
  std::size_t jump_count_ = 0;
};

using To = Program::To;

std::uint32_t word_of(const Gid& gid, std::size_t index) noexcept {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word = word << 8 | gid.raw[4 * index + i];
  return word;
}

void write_ipv4(Program& program, std::span<const Gid> addresses) noexcept {
  program.load_frame(BPF_B, kIpv4VersionLength);
  program.go(BPF_JNE, 0x45, To::kNext);
  program.load_frame(BPF_H, kIpv4Fragment);
  program.go(BPF_JSET, 0x3fff, To::kNext);
  program.load_frame(BPF_B, kIpv4Protocol);
  program.go(BPF_JNE, kUdp, To::kNext);
  program.load_frame(BPF_H, kIpv4UdpPort);
  program.go(BPF_JNE, kRocePort, To::kNext);
  program.load_frame(BPF_W, kIpv4Destination);
  for (const Gid& address : addresses) {
    if (address.is_v4()) program.go(BPF_JEQ, word_of(address, 3), To::kDrop);
  }
}

void write_ipv6(Program& program, std::span<const Gid> addresses) noexcept {
  program.load(offsetof(__sk_buff, len));
  program.go(BPF_JLT, kIpv6Headers, To::kNext);
  program.load_frame(BPF_B, kIpv6Next);
  program.go(BPF_JNE, kUdp, To::kNext);
  program.load_frame(BPF_H, kIpv6UdpPort);
  program.go(BPF_JNE, kRocePort, To::kNext);
  for (const Gid& address : addresses) {
    if (address.is_v4()) continue;
    constexpr std::size_t kWords = 4;
    for (std::size_t i = 0; i < kWords; ++i) {
      program.load_frame(BPF_W, kIpv6Destination + static_cast<int>(4 * i));
      if (i + 1 < kWords) {
        program.skip(BPF_JNE, word_of(address, i), 2 * (kWords - 1 - i));  // to behind the last comparison
      } else {
        program.go(BPF_JEQ, word_of(address, i), To::kDrop);
      }
    }
  }
}

/// Whatever is read lies inside the frame: a read behind its end would end the program, and other programs
/// behind this one would not see the frame.
int load_program(std::span<const Gid> addresses) noexcept {
  constexpr std::uint32_t kIpv4 = 0x0800;
  constexpr std::uint32_t kIpv6 = 0x86dd;
  Program program;
  program.load(offsetof(__sk_buff, vlan_present));
  program.go(BPF_JNE, 0, To::kNext);
  program.load(offsetof(__sk_buff, len));
  program.go(BPF_JLT, kIpv4Headers, To::kNext);
  program.load_frame(BPF_H, kEtherType);
  program.go(BPF_JNE, kIpv4, To::kIpv6);
  write_ipv4(program, addresses);
  program.go(To::kNext);
  program.here(To::kIpv6);
  program.go(BPF_JNE, kIpv6, To::kNext);
  write_ipv6(program, addresses);
  program.here(To::kNext);
  program.end(kTcxNext);
  program.here(To::kDrop);
  program.end(kTcxDrop);
  return program.give_to_kernel();
}

}  // namespace

KernelFilter::KernelFilter(unsigned interface_index, std::span<const Gid> addresses) noexcept {
  if (addresses.empty()) return;  // the kernel takes no program with an end that nothing leads to
  const OwnedFd program(load_program(addresses.first(std::min(addresses.size(), kMost))));
  if (!program.is_open()) return;
  const auto index = static_cast<int>(interface_index);
  link_ = OwnedFd(bpf_link_create(program.get(), index, kTcxIngress, nullptr));  // and holds the program
}

}  // namespace uroce::drivers::dpdk
