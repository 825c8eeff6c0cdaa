/// The memory of an shm link.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "drivers/shm/link.h"

namespace uroce::test {

/// The bytes of a link as whoever maps them sees them.
class SharedBytes {
 public:
  explicit SharedBytes(const std::string& name) {
    const int file = ::open(drivers::shm::link_path(name).c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(file >= 0);
    struct stat status {};
    REQUIRE(::fstat(file, &status) == 0);
    size_ = static_cast<std::size_t>(status.st_size);
    base_ = static_cast<std::byte*>(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
    REQUIRE(base_ != MAP_FAILED);
  }
  ~SharedBytes() { ::munmap(base_, size_); }
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;

  [[nodiscard]] std::size_t size() const { return size_; }
  void store32(std::size_t at, std::uint32_t value) { std::memcpy(base_ + at, &value, sizeof(value)); }
  void store64(std::size_t at, std::uint64_t value) { std::memcpy(base_ + at, &value, sizeof(value)); }
  [[nodiscard]] std::uint32_t load32(std::size_t at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, base_ + at, sizeof(value));
    return value;
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace uroce::test
