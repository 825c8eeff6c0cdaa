/// Reads capture files: classic pcap, either byte order, Ethernet, whole frames.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace uroce::test {

/// All frames of a capture file in order. Throws if the file is not what it should be.
inline std::vector<std::vector<std::byte>> read_pcap(const std::filesystem::path& file) {
  constexpr std::size_t kFileHeader = 24;
  constexpr std::size_t kRecordHeader = 16;
  constexpr std::uint32_t kEthernet = 1;

  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + file.string());
  const std::string data{std::istreambuf_iterator<char>(in), {}};

  const auto byte_at = [&](std::size_t at) { return std::uint32_t{static_cast<unsigned char>(data.at(at))}; };
  const auto little = [&](std::size_t at) {
    return byte_at(at) | byte_at(at + 1) << 8 | byte_at(at + 2) << 16 | byte_at(at + 3) << 24;
  };
  const auto big = [&](std::size_t at) {
    return byte_at(at) << 24 | byte_at(at + 1) << 16 | byte_at(at + 2) << 8 | byte_at(at + 3);
  };
  const auto is_magic = [](std::uint32_t value) { return value == 0xa1b2'c3d4 || value == 0xa1b2'3c4d; };
  const bool is_little = is_magic(little(0));
  if (!is_little && !is_magic(big(0))) throw std::runtime_error("not a pcap file: " + file.string());
  const auto number = [&](std::size_t at) { return is_little ? little(at) : big(at); };
  if ((number(20) & 0xffff) != kEthernet) throw std::runtime_error("not Ethernet: " + file.string());

  std::vector<std::vector<std::byte>> frames;
  for (std::size_t at = kFileHeader; at < data.size();) {
    const std::size_t captured = number(at + 8);
    if (captured != number(at + 12)) throw std::runtime_error("cut frame in " + file.string());
    at += kRecordHeader;
    if (data.size() - at < captured) throw std::runtime_error("cut file: " + file.string());
    const auto bytes = std::as_bytes(std::span{data}.subspan(at, captured));
    frames.emplace_back(bytes.begin(), bytes.end());
    at += captured;
  }
  return frames;
}

/// The capture files of a folder, sorted by name.
inline std::vector<std::filesystem::path> pcap_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".pcap") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace uroce::test
