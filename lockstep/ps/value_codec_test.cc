#include "lockstep/ps/value_codec.h"

#include <ATen/ATen.h>

#include <array>
#include <random>
#include <unordered_map>

#include "tests/support/parcel.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using testing::code_of;
using testing::Parcel;
using testing::ThrowsCode;

enum class Colour : std::uint8_t { kRed, kBlue };

struct Inner {
  Colour colour = Colour::kRed;
  std::vector<at::Tensor> tensors = {};
};
struct Nothing {};
struct Batch {
  at::Tensor rows;
  std::map<std::string, Inner> inner;
  std::optional<double> rate;
  std::pair<int, std::string> named;
  std::array<float, 3> three;
  std::vector<bool> flags;
  Nothing nothing;
};
struct Tree {
  int value = 0;
  std::vector<Tree> below = {};
};

template <typename T>
struct Sent {
  std::string fields;
  std::vector<Piece> payload;
  std::uint64_t bytes;
};

template <typename T>
Sent<T> send(const T& value) {
  Encoder encoder;
  encoder.put(value);
  const auto bytes = encoder.payload_bytes();
  return {encoder.take_fields(), encoder.take_payload(), bytes};
}

template <typename T>
T receive(const Sent<T>& sent) {
  Parcel parcel(sent.fields, sent.payload);
  Decoder decoder(parcel.fields(), parcel, sent.bytes);
  auto value = decoder.get<T>();
  decoder.require_end();
  return value;
}

template <typename T>
T there_and_back(const T& value) {
  return receive(send(value));
}

TEST(ValueCodec, SendsPlainValues) {
  EXPECT_EQ(there_and_back(true), true);
  EXPECT_EQ(there_and_back<std::int8_t>(-3), -3);
  EXPECT_EQ(there_and_back<std::uint64_t>(~0ULL), ~0ULL);
  EXPECT_EQ(there_and_back(0.1F), 0.1F);
  EXPECT_EQ(there_and_back(1e300), 1e300);
  EXPECT_EQ(there_and_back(Colour::kBlue), Colour::kBlue);
  EXPECT_EQ(there_and_back(std::string("a\0b", 3)), std::string("a\0b", 3));
}

TEST(ValueCodec, SendsStructures) {
  const std::tuple<int, std::vector<std::string>, std::optional<int>, std::tuple<>> values(3, {"a", ""}, std::nullopt, {});
  EXPECT_EQ(there_and_back(values), values);
  const std::unordered_map<int, std::pair<bool, std::array<int, 2>>> map{{1, {true, {2, 3}}}, {4, {false, {5, 6}}}};
  EXPECT_EQ(there_and_back(map), map);
  const std::vector<std::vector<bool>> bits{{true, false}, {}};
  EXPECT_EQ(there_and_back(bits), bits);
  EXPECT_EQ(there_and_back(std::array<int, 0>{}), (std::array<int, 0>{}));
  EXPECT_EQ(there_and_back(std::vector<Nothing>(7)).size(), 7U);
}

TEST(ValueCodec, SendsPlainStructsWithTensorsInside) {
  Batch batch{at::arange(6).view({2, 3}),
              {{"x", {Colour::kBlue, {at::ones({2}), at::Tensor()}}}},
              0.5,
              {7, "seven"},
              {1, 2, 3},
              {true, false, true},
              {}};
  const auto back = there_and_back(batch);
  EXPECT_TRUE(at::equal(back.rows, batch.rows));
  ASSERT_EQ(back.inner.count("x"), 1U);
  EXPECT_EQ(back.inner.at("x").colour, Colour::kBlue);
  ASSERT_EQ(back.inner.at("x").tensors.size(), 2U);
  EXPECT_TRUE(at::equal(back.inner.at("x").tensors[0], at::ones({2})));
  EXPECT_FALSE(back.inner.at("x").tensors[1].defined());
  EXPECT_EQ(back.rate, 0.5);
  EXPECT_EQ(back.named, batch.named);
  EXPECT_EQ(back.three, batch.three);
  EXPECT_EQ(back.flags, batch.flags);
}

TEST(ValueCodec, SendsTensorsOfEveryDtypeAndShape) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kShort, at::kInt,
                           at::kLong, at::kBool, at::kComplexFloat, at::kComplexDouble})
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{}, {3}, {2, 3}, {0}, {4, 0, 2}, {1, 1, 1, 5}}) {
      const auto tensor = at::randint(0, 2, sizes, at::kLong).to(dtype);
      const auto back = there_and_back(tensor);
      EXPECT_EQ(back.scalar_type(), dtype);
      EXPECT_EQ(back.sizes(), tensor.sizes());
      EXPECT_TRUE(at::equal(back, tensor));
    }
}

TEST(ValueCodec, SendsViewsAsTheyAreSeen) {
  const auto base = at::arange(24).view({4, 6});
  for (const auto& view : {base.t(), base.slice(1, 1, 6, 2), base[2], base.expand({3, 4, 6}), base.flip(0)})
    EXPECT_TRUE(at::equal(there_and_back(view), view));
  const auto complex = at::complex(at::ones({3}), at::ones({3}));
  EXPECT_TRUE(at::equal(there_and_back(at::conj(complex)), at::conj(complex)));
  auto trained = at::ones({2});
  trained.requires_grad_();
  EXPECT_FALSE(there_and_back(trained).requires_grad());
}

TEST(ValueCodec, CopiesATensorThatSomebodyMayChangeAndNoOther) {
  auto held = at::ones({4});
  const auto* const memory = held.data_ptr();
  const auto other = held;
  const auto copied = send(held);
  held.fill_(2);
  EXPECT_TRUE(at::equal(receive(copied), at::ones({4})));

  auto alone = at::ones({4});
  const auto* const data = alone.data_ptr();
  const auto moved = send(alone);
  EXPECT_EQ(static_cast<const void*>(moved.payload[0].bytes.data()), data);
  EXPECT_NE(static_cast<const void*>(copied.payload[0].bytes.data()), memory);

  std::array<float, 2> callers{1, 1};
  const auto borrowed = send(at::from_blob(callers.data(), {2}));
  callers = {5, 5};
  EXPECT_TRUE(at::equal(receive(borrowed), at::ones({2})));

  const auto whole = at::zeros({4});
  const auto part = send(whole.slice(0, 0, 2));
  whole.fill_(1);
  EXPECT_TRUE(at::equal(receive(part), at::zeros({2})));
}

TEST(ValueCodec, KeepsWhatIsSentAlive) {
  auto sent = send(at::full({1000}, 3.0));
  EXPECT_EQ(receive(sent).sum().item<double>(), 3000);
}

TEST(ValueCodec, SendsIndexedSlices) {
  const IndexedSlices slices{at::ones({2, 3}), at::tensor({4L, 1L}), {10, 3}};
  const auto back = there_and_back(std::vector<IndexedSlices>{slices})[0];
  EXPECT_TRUE(at::equal(back.values, slices.values));
  EXPECT_TRUE(at::equal(back.indices, slices.indices));
  EXPECT_EQ(back.dense_shape, slices.dense_shape);
}

TEST(ValueCodec, RefusesTensorsThatAreMoreThanNumbers) {
  EXPECT_THAT([] { send(at::ones({2, 2}).to_sparse()); }, ThrowsCode(ErrorCode::kInvalidArgument, "Sparse"));
  EXPECT_THAT([] { send(at::quantize_per_tensor(at::ones({2}), 1, 0, at::kQInt8)); },
              ThrowsCode(ErrorCode::kInvalidArgument, "QInt8"));
}

TEST(ValueCodec, RefusesWhatIsTooDeep) {
  const auto tower = [](int height) {
    Tree tree{height, {}};
    for (int i = 0; i < height; ++i) tree = Tree{i, {std::move(tree)}};
    return tree;
  };
  EXPECT_EQ(there_and_back(tower(20)).below[0].below[0].value, 17);
  EXPECT_EQ(code_of([&] { send(tower(40)); }), ErrorCode::kInvalidArgument);

  Encoder encoder;  // 40 levels, by hand
  for (int i = 0; i < 40; ++i) {
    encoder.put(1);
    encoder.put<std::uint64_t>(1);
  }
  encoder.put(1);
  encoder.put<std::uint64_t>(0);
  EXPECT_EQ(code_of([&] { receive(Sent<Tree>{encoder.take_fields(), {}, 0}); }), ErrorCode::kInvalidArgument);
}

TEST(ValueCodec, KnowsWhatCannotBeSent) {
  struct HasPointer {
    int* pointer;
  };
  struct HasOwner {
    std::vector<std::unique_ptr<int>> owners;
  };
  static_assert(is_sendable<Batch>() && is_sendable<Tree>());
  static_assert(!is_sendable<HasPointer>() && !is_sendable<HasOwner>() && !is_sendable<const char*>());
  static_assert(!is_sendable<std::function<void()>>());
}

TEST(ValueCodec, RefusesEveryCut) {
  const auto whole = send(Batch{at::ones({3}), {{"x", {}}}, 1.5, {1, "one"}, {}, {true}, {}});
  for (std::size_t size = 0; size < whole.fields.size(); ++size)
    EXPECT_EQ(code_of([&] {
                receive(Sent<Batch>{whole.fields.substr(0, size), whole.payload, whole.bytes});
              }),
              ErrorCode::kInvalidArgument)
        << size;
  EXPECT_EQ(code_of([&] {
              receive(Sent<Batch>{whole.fields + "x", whole.payload, whole.bytes});
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { receive(Sent<Batch>{whole.fields, {}, 0}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { receive(Sent<Batch>{whole.fields, {}, whole.bytes}); }), ErrorCode::kInvalidArgument);
  const auto other = send(at::ones({100}));
  EXPECT_EQ(code_of([&] { receive(Sent<Batch>{whole.fields, other.payload, other.bytes}); }), ErrorCode::kInvalidArgument);
}

TEST(ValueCodec, RefusesTensorsThatCannotBe) {
  const auto code = [](std::int8_t dtype, const std::vector<std::int64_t>& sizes) {
    Encoder encoder;
    encoder.put(true);
    encoder.put(dtype);
    encoder.put(sizes);
    return code_of([&] { receive(Sent<at::Tensor>{encoder.take_fields(), {}, 0}); });
  };
  const auto number = static_cast<std::int8_t>(at::kFloat);
  EXPECT_EQ(code(number, {0}), std::nullopt);
  EXPECT_EQ(code(number, {1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(number, {-1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(number, {1LL << 40, 1LL << 40}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(number, {1LL << 62, 2, 2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(number, {0, 1LL << 62}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(number, std::vector<std::int64_t>(100, 0)), ErrorCode::kInvalidArgument);
  for (const int dtype : {-1, 100, static_cast<int>(at::kQInt8), static_cast<int>(at::ScalarType::Undefined)})
    EXPECT_EQ(code(static_cast<std::int8_t>(dtype), {0}), ErrorCode::kInvalidArgument) << dtype;
}

// Nothing but kInvalidArgument, whatever the bytes.
TEST(ValueCodec, TakesAnyBytes) {
  const auto whole = send(Batch{at::ones({3}), {{"x", {Colour::kRed, {at::ones({2})}}}}, 1.5, {1, "one"}, {}, {true}, {}});
  std::mt19937_64 random(5);
  for (int round = 0; round < 5'000; ++round) {
    auto changed = whole;
    for (int change = 0; change < 3; ++change) changed.fields[random() % changed.fields.size()] = static_cast<char>(random());
    const auto code = code_of([&] { receive(changed); });
    EXPECT_TRUE(!code || code == ErrorCode::kInvalidArgument);
  }
}

TEST(ValueCodec, PassesOverWhatWasNotRead) {
  const auto first = send(at::ones({5000}));
  const auto second = send(at::full({2}, 7.0));
  auto payload = first.payload;
  payload.insert(payload.end(), second.payload.begin(), second.payload.end());
  Parcel parcel("", payload);
  Decoder(first.fields, parcel, first.bytes).skip_payload();
  EXPECT_TRUE(at::equal(Decoder(second.fields, parcel, second.bytes).get<at::Tensor>(), at::full({2}, 7.0)));
}

}  // namespace
}  // namespace lockstep::ps
