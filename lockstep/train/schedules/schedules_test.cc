#include "lockstep/train/schedules/schedules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/train/schedules/names.h"

namespace lockstep {
namespace {

// What is wrong, or "" when nothing is.
template <typename F>
std::string message_of(F&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.message();
  }
  return "";
}

TEST(LearningRate, IsANumberOrAnythingThatGivesOne) {
  const LearningRate number = 0.25;
  EXPECT_FALSE(number.is_schedule());
  EXPECT_EQ(number.at(1000), 0.25);
  const LearningRate schedule = [](std::int64_t step) { return 1.0 / static_cast<double>(1 + step); };
  EXPECT_TRUE(schedule.is_schedule());
  EXPECT_EQ(schedule.at(3), 0.25);
  const LearningRate decay = schedules::ExponentialDecay({.initial_learning_rate = 1, .decay_steps = 2, .decay_rate = 0.25});
  EXPECT_DOUBLE_EQ(decay.at(1), 0.5);
}

TEST(LearningRate, RefusesWhatIsNoRate) {
  EXPECT_NE(message_of([] { LearningRate(-0.1); }).find("-0.1"), std::string::npos);
  EXPECT_NE(message_of([] { LearningRate(std::numeric_limits<double>::infinity()); }), "");
  const LearningRate bad = [](std::int64_t step) { return step < 2 ? 1.0 : std::nan(""); };
  EXPECT_EQ(bad.at(1), 1.0);
  EXPECT_NE(message_of([&] { bad.at(2); }).find("step 2"), std::string::npos);
  EXPECT_NE(message_of([] { LearningRate rate{LearningRate::Schedule()}; }), "");
}

TEST(Schedules, WarmUpRisesInALineAndThenFollowsTheRate) {
  const auto rate = schedules::warm_up(0.4, 4);
  for (std::int64_t step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(rate.at(step), 0.1 * static_cast<double>(step + 1));
  EXPECT_EQ(rate.at(4), 0.4);
  const auto decaying = schedules::warm_up([](std::int64_t step) { return static_cast<double>(100 - step); }, 10);
  EXPECT_DOUBLE_EQ(decaying.at(4), 96 * 0.5);
  EXPECT_DOUBLE_EQ(decaying.at(20), 80);
  EXPECT_DOUBLE_EQ(linear_scaling(0.1, 8), 0.8);
  EXPECT_NE(message_of([] { linear_scaling(0.1, 0); }), "");
  EXPECT_NE(message_of([] { schedules::warm_up(0.1, 0); }), "");
}

TEST(Schedules, ABoundaryBelongsToTheValueBeforeIt) {
  const schedules::PiecewiseConstantDecay rate({.boundaries = {2, 5}, .values = {1, 0.5, 0.1}});
  EXPECT_EQ(rate(2), 1);
  EXPECT_EQ(rate(3), 0.5);
  EXPECT_EQ(rate(5), 0.5);
  EXPECT_EQ(rate(6), 0.1);
  EXPECT_NE(message_of([] { schedules::PiecewiseConstantDecay({.boundaries = {5, 2}, .values = {1, 2, 3}}); }), "");
  EXPECT_NE(message_of([] { schedules::PiecewiseConstantDecay({.boundaries = {}, .values = {7}}); }), "");
}

TEST(Schedules, BadArgumentsAreNamed) {
  EXPECT_NE(message_of([] { schedules::CosineDecay({.decay_steps = 0}); }).find("CosineDecay: decay_steps is 0"),
            std::string::npos);
  EXPECT_NE(message_of([] { schedules::CosineDecay({.decay_steps = 2, .warmup_steps = -1}); }), "");
  EXPECT_NE(message_of([] { schedules::CosineDecayRestarts({.first_decay_steps = 2, .t_mul = 0}); }), "");
}

TEST(Schedules, HaveNames) {
  using namespace schedules;
  const auto expect_same = [](const LearningRate& a, const LearningRate& b) {
    for (const std::int64_t step : {0, 1, 7, 10, 25, 1000}) EXPECT_EQ(a.at(step), b.at(step)) << step;
  };
  for (const char* name : {"CosineDecay", "cosine_decay"})
    expect_same(schedule_by_name(
                    name, {{"initial_learning_rate", 0.1}, {"decay_steps", 20}, {"warmup_target", 0.5}, {"warmup_steps", 5}}),
                CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 20, .warmup_target = 0.5, .warmup_steps = 5}));
  expect_same(schedule_by_name("exponential_decay",
                               {{"initial_learning_rate", 1}, {"decay_steps", 4}, {"decay_rate", 0.5}, {"staircase", true}}),
              ExponentialDecay({.initial_learning_rate = 1, .decay_steps = 4, .decay_rate = 0.5, .staircase = true}));
  expect_same(schedule_by_name("PiecewiseConstantDecay", {{"boundaries", {7, 10}}, {"values", {1, 0.5, 0.25}}}),
              PiecewiseConstantDecay({.boundaries = {7, 10}, .values = {1, 0.5, 0.25}}));
  expect_same(schedule_by_name("warm_up", {{"rate", 0.1}, {"steps", 8}}), warm_up(0.1, 8));
  for (const auto& name : schedule_names())
    EXPECT_NE(message_of([&] { schedule_by_name(name, {}); }).find("missing '"), std::string::npos) << name;
}

TEST(Schedules, OfferTheNearestNameOfAScheduleAndOfAnArgument) {
  using namespace schedules;
  const auto offers = [](const std::string& name, const Arguments& arguments, const char* words) {
    const auto message = message_of([&] { schedule_by_name(name, arguments); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  offers("cosine_decy", {}, "'cosine_decy' is not a schedule; did you mean 'cosine_decay'?");
  offers("ExponentialDecey", {}, "did you mean 'ExponentialDecay'?");
  offers("cosine_decay", {{"initial_learning_rate", 0.1}, {"decay_step", 20}}, "did you mean 'decay_steps'?");
  offers("polynomial_decay", {{"initial_learning_rate", 0.1}, {"decay_steps", 2.5}}, "2.5 is not a whole number");
  offers("polynomial_decay", {{"initial_learning_rate", {0.1, 0.2}}, {"decay_steps", 2}},
         "must be a finite number, and is a list");
  offers("polynomial_decay", {{"initial_learning_rate", 0.1}, {"decay_steps", 0}}, "decay_steps is 0");
}

TEST(NearestName, OffersWhatWasProbablyMeant) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(nearest_name("accurcy", {"auc", "accuracy", "mse"}), "accuracy");
  EXPECT_EQ(nearest_name("ADAM", {"sgd", "adam"}), "adam");
  EXPECT_EQ(nearest_name("acuracy", {"Accuracy", "accuracy"}), "accuracy");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_NE(unknown_name("a metric", "accurcy", {"auc", "accuracy"}).find("did you mean 'accuracy'?"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
