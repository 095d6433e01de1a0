#include "lockstep/ps/store.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <random>

#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::MethodTable;
using lockstep::testing::on_threads;
using lockstep::testing::piece_of;
using lockstep::testing::plain_rule;
using lockstep::testing::read_tensor;
using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;
using Kind = Operation::Kind;

Description describe(const std::string& name, const at::Tensor& like, const std::string& rule = "") {
  return {.name = name,
          .dtype = static_cast<std::int8_t>(like.scalar_type()),
          .shape = like.sizes().vec(),
          .whole_shape = like.sizes().vec(),
          .rule = rule};
}

Operation operation(const std::string& name, Kind kind, const at::Tensor& values) {
  return {.name = name, .kind = kind, .dtype = static_cast<std::int8_t>(values.scalar_type()), .shape = values.sizes().vec()};
}

// A store, and a client that numbers its requests.
struct Shop {
  explicit Shop(StoreOptions options = {.rules = plain_rule}) : store(options), methods(store.methods()) {}

  Sender next() { return {7, ++sequence, sequence}; }
  CreateReply create(const std::string& name, const at::Tensor& value, const std::string& rule = "") {
    return methods.call<CreateReply>(methods::kCreate, CreateRequest{next(), describe(name, value, rule)}, {value});
  }
  CreateReply create(const Description& description) {
    return methods.call<CreateReply>(methods::kCreate, CreateRequest{next(), description});
  }
  UpdateReply update(const std::vector<Operation>& operations, const std::vector<at::Tensor>& payload) {
    return methods.call<UpdateReply>(methods::kUpdate, UpdateRequest{next(), operations}, payload);
  }
  UpdateReply change(const std::string& name, Kind kind, const at::Tensor& values) {
    return update({operation(name, kind, values)}, {values});
  }
  UpdateReply change_rows(const std::string& name, Kind kind, const at::Tensor& ids, const at::Tensor& rows) {
    return update({operation(name, kind, rows)}, {ids, rows});
  }
  at::Tensor value(const std::string& name) const {
    at::Tensor copy;
    store.find(name)->look([&](const at::Tensor& value, const UpdateRule*, std::uint64_t) { copy = value.clone(); });
    return copy;
  }

  VariableStore store;
  MethodTable methods;
  std::uint64_t sequence = 0;
};

TEST(VariableStore, CreatesOnceAndFindsItAgain) {
  Shop shop;
  EXPECT_TRUE(shop.create("w", at::ones({2, 3}), "0.5").is_new);
  shop.change("w", Kind::kAdd, at::ones({2, 3}));
  const auto again = shop.create("w", at::zeros({2, 3}), "0.5");  // by a coordinator that was restarted
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.version, 1U);
  EXPECT_TRUE(shop.value("w").equal(at::full({2, 3}, 2)));
  EXPECT_THAT(
      [&] {
        shop.create("w", at::zeros({3, 2}), "0.5");
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "'w'", "Float [2, 3]", "Float [3, 2]"));
  EXPECT_THAT(
      [&] {
        shop.create("w", at::zeros({2, 3}), "0.25");
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "rule '0.5'", "rule '0.25'"));
  EXPECT_THAT([&] { shop.create("v", at::zeros({2}), "bad"); }, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_EQ(shop.store.find("v"), nullptr);
  EXPECT_EQ(shop.store.statistics().bytes, 24U);
}

TEST(VariableStore, RefusesWhatIsNoVariable) {
  Shop shop;
  const auto good = describe("w", at::ones({2, 3}));
  const auto with = [&](auto change) {
    auto description = good;
    change(description);
    return code_of([&] { shop.methods.call<CreateReply>(methods::kCreate, CreateRequest{shop.next(), description}); });
  };
  EXPECT_EQ(with([](auto& d) { d.name = ""; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.name = std::string(2000, 'x'); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.dtype = 99; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.dtype = -1; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.shape = {2, -3}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.shape = d.whole_shape = {1LL << 40, 1LL << 40}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.first_row = 1; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.whole_shape = {4, 2}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto& d) { d.initial.kind = static_cast<Initial::Kind>(9); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](auto&) {}), ErrorCode::kInvalidArgument);  // without its values
  EXPECT_EQ(shop.store.statistics().variables, 0U);
}

TEST(VariableStore, BeginsWithNumbersThatDoNotDependOnTheParts) {
  Shop shop;
  for (const auto kind : {Initial::Kind::kUniform, Initial::Kind::kNormal}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf}) {
      Description whole{.name = str("whole", static_cast<int>(kind), lockstep::str(dtype)),
                        .dtype = static_cast<std::int8_t>(dtype),
                        .shape = {5000, 7},
                        .whole_shape = {5000, 7},
                        .initial = {kind, -2, 3, 42}};
      shop.create(whole);
      const auto all = shop.value(whole.name);
      auto part = whole;
      part.name += "/part_1";
      part.shape[0] = 1234;
      part.first_row = 3000;
      shop.create(part);
      EXPECT_TRUE(shop.value(part.name).equal(all.narrow(0, 3000, 1234)));
      auto other = whole;
      other.name += "other";
      other.initial.seed = 43;
      shop.create(other);
      const auto in_double = all.to(at::kDouble);
      EXPECT_LT((in_double == shop.value(other.name).to(at::kDouble)).sum().item<int>(), 500);
      const bool is_uniform = kind == Initial::Kind::kUniform;
      EXPECT_NEAR(in_double.mean().item<double>(), is_uniform ? 0.5 : -2, 0.06);
      EXPECT_NEAR(in_double.std().item<double>(), is_uniform ? 5 / std::sqrt(12.0) : 3, 0.04);
      EXPECT_TRUE(!is_uniform || in_double.min().item<double>() >= -2);
    }
  }
  shop.create({.name = "zeros", .dtype = 6, .shape = {2}, .whole_shape = {2}, .initial = {Initial::Kind::kZeros}});
  EXPECT_TRUE(shop.value("zeros").equal(at::zeros({2})));
  EXPECT_THAT(
      [&] {
        shop.create({"ints", 4, {2}, {2}, 0, true, "", {Initial::Kind::kNormal}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "floating"));
}

TEST(VariableStore, DoesTheOperationsInTheirOrder) {
  Shop shop;
  shop.create("w", at::ones({2, 2}), "0.5");
  shop.create("n", at::ones({3}, at::kLong));
  const auto reply =
      shop.update({operation("w", Kind::kAssign, at::ones({2, 2})), operation("n", Kind::kSub, at::ones({3}, at::kLong)),
                   operation("w", Kind::kGradient, at::ones({2, 2})), operation("w", Kind::kAdd, at::ones({2, 2}))},
                  {at::full({2, 2}, 3.0F), at::full({3}, 5, at::kLong), at::ones({2, 2}), at::ones({2, 2})});
  EXPECT_THAT(reply.versions, ElementsAre(1, 1, 2, 3));
  EXPECT_TRUE(shop.value("w").equal(at::full({2, 2}, 3.5)));
  EXPECT_TRUE(shop.value("n").equal(at::full({3}, -4, at::kLong)));
  Operation rate{.name = "w", .kind = Kind::kSetLearningRate, .number = 2.0};
  auto gradient = operation("w", Kind::kGradient, at::ones({2, 2}));
  gradient.wants_value = true;
  Outgoing request{to_bytes(UpdateRequest{shop.next(), {rate, gradient}}), {piece_of(at::ones({2, 2}))}};
  for (int times = 0; times < 2; ++times) {  // the second time it is a repetition
    const auto answer = shop.methods.call(methods::kUpdate, request);
    EXPECT_THAT(from_bytes<UpdateReply>(answer->fields()).versions, ElementsAre(4, 5));
    EXPECT_THAT(from_bytes<UpdateReply>(answer->fields()).value_versions, ElementsAre(5));
    EXPECT_TRUE(read_tensor(*answer, {2, 2}).equal(at::full({2, 2}, 1.5)));
  }
  EXPECT_EQ(shop.store.statistics().updates, 6U);
}

TEST(VariableStore, ChangesRowsAsTheyCome) {
  const auto ids = at::tensor({2, 0, 2}, at::kLong);
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kChar, at::kShort, at::kByte}) {
    const auto rows = at::tensor({2, 3, 4, 5, 2, 7}).to(dtype).reshape({3, 2});
    const auto after = [&](Kind kind) {
      Shop shop;
      shop.create("t", at::full({4, 2}, 60, dtype));
      shop.change_rows("t", kind, ids, rows);
      const auto value = shop.value("t").to(at::kLong);
      EXPECT_TRUE(value[1].equal(at::full({2}, 60, at::kLong)));
      return std::vector<std::int64_t>{value[0][0].item<std::int64_t>(), value[2][0].item<std::int64_t>(),
                                       value[2][1].item<std::int64_t>()};
    };
    EXPECT_THAT(after(Kind::kUpdateRows), ElementsAre(4, 2, 7));
    EXPECT_THAT(after(Kind::kAddRows), ElementsAre(64, 64, 70));
    EXPECT_THAT(after(Kind::kSubRows), ElementsAre(56, 56, 50));
    EXPECT_THAT(after(Kind::kDivRows), ElementsAre(15, 15, 2));
    EXPECT_THAT(after(Kind::kMinRows), ElementsAre(4, 2, 3));
    EXPECT_THAT(after(Kind::kMaxRows), ElementsAre(60, 60, 60));
    if (dtype != at::kInt) continue;  // others have no room
    EXPECT_THAT(after(Kind::kMulRows), ElementsAre(240, 240, 1260));
  }
  Shop shop;
  shop.create("t", at::zeros({4, 2}), "0.5");
  shop.change_rows("t", Kind::kGradientRows, ids, at::ones({3, 2}));
  EXPECT_TRUE(shop.value("t").equal(at::tensor({-0.5, -0.5, 0.0, 0.0, -1.0, -1.0, 0.0, 0.0}, at::kFloat).reshape({4, 2})));
  EXPECT_THAT(shop.change_rows("t", Kind::kAddRows, at::empty({0}, at::kLong), at::empty({0, 2})).versions, ElementsAre(2));
}

TEST(VariableStore, DividesIntegersWithoutStopping) {
  Shop shop;
  const auto least = std::numeric_limits<std::int32_t>::min();
  shop.create("n", at::full({2, 1}, least, at::kInt));
  EXPECT_THAT(
      [&] {
        shop.change_rows("n", Kind::kDivRows, at::tensor({0}, at::kLong), at::zeros({1, 1}, at::kInt));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "divided by 0"));
  shop.change_rows("n", Kind::kDivRows, at::tensor({0}, at::kLong), at::full({1, 1}, -1, at::kInt));
  EXPECT_EQ(shop.value("n")[0].item<int>(), least);
}

// Each of these has a first operation that would do, and one that does not fit.
TEST(VariableStore, ARefusedRequestHasChangedNothing) {
  Shop shop;
  shop.create("w", at::ones({4, 2}), "0.5");
  shop.create("scalar", at::ones({}));
  shop.create("bools", at::ones({2}, at::kBool));
  const auto fine = operation("w", Kind::kAdd, at::ones({4, 2}));
  const auto with = [&](const Operation& bad, std::vector<at::Tensor> payload) {
    payload.insert(payload.begin(), at::ones({4, 2}));
    return [&shop, fine, bad, payload] { shop.update({fine, bad}, payload); };
  };
  const auto ids = at::tensor({0, 4}, at::kLong);
  const auto rows = at::ones({2, 2});
  EXPECT_THAT(with(operation("v", Kind::kAdd, rows), {rows}), ThrowsCode(ErrorCode::kNotFound, "'v'", "did you mean 'w'"));
  EXPECT_THAT(with(operation("w", Kind::kAdd, rows), {rows}), ThrowsCode(ErrorCode::kInvalidArgument, "[4, 2]", "[2, 2]"));
  EXPECT_THAT(with(operation("w", Kind::kAdd, at::ones({4, 2}, at::kDouble)), {at::ones({4, 2}, at::kDouble)}),
              ThrowsCode(ErrorCode::kInvalidArgument, "Float", "Double"));
  EXPECT_THAT(with(operation("w", Kind::kAddRows, rows), {ids, rows}), ThrowsCode(ErrorCode::kOutOfRange, "row 4", "0 to 3"));
  EXPECT_THAT(with(operation("w", Kind::kGradientRows, rows), {at::tensor({-1, 1}, at::kLong), rows}),
              ThrowsCode(ErrorCode::kOutOfRange, "row -1"));
  EXPECT_THAT(with(operation("w", Kind::kAddRows, at::ones({2, 3})), {ids, at::ones({2, 3})}),
              ThrowsCode(ErrorCode::kInvalidArgument, "[2, 3]"));
  EXPECT_THAT(with(operation("w", Kind::kAdd, at::ones({4, 2})), {}), ThrowsCode(ErrorCode::kInvalidArgument, "32 bytes"));
  EXPECT_THAT(with(operation("w", static_cast<Kind>(99), rows), {rows}), ThrowsCode(ErrorCode::kInvalidArgument, "99"));
  EXPECT_THAT(with(operation("scalar", Kind::kGradient, at::ones({})), {at::ones({})}),
              ThrowsCode(ErrorCode::kFailedPrecondition, "optimizer"));
  EXPECT_THAT(with(operation("scalar", Kind::kAddRows, at::ones({1})), {at::zeros({1}, at::kLong), at::ones({1})}),
              ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT(with(operation("bools", Kind::kAdd, at::ones({2}, at::kBool)), {at::ones({2}, at::kBool)}),
              ThrowsCode(ErrorCode::kInvalidArgument, "assigned"));
  EXPECT_THAT(with({.name = "w", .kind = Kind::kSetLearningRate, .number = -1}, {}),
              ThrowsCode(ErrorCode::kInvalidArgument, "-1"));
  auto huge = operation("bools", Kind::kUpdateRows, at::ones({1}, at::kBool));
  huge.shape = {1LL << 62};
  EXPECT_THAT(with(huge, {}), ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_TRUE(shop.value("w").equal(at::ones({4, 2})));
  EXPECT_EQ(shop.store.find("w")->version(), 0U);
  EXPECT_EQ(shop.store.statistics().updates, 0U);
  EXPECT_EQ(shop.store.statistics().requests, 0U);
}

TEST(VariableStore, ReadsManyOrPartsOrOnlyWhatIsNewer) {
  Shop shop;
  shop.create("a", at::arange(6, at::kFloat));
  shop.create("b", at::ones({2}));
  shop.change("b", Kind::kAdd, at::ones({2}));
  const ReadRequest request{
      {{"a", std::pair<std::uint64_t, std::uint64_t>(8, 12)}, {"b", std::nullopt, 1}, {"b", std::nullopt, 0}}};
  const auto answer = shop.methods.call(methods::kRead, {to_bytes(request)});
  const auto fields = from_bytes<ReadReply>(answer->fields());
  EXPECT_THAT(fields.versions, ElementsAre(0, 1, 1));
  EXPECT_THAT(fields.is_newer, ElementsAre(true, false, true));
  EXPECT_EQ(answer->left(), 20U);
  EXPECT_TRUE(read_tensor(*answer, {5}).equal(at::tensor({2.0F, 3.0F, 4.0F, 2.0F, 2.0F})));
  const auto read = [&](Reading reading) {
    return [&shop, reading] { shop.methods.call<ReadReply>(methods::kRead, ReadRequest{{reading}}); };
  };
  EXPECT_THAT(read({"c"}), ThrowsCode(ErrorCode::kNotFound, "'c'"));
  EXPECT_THAT(read({"a", std::nullopt, std::nullopt, std::pair(std::int8_t{6}, std::vector<std::int64_t>{2, 3})}),
              ThrowsCode(ErrorCode::kInvalidArgument, "'a'", "[6]", "[2, 3]"));
  EXPECT_THAT(read({"a", std::pair<std::uint64_t, std::uint64_t>(8, 17)}),
              ThrowsCode(ErrorCode::kOutOfRange, "17 bytes", "it has 24"));
  EXPECT_THAT(read({"a", std::pair<std::uint64_t, std::uint64_t>(~0ULL, 2)}), ThrowsCode(ErrorCode::kOutOfRange));
  shop.create({.name = "large", .dtype = 6, .shape = {5 << 20}, .whole_shape = {5 << 20}, .initial = {Initial::Kind::kZeros}});
  EXPECT_THAT(read({"large"}), ThrowsCode(ErrorCode::kInvalidArgument, "in pieces"));
}

TEST(VariableStore, ReadsRowsOfSeveralTables) {
  Shop shop;
  shop.create("a", at::arange(20, at::kFloat).reshape({10, 2}));
  shop.create("b", at::arange(5, at::kLong));
  Outgoing request{to_bytes(ReadRowsRequest{{{"a", 3}, {"b", 1}}}), {piece_of(at::tensor({9, 0, 9, 4}, at::kLong))}};
  const auto answer = shop.methods.call(methods::kReadRows, request);
  EXPECT_TRUE(read_tensor(*answer, {3, 2}).equal(at::tensor({18.0F, 19.0F, 0.0F, 1.0F, 18.0F, 19.0F}).reshape({3, 2})));
  EXPECT_EQ(read_tensor(*answer, {1}, at::kLong).item<std::int64_t>(), 4);
  const auto rows = [&](std::int64_t row) {
    shop.methods.call(methods::kReadRows, {to_bytes(ReadRowsRequest{{{"a", 1}}}), {piece_of(at::tensor({row}, at::kLong))}});
  };
  EXPECT_THAT([&] { rows(10); }, ThrowsCode(ErrorCode::kOutOfRange, "'a'", "row 10", "0 to 9"));
  for (const auto count : {~0ULL, 1ULL << 61}) {  // eight times that is 0
    request.fields = to_bytes(ReadRowsRequest{{{"a", count}}});
    EXPECT_THAT([&] { shop.methods.call(methods::kReadRows, request); }, ThrowsCode(ErrorCode::kInvalidArgument, "rows"));
    request.payload.clear();
  }
}

TEST(VariableStore, ARepeatedRequestIsDoneOnce) {
  Shop shop;
  shop.create("w", at::zeros({2}));
  const UpdateRequest request{shop.next(), {operation("w", Kind::kAdd, at::ones({2}))}};
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(shop.methods.call<UpdateReply>(methods::kUpdate, request, {at::ones({2})}).versions, ElementsAre(1));
  EXPECT_EQ(shop.value("w")[0].item<float>(), 1);
  EXPECT_EQ(shop.store.client_state(7).last_done, 2U);
  const UpdateRequest bad{shop.next(), {operation("x", Kind::kAdd, at::ones({2}))}};
  const auto repeat = [&] { shop.methods.call<UpdateReply>(methods::kUpdate, bad, {at::ones({2})}); };
  EXPECT_THAT(repeat, ThrowsCode(ErrorCode::kNotFound));
  shop.create("x", at::zeros({2}));  // the client knows that it was refused: it must not be done later
  EXPECT_THAT(repeat, ThrowsCode(ErrorCode::kFailedPrecondition, "late"));
  EXPECT_EQ(shop.store.find("x")->version(), 0U);
  EXPECT_EQ(shop.store.client_state(7).last_done, 4U);
}

TEST(VariableStore, UpdatesOfSeveralThreadsAddUp) {
  Shop shop;
  shop.create("t", at::zeros({100, 3}));
  constexpr int kThreads = 4;
  constexpr int kUpdates = 500;
  on_threads(kThreads, [&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    for (int i = 1; i <= kUpdates; ++i) {
      const auto rows = at::ones({2, 3});
      const UpdateRequest request{
          {static_cast<std::uint64_t>(thread) + 100, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(i)},
          {operation("t", Kind::kAddRows, rows)}};
      const auto ids =
          at::tensor({static_cast<std::int64_t>(random() % 100), static_cast<std::int64_t>(random() % 100)}, at::kLong);
      shop.methods.call<UpdateReply>(methods::kUpdate, request, {ids, rows});
    }
  });
  EXPECT_EQ(shop.value("t").sum().item<double>(), kThreads * kUpdates * 6.0);
  EXPECT_EQ(shop.store.find("t")->version(), static_cast<std::uint64_t>(kThreads * kUpdates));
}

TEST(VariableStore, TakesWhatComesInPieces) {
  Shop shop;
  const auto value = at::arange(1000, at::kFloat);
  const auto stage = [&](const Sender& sender, std::uint32_t part, const at::Tensor& all, std::int64_t first,
                         std::int64_t count) {
    shop.methods.call(methods::kStage,
                      {to_bytes(StageRequest{sender, part, all.nbytes(), static_cast<std::uint64_t>(first) * 4}),
                       {piece_of(all.narrow(0, first, count))}});
  };
  const auto sender = shop.next();
  const CreateRequest create{sender, describe("w", value), true};
  stage(sender, 0, value, 500, 500);
  EXPECT_THAT([&] { shop.methods.call<CreateReply>(methods::kCreate, create); },
              ThrowsCode(ErrorCode::kAborted, "bytes from 0 on"));
  stage(sender, 0, value, 0, 600);
  EXPECT_EQ(shop.store.statistics().staged_bytes, 4000U);
  EXPECT_TRUE(shop.methods.call<CreateReply>(methods::kCreate, create).is_new);
  stage(sender, 0, value, 0, 600);  // late
  EXPECT_EQ(shop.store.statistics().staged_bytes, 0U);
  EXPECT_TRUE(shop.value("w").equal(value));

  const auto next = shop.next();
  auto staged = operation("w", Kind::kAdd, value);
  staged.is_staged = true;
  stage(next, 1, value, 0, 1000);
  const UpdateRequest update{next, {operation("w", Kind::kAdd, value), staged}};
  EXPECT_THAT(shop.methods.call<UpdateReply>(methods::kUpdate, update, {value}).versions, ElementsAre(1, 2));
  EXPECT_TRUE(shop.value("w").equal(value * 3));
  EXPECT_THAT([&] { stage(shop.next(), 0, at::empty({0}), 0, 0); }, ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(VariableStore, SaysWhenThereIsNoMemoryAndGoesOn) {
  Shop shop({.rules = plain_rule, .most_bytes = 10'000});
  shop.create("w", at::zeros({1000}));
  const auto huge = [&](std::int64_t rows) {
    return [&shop, rows] {
      shop.create({.name = "huge", .dtype = 6, .shape = {rows}, .whole_shape = {rows}, .initial = {Initial::Kind::kZeros}});
    };
  };
  EXPECT_THAT(huge(2000), ThrowsCode(ErrorCode::kFailedPrecondition, "out of memory", "8000", "'huge'"));
  EXPECT_THAT(huge(1LL << 45), ThrowsCode(ErrorCode::kFailedPrecondition, "out of memory"));
  EXPECT_THAT(
      [&] {
        shop.methods.call(methods::kStage, {to_bytes(StageRequest{shop.next(), 0, 8000, 0}), {piece_of(at::zeros({10}))}});
      },
      ThrowsCode(ErrorCode::kUnavailable, "out of memory"));
  shop.methods.call(methods::kRemove, {to_bytes(RemoveRequest{shop.next(), {"w"}})});
  EXPECT_TRUE(
      shop.create({.name = "huge", .dtype = 6, .shape = {2000}, .whole_shape = {2000}, .initial = {Initial::Kind::kZeros}})
          .is_new);
  Shop unlimited;
  EXPECT_THAT(
      [&] {
        unlimited.create(
            {.name = "huge", .dtype = 6, .shape = {1LL << 45}, .whole_shape = {1LL << 45}, .initial = {Initial::Kind::kZeros}});
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "out of memory"));
}

TEST(VariableStore, ForgetsPiecesThatNobodyGoesOnWithWhereMemoryIsShort) {
  const Description wanted{.name = "w", .dtype = 6, .shape = {1500}, .whole_shape = {1500}, .initial = {Initial::Kind::kZeros}};
  for (const bool is_idle : {false, true}) {
    Shop shop({.most_bytes = 10'000, .pieces_idle = is_idle ? std::chrono::seconds(0) : std::chrono::seconds(600)});
    const Sender begun{9, 1, 1};
    shop.methods.call(methods::kStage, {to_bytes(StageRequest{begun, 0, 8000, 0}), {piece_of(at::zeros({10}))}});
    const auto create = [&] { shop.create(wanted); };
    if (!is_idle) {
      EXPECT_THAT(create, ThrowsCode(ErrorCode::kFailedPrecondition, "out of memory"));
      continue;
    }
    create();
    EXPECT_EQ(shop.store.statistics().staged_bytes, 0U);
    const CreateRequest late{begun, {.name = "late", .dtype = 6, .shape = {2000}, .whole_shape = {2000}}, true};
    EXPECT_THAT([&] { shop.methods.call(methods::kCreate, {to_bytes(late)}); }, ThrowsCode(ErrorCode::kAborted, "again"));
  }
}

TEST(VariableStore, RemovesAndDescribes) {
  Shop shop;
  shop.create("b", at::ones({2, 2}), "0.5");
  shop.create("a", at::ones({3}, at::kInt));
  shop.change("b", Kind::kGradient, at::ones({2, 2}));
  const auto all = from_bytes<DescribeReply>(shop.methods.call(methods::kDescribe, {})->fields()).variables;
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].description.name, "a");
  EXPECT_EQ(all[1].description, describe("b", at::ones({2, 2}), "0.5"));
  EXPECT_EQ(all[1].bytes, 16U);
  EXPECT_EQ(all[1].version, 1U);
  EXPECT_THAT(
      [&] {
        shop.methods.call(methods::kRemove, {to_bytes(RemoveRequest{shop.next(), {"a", "c"}})});
      },
      ThrowsCode(ErrorCode::kNotFound, "'c'"));
  shop.methods.call(methods::kRemove, {to_bytes(RemoveRequest{shop.next(), {"a"}})});
  const auto statistics = from_bytes<StoreStatistics>(shop.methods.call(methods::kStatistics, {})->fields());
  EXPECT_EQ(statistics.variables, 1U);
  EXPECT_EQ(statistics.bytes, 16U);
  EXPECT_EQ(statistics.updates, 1U);
  EXPECT_EQ(statistics.clients, 1U);
}

// Whatever comes: a typed error, or an answer.
TEST(VariableStore, TakesAnyRequest) {
  Shop shop({.rules = plain_rule, .most_bytes = 1 << 20});
  shop.create("w", at::ones({4, 2}), "0.5");
  std::mt19937_64 random(5);
  std::uint64_t number = 1'000;
  for (int round = 0; round < 20'000; ++round) {
    auto update = UpdateRequest{{7, ++number, number}, {operation("w", static_cast<Kind>(random() % 13), at::ones({2, 2}))}};
    auto create = CreateRequest{{7, ++number, number}, describe(str("v", random() % 9), at::ones({2, 2}), "0.5")};
    create.description.initial.kind = static_cast<Initial::Kind>(random() % 4);
    const std::vector<std::pair<const char*, std::string>> requests = {
        {methods::kUpdate, to_bytes(update)},
        {methods::kCreate, to_bytes(create)},
        {methods::kStage, to_bytes(StageRequest{{7, number + random() % 3, 0}, 0, 32, 0})},
        {methods::kRead, to_bytes(ReadRequest{{{"w", std::pair<std::uint64_t, std::uint64_t>(4, 8), 3}}})},
        {methods::kReadRows, to_bytes(ReadRowsRequest{{{"w", 2}}})},
        {methods::kRemove, to_bytes(RemoveRequest{{7, ++number, number}, {"v1"}})}};
    auto [method, bytes] = requests[random() % requests.size()];
    for (auto changes = random() % 3; changes > 0; --changes) bytes[random() % bytes.size()] = static_cast<char>(random() % 5);
    const auto payload = at::randint(-1, 5, {static_cast<std::int64_t>(random() % 5)}, at::kLong);
    try {
      shop.methods.call(method, {bytes, {piece_of(payload)}});
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::ps
