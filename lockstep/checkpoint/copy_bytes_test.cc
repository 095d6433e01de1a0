#include "lockstep/checkpoint/copy_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep {
namespace {

// Every beginning and end that a line of the cache can have, and what two threads share.
TEST(CopyBytes, CopiesWhatItIsToldAndNothingElse) {
  std::mt19937 random(5);
  constexpr std::size_t kLargest = (std::size_t{9} << 20) + 77;
  std::vector<std::byte> source(kLargest + 64), target(kLargest + 128);
  for (auto& byte : source) byte = static_cast<std::byte>(random());
  const auto check = [&](std::size_t from, std::size_t to, std::size_t size) {
    std::fill(target.begin(), target.end(), std::byte{7});
    const ByteCopy one{target.data() + to, std::span<const std::byte>(source).subspan(from, size)};
    copy_bytes({&one, 1});
    const auto first = target.begin() + static_cast<std::ptrdiff_t>(to);
    const auto last = first + static_cast<std::ptrdiff_t>(size);
    const auto is_old = [](std::byte byte) { return byte == std::byte{7}; };
    const bool is_copied = std::equal(first, last, source.begin() + static_cast<std::ptrdiff_t>(from));
    EXPECT_TRUE(is_copied && std::all_of(target.begin(), first, is_old) && std::all_of(last, target.end(), is_old))
        << size << " bytes from " << from << " to " << to;
  };
  check(13, 29, kLargest);
  target.resize(1024);
  for (std::size_t to = 0; to < 64; to += 3)
    for (const std::size_t size : {0, 1, 15, 63, 64, 65, 127, 300}) check(to * 5 % 64, to, size);
}

}  // namespace
}  // namespace lockstep
