#include "lockstep/ps/fields.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using testing::code_of;

enum class Kind : std::uint8_t { kDense, kRows };

struct Inner {
  std::string name = "";
  Kind kind = Kind::kDense;
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, kind);
  }
  friend bool operator==(const Inner&, const Inner&) = default;
};

struct Outer {
  std::int64_t number = 0;
  double rate = 0;
  bool flag = false;
  std::vector<std::int64_t> shape = {};
  std::vector<bool> bits = {};
  std::vector<Inner> inner = {};
  std::optional<std::string> text = std::nullopt;
  std::vector<std::pair<std::string, std::uint32_t>> pairs = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(number, rate, flag, shape, bits, inner, text, pairs);
  }
  friend bool operator==(const Outer&, const Outer&) = default;
};

Outer example() {
  return {-7, 0.1, true, {2, 3, 1LL << 40}, {true, false}, {{"a", Kind::kRows}, {"", Kind::kDense}}, "x\0y", {{"k", 9}}};
}

TEST(Fields, ComeBackAsTheyWere) {
  EXPECT_EQ(from_bytes<Outer>(to_bytes(example())), example());
  EXPECT_EQ(from_bytes<Outer>(to_bytes(Outer{})), Outer{});
}

TEST(Fields, RefuseEveryCutAndWhatIsTooLong) {
  const auto bytes = to_bytes(example());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(code_of([&] { from_bytes<Outer>(bytes.substr(0, size)); }), ErrorCode::kInvalidArgument) << size;
  EXPECT_EQ(code_of([&] { from_bytes<Outer>(bytes + "x"); }), ErrorCode::kInvalidArgument);
}

// Nothing but kInvalidArgument, and no memory for lengths that cannot be.
TEST(Fields, TakeAnyBytes) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = to_bytes(example());
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto code = code_of([&] { from_bytes<Outer>(bytes); });
    EXPECT_TRUE(!code || code == ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep::ps
