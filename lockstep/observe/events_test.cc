#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <numeric>

#include "lockstep/data/io/png.h"
#include "lockstep/observe/event_reader.h"
#include "lockstep/observe/event_writer.h"
#include "lockstep/observe/histogram.h"
#include "lockstep/observe/plain_png.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::content_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::ScratchFolder;
using testing::ThrowsCode;

// While it lives, no file may grow beyond `bytes`: a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_ = {};
  void (*handler_)(int) = SIG_DFL;
};

std::vector<Event> all_events(const std::string& path) {
  std::vector<Event> events;
  read_events(path, [&](const Event& event) { events.push_back(event); });
  return events;
}

TEST(EventWriter, WhatWasWrittenIsReadBack) {
  const ScratchFolder scratch;
  const std::vector<std::uint8_t> pixels = {255, 0, 0, 0, 255, 0};
  std::string path;
  {
    EventWriter writer(scratch / "a/b");
    path = writer.path();
    writer.scalar("loss", 0.25, 7);
    writer.scalar("loss", std::numeric_limits<double>::quiet_NaN(), std::int64_t{1} << 40);
    writer.histogram("weights", std::vector<float>{-1, 0, 0, 2.5F}, 3);
    writer.text("note", "**bold** \xe2\x82\xac", 4);
    writer.image("picture", {2, 1, 3, pixels}, -1);
  }
  EXPECT_THAT(path, HasSubstr(str(scratch / "a/b/events.out.tfevents.")));
  const auto events = all_events(path);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.6e9);
  EXPECT_EQ(events[1].values.at(0).tag, "loss");
  EXPECT_EQ(events[1].values.at(0).scalar, 0.25);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_TRUE(std::isnan(events[2].values.at(0).scalar.value()));
  EXPECT_EQ(events[2].step, std::int64_t{1} << 40);
  const auto histogram = events[3].values.at(0).histogram.value();
  EXPECT_EQ(histogram.min, -1);
  EXPECT_EQ(histogram.max, 2.5);
  EXPECT_EQ(histogram.count, 4);
  EXPECT_EQ(histogram.sum, 1.5);
  EXPECT_EQ(histogram.sum_squares, 7.25);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0), 4);
  EXPECT_EQ(events[4].values.at(0).text, "**bold** \xe2\x82\xac");
  EXPECT_EQ(events[5].step, -1);
  EXPECT_THAT(events[5].values.at(0).image.value(), ::testing::StartsWith("\x89PNG"));
}

TEST(EventWriter, FlushMakesEverythingReadableAndTwoWritersHaveTwoFiles) {
  const ScratchFolder scratch;
  EventWriter first(scratch.path(), {.flush_every = std::chrono::hours(1)});
  EventWriter second(scratch.path(), {.flush_every = std::chrono::hours(1)});
  EXPECT_NE(first.path(), second.path());
  testing::on_threads(4, [&](int thread) {
    for (int k = 0; k < 1000; ++k) first.scalar(str("t", thread), k, k);
  });
  EXPECT_TRUE(first.flush());
  EXPECT_EQ(all_events(first.path()).size(), 4001U);
  EXPECT_TRUE(first.flush());
  EXPECT_EQ(all_events(second.path()).size(), 1U);
}

TEST(EventWriter, WhatIsGivenIsSoonInTheFile) {
  const ScratchFolder scratch;
  EventWriter writer(scratch.path(), {.flush_every = std::chrono::milliseconds(20)});
  writer.scalar("x", 1, 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (all_events(writer.path()).size() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(all_events(writer.path()).size(), 2U);
}

TEST(EventWriter, AFolderThatCannotBeMadeIsAnErrorAtOnce) {
  const ScratchFolder scratch;
  const auto file = scratch.write("file", "x");
  EXPECT_THAT([&] { EventWriter writer(file + "/logs"); }, ThrowsCode(ErrorCode::kFailedPrecondition, file));
  EXPECT_THAT([&] { EventWriter writer(file); }, ThrowsCode(ErrorCode::kFailedPrecondition, file));
  EXPECT_THAT([&] { EventWriter writer("/proc/1/logs"); }, ThrowsCode(ErrorCode::kFailedPrecondition, "/proc/1/logs"));
}

TEST(EventWriter, AFullDiskIsAnErrorAtFirstAndAWarningLater) {
  const ScratchFolder scratch;
  {
    const FullDisk full(10);
    EXPECT_THAT([&] { EventWriter writer(scratch.path()); }, ThrowsCode(ErrorCode::kUnavailable, scratch.path()));
  }
  EventWriter writer(scratch.path(), {.flush_every = std::chrono::hours(1)});
  writer.scalar("kept", 1, 1);
  ASSERT_TRUE(writer.flush());
  const LogCapture log;
  {
    const FullDisk full(content_of(writer.path()).size() + 30);
    for (int round = 0; round < 3; ++round) {
      writer.scalar("lost", 2, 2);
      EXPECT_FALSE(writer.flush());
    }
  }
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr(writer.path())));
  writer.scalar("again", 3, 3);
  EXPECT_TRUE(writer.flush());
  std::vector<std::string> tags;
  EXPECT_TRUE(read_events(writer.path(), [&](const Event& event) {
    for (const auto& value : event.values) tags.push_back(value.tag);
  }));
  EXPECT_THAT(tags, ElementsAre("kept", "again"));
}

TEST(EventWriter, AnImageMustHaveItsBytes) {
  const ScratchFolder scratch;
  EventWriter writer(scratch.path());
  const std::vector<std::uint8_t> pixels(12);
  EXPECT_THAT([&] { writer.image("x", {2, 2, 2, pixels}, 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "2 channels"));
  EXPECT_THAT([&] { writer.image("x", {0, 2, 3, {}}, 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "0 x 2"));
  EXPECT_THAT([&] { writer.image("x", {2, 3, 3, pixels}, 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "12 bytes"));
}

TEST(PlainPng, IsReadByTheLibrary) {
  for (const int channels : {1, 3, 4}) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(5 * 3 * channels));
    for (std::size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<std::uint8_t>(k * 37);
    const auto read = data::internal::read_png(internal::plain_png({5, 3, channels, pixels}), 0);
    EXPECT_EQ(read.width, 5);
    EXPECT_EQ(read.height, 3);
    EXPECT_EQ(read.channels, channels);
    EXPECT_EQ(read.bytes, pixels);
  }
}

TEST(Histogram, EveryValueIsBetweenItsLimits) {
  std::vector<double> values = {0, -0.0, 1e-13, -1e-13, 1e-12, -1e-12, 1e19, 1e25, -1e300, 1e300};
  for (double value = 1e-11; value < 1e3; value *= 1.0371) values.insert(values.end(), {value, -value});
  for (const double value : values) {
    const auto one = histogram_of(std::vector<double>{value});
    const auto at = static_cast<std::size_t>(std::ranges::find(one.counts, 1.0) - one.counts.begin());
    ASSERT_LT(at, one.limits.size()) << value;
    EXPECT_LT(value, one.limits[at]);
    if (at > 0) {
      EXPECT_GE(value, one.limits[at - 1]);
    }
  }
  const auto all = histogram_of(values);
  EXPECT_TRUE(std::ranges::is_sorted(all.limits));
  EXPECT_EQ(std::accumulate(all.counts.begin(), all.counts.end(), 0.0), static_cast<double>(values.size()));
}

TEST(Histogram, LeavesOutWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto histogram = histogram_of(std::vector<float>{1, infinity, -infinity, std::nanf("")});
  EXPECT_EQ(histogram.not_finite, 3);
  EXPECT_EQ(histogram.count, 1);
  EXPECT_EQ(histogram.max, 1);
  const auto nothing = histogram_of(std::vector<float>{});
  EXPECT_EQ(nothing.count, 0);
  EXPECT_EQ(nothing.min, 0);
}

TEST(EventReader, ACutOffEndIsTheEndAndADamagedEventIsPassedOver) {
  const ScratchFolder scratch;
  std::string path;
  {
    EventWriter writer(scratch.path());
    path = writer.path();
    for (int k = 0; k < 3; ++k) writer.scalar("x", k, k);
  }
  const auto whole = content_of(path);
  std::size_t last = 0;
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto cut = scratch.write("cut.tfevents.1", whole.substr(0, bytes));
    std::size_t count = 0;
    read_events(cut, [&](const Event&) { ++count; });
    EXPECT_GE(count, last);
    EXPECT_LE(count, 3U);
    last = count;
  }
  EXPECT_EQ(last, 3U);
  auto damaged = whole;
  damaged[damaged.find("scalars")] = 'S';  // within the first of the three
  std::vector<std::int64_t> steps;
  EXPECT_FALSE(read_events(scratch.write("damaged", damaged), [&](const Event& event) { steps.push_back(event.step); }));
  EXPECT_THAT(steps, ElementsAre(0, 1, 2));  // 0 is the first event's
  EXPECT_THAT([&] { read_events(scratch / "none", [](const Event&) {}); }, ThrowsCode(ErrorCode::kNotFound, "none"));
}

}  // namespace
}  // namespace lockstep
