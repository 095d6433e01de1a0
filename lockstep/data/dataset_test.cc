#include "lockstep/data/dataset.h"

#include <algorithm>
#include <latch>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>

#include "lockstep/data/parse_example.h"
#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using testing::batches;
using testing::code_of;
using testing::Ints;
using testing::ints;
using testing::numbers;
using testing::text_of;
using testing::values;
using testing::vector;

Dataset generated(std::vector<Ints> elements) {
  return Dataset::from_generator([elements] {
    return [elements, next = std::size_t{0}]() mutable -> std::optional<Element> {
      if (next == elements.size()) return std::nullopt;
      return Element(vector(elements[next++]));
    };
  });
}

TEST(Dataset, RangeCountsLikePython) {
  EXPECT_EQ(values(Dataset::range(5)), numbers(5));
  EXPECT_EQ(values(Dataset::range(1, 7, 3)), (Ints{1, 4}));
  EXPECT_EQ(values(Dataset::range(7, 1, -3)), (Ints{7, 4}));
  EXPECT_EQ(Dataset::range(-3).cardinality(), 0);
  EXPECT_EQ(values(Dataset::range(5, 2)), Ints{});
  EXPECT_EQ(Dataset::range(7, 1, -3).cardinality(), 2);
  EXPECT_EQ(code_of([] { Dataset::range(1, 7, 0); }), ErrorCode::kInvalidArgument);
  const auto first = Dataset::range(3).make_iterator().next();
  EXPECT_EQ((*first)[0].dim(), 0);
  EXPECT_EQ((*first)[0].scalar_type(), at::kLong);
}

TEST(Dataset, FromTensorSlicesGivesRows) {
  const auto x = at::arange(6, at::kFloat).view({3, 2});
  const auto dataset = Dataset::from_tensor_slices({x, vector({7, 8, 9})});
  EXPECT_EQ(dataset.cardinality(), 3);
  std::int64_t row = 0;
  for (const auto& element : dataset) {
    EXPECT_TRUE(element[0].equal(x[row]));
    EXPECT_EQ(element[1].item<std::int64_t>(), 7 + row);
    ++row;
  }
  EXPECT_EQ(row, 3);
  const auto named = Dataset::from_tensor_slices({{"x", x}, {"y", vector({7, 8, 9})}}).batch(2);
  EXPECT_EQ(ints(named.make_iterator().next()->at("y")), (Ints{7, 8}));
  EXPECT_EQ(values(Dataset::from_tensor_slices(x.t())), (Ints{0, 2, 4, 1, 3, 5}));  // not contiguous
}

TEST(Dataset, FromTensorSlicesRefusesWhatHasNoCommonRows) {
  EXPECT_EQ(code_of([] { Dataset::from_tensor_slices(Element()); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::from_tensor_slices(at::scalar_tensor(3)); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::from_tensor_slices({vector({1, 2}), vector({1})}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::from_tensor_slices(at::Tensor()); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(values(Dataset::from_tensor_slices(at::empty({0, 4}))), Ints{});
}

TEST(Dataset, ElementsAreCopiesOfTheSource) {
  const auto x = vector({1, 2, 3});
  for (const auto& dataset :
       {Dataset::from_tensors(x), Dataset::from_tensor_slices(x), Dataset::from_tensor_slices(x).batch(2)})
    for (auto element : dataset) element.components()[0].tensor().fill_(100);
  EXPECT_EQ(ints(x), (Ints{1, 2, 3}));
}

// Memory that nobody holds is used again; what somebody holds is not touched.
TEST(Dataset, ElementsThatAreKeptStayWhatTheyAre) {
  std::vector<at::Tensor> kept, views;
  const auto keep = [&](at::Tensor x) {
    if (x.item<std::int64_t>() % 2 == 0) kept.push_back(x);
    else views.push_back(x.view({1}));
    return x;
  };
  EXPECT_EQ(testing::values(Dataset::range(6).map(keep)), (Ints{0, 1, 2, 3, 4, 5}));
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(kept[static_cast<std::size_t>(i)].item<std::int64_t>(), 2 * i);
    EXPECT_EQ(views[static_cast<std::size_t>(i)].item<std::int64_t>(), 2 * i + 1);
  }
  std::vector<Element> all;
  auto iterator = Dataset::range(3).make_iterator();
  for (Element element; iterator.next(element);) all.push_back(element);
  EXPECT_EQ(ints(all[0][0]), (Ints{0}));
  EXPECT_EQ(ints(all[2][0]), (Ints{2}));
}

TEST(Dataset, TensorsAreWhatTheyAreReadAs) {
  const auto numbers = at::complex(at::arange(3, at::kFloat), at::ones({3}));
  const auto conjugated = *Dataset::from_tensor_slices(numbers.conj()).batch(3).make_iterator().next();
  EXPECT_TRUE(at::equal(conjugated[0], numbers.conj().resolve_conj()));
}

TEST(Dataset, WindowsThatOverlapDoNotShareMemory) {
  const auto windows = Dataset::range(5).window(
      3, [](const Dataset& window) { return window.map([](at::Tensor x) { return x.add_(10); }).batch(3); }, 1, 1, true);
  EXPECT_EQ(batches(windows), (std::vector<Ints>{{10, 11, 12}, {11, 12, 13}, {12, 13, 14}}));
}

TEST(Dataset, RowsDoNotKeepTheirBatch) {
  const auto row = *Dataset::from_tensors(Element(at::ones({100, 8}))).unbatch().make_iterator().next();
  EXPECT_EQ(row[0].storage().nbytes(), 8 * sizeof(float));
}

TEST(Dataset, RefusesByteStringsWithoutTheirSizes) {
  const Bytes wrong{{"a", "b"}, {}};
  EXPECT_EQ(code_of([&] { decode_raw(wrong, at::kByte, {1}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { ExampleParser({Feature::int64("x")})(wrong); }), ErrorCode::kInvalidArgument);
  const auto bad = [](at::Tensor) { return Element(std::vector<Component>{{"", Bytes{{"a"}, {1000}}}}); };
  EXPECT_EQ(code_of([&] { values(Dataset::range(2).map(bad).unbatch()); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { values(Dataset::range(2).map(bad).batch(2)); }), ErrorCode::kInvalidArgument);
  const auto nothing = [](at::Tensor) { return at::Tensor(); };
  EXPECT_EQ(code_of([&] { values(Dataset::range(2).map(nothing)); }), ErrorCode::kInvalidArgument);
}

TEST(Dataset, FromTensorsIsOneElement) {
  const auto dataset = Dataset::from_tensors(vector({1, 2, 3}));
  EXPECT_EQ(batches(dataset), (std::vector<Ints>{{1, 2, 3}}));
  EXPECT_EQ(dataset.cardinality(), 1);
  EXPECT_EQ(batches(dataset.repeat(2)), (std::vector<Ints>{{1, 2, 3}, {1, 2, 3}}));
  EXPECT_EQ(code_of([] { Dataset::from_tensors(Element()); }), ErrorCode::kInvalidArgument);
}

TEST(Dataset, GeneratorRestartsInEachPass) {
  const auto dataset = generated({{1}, {2, 3}});
  EXPECT_EQ(dataset.cardinality(), kUnknown);
  EXPECT_EQ(values(dataset.repeat(2)), (Ints{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(code_of([] { Dataset::from_generator(nullptr); }), ErrorCode::kInvalidArgument);
}

TEST(Dataset, MapTakesAndReturnsManyForms) {
  const auto range = Dataset::range(3);
  EXPECT_EQ(values(range.map([](at::Tensor x) { return x * 2; })), (Ints{0, 2, 4}));
  EXPECT_EQ(values(range.map([](const Element& e) { return Element(e[0] + 1); })), (Ints{1, 2, 3}));
  const auto pair = range.map([](at::Tensor x) { return std::pair(x, -x); });
  EXPECT_EQ(ints((*pair.skip(1).make_iterator().next())[1]), (Ints{-1}));
  EXPECT_EQ(values(pair.map([](at::Tensor x, at::Tensor y) { return std::tuple(x + y, x, y); })), (Ints{0, 0, 0}));
  EXPECT_EQ(values(pair.map([](at::Tensor x, at::Tensor y) { return std::vector<at::Tensor>{x, y}; })), numbers(3));
  const auto named = range.map([](at::Tensor x) { return std::map<std::string, at::Tensor>{{"b", x}, {"a", -x}}; });
  EXPECT_EQ(named.make_iterator().next()->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(code_of([&] { values(pair.map([](at::Tensor x) { return x; })); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(range.map([](at::Tensor x) { return x; }).cardinality(), 3);
}

// Each waits for the other: only two at once go on.
TEST(Dataset, MapAndInterleaveRunSeveralFunctionsAtOnce) {
  const auto meets = [](std::latch& both, at::Tensor x) {
    both.arrive_and_wait();
    return x;
  };
  std::latch maps(2);
  EXPECT_EQ(values(Dataset::range(2).map([&](at::Tensor x) { return meets(maps, x); }, 2)), (Ints{0, 1}));
  std::latch lanes(2);
  const auto lane = [&](const Element& element) {
    const auto first = element[0].item<std::int64_t>();
    return Dataset::range(10 * first, 10 * first + 3).map([&lanes](at::Tensor x) {
      if (x.item<std::int64_t>() % 10 == 1) lanes.arrive_and_wait();
      return x;
    });
  };
  EXPECT_EQ(values(Dataset::range(2).interleave(lane, 2, 1, 2)), (Ints{0, 10, 1, 11, 2, 12}));
  EXPECT_EQ(code_of([&] { Dataset::range(2).interleave(lane, 2, 1, 0); }), ErrorCode::kInvalidArgument);
}

TEST(Dataset, MapInAnyOrderGivesEverythingOnce) {
  auto all = values(Dataset::range(500).map([](at::Tensor x) { return x; }, 3, /*is_ordered=*/false));
  std::ranges::sort(all);
  EXPECT_EQ(all, numbers(500));
}

TEST(Dataset, FilterKeepsWhatIsTrue) {
  const auto even = Dataset::range(6).filter([](at::Tensor x) { return x.item<std::int64_t>() % 2 == 0; });
  EXPECT_EQ(values(even), (Ints{0, 2, 4}));
  EXPECT_EQ(even.cardinality(), kUnknown);
  EXPECT_EQ(values(Dataset::range(6).filter([](at::Tensor x) { return x < 2; })), (Ints{0, 1}));
  const auto bad = Dataset::range(6).batch(2).filter([](at::Tensor x) { return x < 2; });
  EXPECT_EQ(code_of([&] { values(bad); }), ErrorCode::kInvalidArgument);
}

TEST(Dataset, FlatMapJoinsDatasets) {
  const auto dataset = Dataset::range(1, 4).flat_map([](at::Tensor x) { return Dataset::range(x.item<std::int64_t>()); });
  EXPECT_EQ(values(dataset), (Ints{0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(dataset.cardinality(), kUnknown);
}

TEST(Dataset, ConcatenateNeedsOneStructure) {
  EXPECT_EQ(values(Dataset::range(2).concatenate(Dataset::range(7, 9))), (Ints{0, 1, 7, 8}));
  const auto floats = Dataset::from_tensor_slices(at::zeros({1}));
  EXPECT_EQ(code_of([&] { Dataset::range(2).concatenate(floats); }), ErrorCode::kInvalidArgument);
  const auto late = Dataset::range(2).concatenate(Dataset::range(2).map([](at::Tensor x) { return x.to(at::kFloat); }));
  EXPECT_EQ(code_of([&] { values(late); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(values(Dataset::range(0).concatenate(Dataset::range(2))), (Ints{0, 1}));
}

TEST(Dataset, ZipEndsWithTheShortest) {
  const auto dataset = Dataset::zip({Dataset::range(15), Dataset::range(100, 102), Dataset::range(3).repeat()});
  EXPECT_EQ(dataset.cardinality(), 2);
  EXPECT_EQ(values(dataset), (Ints{0, 1}));
  EXPECT_EQ(dataset.make_iterator().next()->size(), 3u);
  EXPECT_EQ(code_of([] { Dataset::zip({}); }), ErrorCode::kInvalidArgument);
}

TEST(Dataset, TakeSkipRepeat) {
  const auto range = Dataset::range(5);
  EXPECT_EQ(values(range.take(-1)), numbers(5));
  EXPECT_EQ(values(range.take(0)), Ints{});
  EXPECT_EQ(values(range.take(20)), numbers(5));
  EXPECT_EQ(code_of([&] { range.take(-2); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(values(range.skip(3)), (Ints{3, 4}));
  EXPECT_EQ(values(range.skip(20)), Ints{});
  EXPECT_EQ(values(range.skip(-1)), Ints{});
  EXPECT_EQ(values(range.take(2).repeat(2)), (Ints{0, 1, 0, 1}));
  EXPECT_EQ(values(range.repeat(0)), Ints{});
  EXPECT_EQ(values(range.take(2).repeat().take(5)), (Ints{0, 1, 0, 1, 0}));
  EXPECT_EQ(values(Dataset::range(0).repeat()), Ints{});
  EXPECT_EQ(values(generated({}).repeat()), Ints{});
  EXPECT_EQ(values(generated({{1}, {2}}).repeat().skip(1).take(2)), (Ints{2, 1}));
}

TEST(Dataset, CardinalityFollowsTheOperations) {
  const auto range = Dataset::range(5);
  const auto forever = range.repeat();
  EXPECT_EQ(forever.cardinality(), kInfinite);
  EXPECT_EQ(forever.take(7).cardinality(), 7);
  EXPECT_EQ(forever.skip(2).cardinality(), kInfinite);
  EXPECT_EQ(forever.batch(2).cardinality(), kInfinite);
  EXPECT_EQ(range.concatenate(forever).cardinality(), kInfinite);
  EXPECT_EQ(range.concatenate(generated({})).cardinality(), kUnknown);
  EXPECT_EQ(range.take(9).skip(2).repeat(3).cardinality(), 9);
  EXPECT_EQ(range.repeat(0).cardinality(), 0);
  EXPECT_EQ(Dataset::range(0).repeat().cardinality(), 0);
  EXPECT_EQ(range.skip(-1).cardinality(), 0);
  EXPECT_EQ(generated({}).take(3).cardinality(), kUnknown);
  EXPECT_EQ(generated({}).take(0).cardinality(), 0);
  EXPECT_EQ(range.batch(2).cardinality(), 3);
  EXPECT_EQ(range.batch(2, true).cardinality(), 2);
  EXPECT_EQ(range.shuffle(3).prefetch(1).with_options({}).cardinality(), 5);
}

TEST(Dataset, CardinalityDoesNotOverflow) {
  const auto most = std::numeric_limits<std::int64_t>::max();
  const auto large = Dataset::range(std::int64_t{1} << 62);
  EXPECT_EQ(large.repeat(3).cardinality(), most);
  EXPECT_EQ(large.repeat(4).cardinality(), most);
  EXPECT_EQ(large.concatenate(large).concatenate(large).cardinality(), most);
}

TEST(Dataset, InfersTheBatchSize) {
  const auto size = [](const Dataset& dataset) { return dataset.static_shape().batch_size(); };
  const auto identity = [](at::Tensor x) { return x; };
  const auto range = Dataset::range(32);
  EXPECT_EQ(size(range), std::nullopt);
  EXPECT_EQ(size(range.batch(4).take(5).skip(1).repeat().shuffle(3).prefetch(2)), 4);
  EXPECT_EQ(size(range.batch(4).map(identity)), std::nullopt);
  EXPECT_EQ(size(range.batch(4, true).map(identity)), 4);
  EXPECT_EQ(size(range.filter([](at::Tensor) { return true; }).batch(4)), 4);
  EXPECT_EQ(size(range.batch(4).filter([](at::Tensor) { return true; })), std::nullopt);
  EXPECT_EQ(size(Dataset::zip({range.batch(4), range.batch(8)})), std::nullopt);
  EXPECT_EQ(size(Dataset::zip({range.batch(4), range.batch(4)})), 4);
  EXPECT_EQ(size(range.batch(7).concatenate(range.batch(7))), std::nullopt);
  EXPECT_EQ(size(Dataset::from_tensors(at::zeros({6, 2}))), 6);
  EXPECT_EQ(size(Dataset::from_tensor_slices(at::zeros({6, 2}))), 2);
  EXPECT_EQ(size(generated({{1}})), std::nullopt);
  EXPECT_TRUE(range.batch(4, true).static_shape().is_fixed);
  EXPECT_FALSE(range.batch(4).static_shape().is_fixed);
}

TEST(Dataset, OptionsNearestToTheEndHold) {
  EXPECT_EQ(Dataset::range(3).options().auto_shard_policy, AutoShardPolicy::kAuto);
  const auto off = Dataset::range(3).with_options({.auto_shard_policy = AutoShardPolicy::kOff}).batch(2);
  EXPECT_EQ(off.options().auto_shard_policy, AutoShardPolicy::kOff);
  EXPECT_EQ(off.with_options({.auto_shard_policy = AutoShardPolicy::kData}).options().auto_shard_policy,
            AutoShardPolicy::kData);
  EXPECT_EQ(values(off), numbers(3));
}

TEST(Dataset, PrintsItselfAsATree) {
  std::ostringstream out;
  out << Dataset::zip({Dataset::range(3).shuffle(2, 7), Dataset::range(1, 4)}).batch(2, true);
  EXPECT_EQ(out.str(), "Batch(2, drop_remainder)\n  Zip()\n    Shuffle(2, seed 7)\n      Range(0, 3, 1)\n    Range(1, 4, 1)\n");
}

TEST(Dataset, ErrorsOfUserFunctionsReachTheCaller) {
  const auto dataset = Dataset::range(3).map([](at::Tensor x) -> at::Tensor {
    if (x.item<std::int64_t>() == 1) throw std::out_of_range("mine");
    return x;
  });
  auto iterator = dataset.make_iterator();
  EXPECT_TRUE(iterator.next().has_value());
  EXPECT_THROW(iterator.next(), std::out_of_range);
}

TEST(Iterator, AfterAnErrorGivesTheSameErrorAgain) {
  const auto dataset = Dataset::range(3).map([](const at::Tensor& x) {
    if (x.item<std::int64_t>() == 1) throw std::runtime_error("bad row");
    return x;
  });
  auto iterator = dataset.make_iterator();
  EXPECT_TRUE(iterator.next());
  for (int k = 0; k < 2; ++k)
    EXPECT_THAT([&] { iterator.next(); }, ::testing::ThrowsMessage<std::runtime_error>(::testing::HasSubstr("bad row")));
}

}  // namespace
}  // namespace lockstep::data
