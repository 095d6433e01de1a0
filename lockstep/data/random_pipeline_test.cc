#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <random>

#include "lockstep/data/steps.h"
#include "tests/support/data_testing.h"
#include "tests/support/scratch_folder.h"

// Pipelines put together at random, by seed: what must hold for all.

namespace lockstep::data {
namespace {

using testing::Ints;
using testing::ints;
using Draw = std::mt19937;

constexpr std::uint32_t kPipelines = 1000;
constexpr std::int64_t kMostElements = 120;

std::int64_t between(Draw& draw, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(draw() % static_cast<std::uint32_t>(high - low + 1));
}

// "0" to "39", a line each.
const std::string& lines_file() {
  static const lockstep::testing::ScratchFolder folder;
  static const std::string file = [] {
    std::string text;
    for (int i = 0; i < 40; ++i) text += std::to_string(i) + "\n";
    return folder.write("lines.txt", text);
  }();
  return file;
}

at::Tensor to_numbers(const Bytes& lines) {
  auto numbers = at::empty(lines.sizes, at::kLong);
  std::ranges::transform(lines.values, numbers.data_ptr<std::int64_t>(),
                         [](const std::string& line) { return std::stoll(line); });
  return numbers;
}

Dataset make_source(Draw& draw) {
  const auto count = between(draw, 0, 40);
  switch (draw() % 6) {
    case 0: return Dataset::range(count);
    case 1: return Dataset::from_tensor_slices(at::arange(count) * 3);
    case 2: return Dataset::range(count, 0, -2);
    case 3:
      return Dataset::text_lines({lines_file()})
          .skip(5)
          .take(count)
          .shuffle(4, count)
          .repeat(2)
          .batch(3)
          .map(to_numbers)
          .unbatch();
    case 4: return Dataset::text_lines({lines_file()}).shard(2, 1).take(count).map(to_numbers);
    default:
      return Dataset::from_generator([count] {
        return [count, next = std::int64_t{0}]() mutable -> std::optional<Element> {
          if (next == count) return std::nullopt;
          return Element(at::scalar_tensor(7 * next++, at::kLong));
        };
      });
  }
}

at::Tensor sum_of(const Element& element) {
  auto sum = at::zeros({}, at::kLong);
  for (const auto& component : element.components()) sum += component.tensor().sum();
  return sum;
}

bool is_even(const Element& element) { return sum_of(element).item<std::int64_t>() % 2 == 0; }

Dataset some_of(const Element& element) {
  return Dataset::from_tensors(element).repeat(sum_of(element).item<std::int64_t>() % 3);
}

// An operation on single numbers. `parallel`: how many calls at once, where an operation can.
Dataset add_operation(const Dataset& input, Draw& draw, int parallel) {
  const auto size = between(draw, 1, 6);
  const auto seed = draw();
  switch (draw() % 24) {
    case 0: return input.map([](at::Tensor x) { return x + 1; }, parallel);
    case 1: return input.filter(is_even);
    case 2: return input.flat_map(some_of);
    case 3: return input.interleave(some_of, size, between(draw, 1, 3), parallel);
    case 4: return input.shuffle(size * 3, seed);
    case 5: return input.shuffle(size, seed, false).repeat(2);
    case 6: return input.repeat(between(draw, 0, 2));
    case 7: return input.take(size * 5);
    case 8: return input.skip(size);
    case 9: return input.shard(size, size - 1);
    case 10: return input.cache().repeat(2);
    case 11: return input.prefetch(size - 1);
    case 12: return input.concatenate(make_source(draw));
    case 13:
      return Dataset::zip({input, make_source(draw)}).map([](at::Tensor a, at::Tensor b) { return a * 2 + b; }, parallel);
    case 14:
      return input.window(
          size, [](const Dataset& window) { return window.batch(2).unbatch(); }, between(draw, 1, 4));
    case 15:
      return input.scan(Element(at::scalar_tensor(0, at::kLong)), [](const Element& state, const Element& element) {
        const Element next(state[0] + element[0]);
        return std::pair(next, next);
      });
    case 16: return input.unique();
    case 17: return input.take_while([size](at::Tensor x) { return x.item<std::int64_t>() < 10 * size; });
    case 18: return input.enumerate().map([](at::Tensor k, at::Tensor x) { return k + x; }, parallel);
    case 19: return input.padded_batch(size).unbatch();
    case 20:
      return Dataset::choose_from_datasets({input, make_source(draw)},
                                           Dataset::range(60).map([](at::Tensor x) { return x % 2; }));
    case 21: return input.map([](at::Tensor x) { return x; }, parallel).shuffle(size, seed);  // whose elements are kept
    case 22: return input.batch(size).rebatch({between(draw, 1, 5), between(draw, 0, 2)}).unbatch();
    default: return Dataset::sample_from_datasets({input, make_source(draw)}, {0.7, 0.3}, seed);
  }
}

Dataset make_pipeline(std::uint32_t seed, int parallel) {
  Draw draw(seed);
  auto dataset = make_source(draw);
  for (auto left = between(draw, 1, 6); left > 0; --left) dataset = add_operation(dataset, draw, parallel);
  return dataset.take(kMostElements).batch(between(draw, 1, 7));
}

std::vector<Ints> rest_of(Iterator& iterator) {
  std::vector<Ints> rest;
  for (Element element; iterator.next(element);) rest.push_back(ints(element[0]));
  return rest;
}

std::string tree_of(const Dataset& dataset) {
  std::ostringstream text;
  text << dataset;
  return text.str();
}

TEST(RandomPipelines, GiveTheSameAtAnyParallelism) {
  for (std::uint32_t seed = 0; seed < kPipelines; ++seed) {
    const auto expected = testing::batches(make_pipeline(seed, 1));
    for (const int parallel : {2, 5})
      ASSERT_EQ(testing::batches(make_pipeline(seed, parallel)), expected) << "seed " << seed << "\n"
                                                                           << tree_of(make_pipeline(seed, parallel));
  }
}

// Into another pipeline of the same description, as another process would.
TEST(RandomPipelines, GoOnFromAnyPosition) {
  for (std::uint32_t seed = 0; seed < kPipelines; ++seed) {
    const auto dataset = make_pipeline(seed, 1 + static_cast<int>(seed % 3));
    auto whole = make_pipeline(seed, 1).make_iterator();
    const auto expected = rest_of(whole);
    Draw draw(seed + 1);
    const auto stop = static_cast<std::size_t>(between(draw, 0, static_cast<std::int64_t>(expected.size())));
    auto first = dataset.make_iterator();
    std::vector<Ints> seen;
    Element element;
    while (seen.size() < stop && first.next(element)) seen.push_back(ints(element[0]));
    const auto position = first.save();
    const auto other = make_pipeline(seed, 1 + static_cast<int>(seed % 3));
    auto second = other.make_iterator();
    second.restore(position);
    auto joined = seen;
    for (auto& batch : rest_of(second)) joined.push_back(std::move(batch));
    ASSERT_EQ(joined, expected) << "seed " << seed << ", after " << stop << "\n" << tree_of(dataset);
    for (auto& batch : rest_of(first)) seen.push_back(std::move(batch));  // saving changes nothing
    ASSERT_EQ(seen, expected) << "seed " << seed;
    ASSERT_EQ(testing::batches(other), testing::batches(dataset)) << "the next pass; seed " << seed << "\n" << tree_of(dataset);
  }
}

// Over workers and replicas, each with its own copy of the pipeline.
TEST(RandomPipelines, ReachEveryReplicaOnceWhenTheyAreCutByData) {
  for (std::uint32_t seed = 0; seed < kPipelines; ++seed) {
    const auto expected = testing::values(make_pipeline(seed, 1));
    Draw draw(seed + 2);
    const int workers = static_cast<int>(between(draw, 1, 4));
    const int each = static_cast<int>(between(draw, 1, 3));
    std::vector<internal::StepStream> streams;
    for (int worker = 0; worker < workers; ++worker)
      streams.push_back(
          internal::open_split(make_pipeline(seed, 2), {workers * each, worker * each, each}, internal::SplitRule::kBalanced));
    Ints seen;
    for (bool goes_on = true; goes_on;) {
      for (const auto& stream : streams) {
        internal::Step step;
        goes_on = stream->next(step);
        for (const auto& part : step.parts)
          for (const auto value : ints(part[0])) seen.push_back(value);
      }
    }
    ASSERT_EQ(seen, expected) << "seed " << seed << ", " << workers << " workers of " << each;
  }
}

}  // namespace
}  // namespace lockstep::data
