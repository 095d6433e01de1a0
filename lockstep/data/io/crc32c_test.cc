#include "lockstep/data/io/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace lockstep::data {
namespace {

TEST(Crc32c, GivesTheKnownSums) {
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43U);
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283U);
  EXPECT_EQ(crc32c("", 0), 0U);
}

TEST(Crc32c, TheInstructionAndTheTableAgree) {
  std::mt19937 bits(1);
  std::string data(5000, '\0');
  for (auto& byte : data) byte = static_cast<char>(bits());
  for (std::size_t bytes = 0; bytes < data.size(); bytes = bytes < 40 ? bytes + 1 : bytes + 97)
    for (std::size_t start = 0; start < 3; ++start)
      EXPECT_EQ(crc32c(data.data() + start, bytes - std::min(bytes, start)),
                internal::crc32c_by_table(data.data() + start, bytes - std::min(bytes, start)))
          << bytes << " from " << start;
}

TEST(Crc32c, SumsOfPiecesJoin) {
  std::string data(3000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i);
  for (const std::size_t cut : {0, 1, 255, 1500, 2999, 3000})
    EXPECT_EQ(joined_crc32c(crc32c(data.data(), cut), crc32c(data.data() + cut, data.size() - cut), data.size() - cut),
              crc32c(data.data(), data.size()))
        << cut;
}

}  // namespace
}  // namespace lockstep::data
