#include "lockstep/base/trace.h"

#include <algorithm>
#include <set>

#include "lockstep/base/thread.h"
#include "tests/support/testing.h"

namespace lockstep::trace {
namespace {

using lockstep::testing::ThrowsCode;

const ThreadSpans* thread_named(const Recording& recording, const std::string& name) {
  const auto found = std::ranges::find(recording.threads, name, &ThreadSpans::name);
  return found == recording.threads.end() ? nullptr : &*found;
}

TEST(Trace, RecordsSpansOfAllThreadsWithTheirNames) {
  start();
  {
    const Span outer("outer", Category::kCompute, {"bucket", 3}, {"bytes", 4096});
    const Span inner(intern(str("in", "ner")), Category::kWait);
  }
  {
    const auto thread = start_thread("lockstep:r1", [](const std::stop_token&) { const Span span("there", Category::kSync); });
  }
  {
    const auto thread = start_thread("x", [](const std::stop_token&) {
      name_thread("replica 7");
      const Span span("named", Category::kInput);
    });
  }
  const auto recording = stop();
  EXPECT_FALSE(is_on());
  ASSERT_EQ(recording.threads.size(), 3U);
  const auto* main = thread_named(recording, "main");
  ASSERT_NE(main, nullptr);
  ASSERT_EQ(main->spans.size(), 2U);
  const auto& inner = main->spans[0];
  const auto& outer = main->spans[1];
  EXPECT_STREQ(inner.name, "inner");
  EXPECT_STREQ(outer.name, "outer");
  EXPECT_EQ(outer.category, Category::kCompute);
  EXPECT_STREQ(outer.first.name, "bucket");
  EXPECT_EQ(outer.second.value, 4096);
  EXPECT_EQ(inner.first.name, nullptr);
  EXPECT_LE(recording.begin, outer.begin);
  EXPECT_LE(outer.begin, inner.begin);
  EXPECT_LE(inner.begin + inner.duration, outer.begin + outer.duration);
  EXPECT_LE(outer.begin + outer.duration, recording.end);
  ASSERT_NE(thread_named(recording, "lockstep:r1"), nullptr);
  EXPECT_STREQ(thread_named(recording, "lockstep:r1")->spans.at(0).name, "there");
  ASSERT_NE(thread_named(recording, "replica 7"), nullptr);
}

TEST(Trace, NothingIsRecordedWhileItIsOff) {
  { const Span span("before", Category::kOther); }
  auto across = std::make_unique<Span>("across the start", Category::kOther);
  start();
  across.reset();
  auto open = std::make_unique<Span>("across the stop", Category::kOther);
  EXPECT_TRUE(stop().threads.empty());
  start();
  open.reset();
  { const Span span("second", Category::kOther); }
  const auto second = stop();
  ASSERT_EQ(second.threads.size(), 1U);
  ASSERT_EQ(second.threads[0].spans.size(), 1U);
  EXPECT_STREQ(second.threads[0].spans[0].name, "second");
}

TEST(Trace, WhatHasNoRoomIsCounted) {
  start({.spans_per_thread = 3000});
  for (int k = 0; k < 5000; ++k) const Span span("x", Category::kOther, {"k", k});
  const auto recording = stop();
  ASSERT_EQ(recording.threads.size(), 1U);
  ASSERT_EQ(recording.threads[0].spans.size(), 3000U);
  EXPECT_EQ(recording.threads[0].dropped, 2000U);
  for (int k = 0; k < 3000; ++k) EXPECT_EQ(recording.threads[0].spans[static_cast<std::size_t>(k)].first.value, k);
}

TEST(Trace, StoppingWhileThreadsRecordIsSafe) {
  std::atomic<bool> is_over{false};
  std::jthread threads[2];
  for (auto& thread : threads)
    thread = std::jthread([&] {
      while (!is_over) const Span span("busy", Category::kCompute);
    });
  for (int round = 0; round < 50; ++round) {
    start({.spans_per_thread = 1000});
    const auto recording = stop();
    for (const auto& one : recording.threads)
      for (const auto& span : one.spans) {
        EXPECT_STREQ(span.name, "busy");
        EXPECT_GE(span.begin, recording.begin);
      }
  }
  is_over = true;
}

TEST(Trace, OneRecordingAtATime) {
  EXPECT_THAT([] { stop(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "trace::start()"));
  EXPECT_THAT([] { start({.spans_per_thread = 0}); }, ThrowsCode(ErrorCode::kInvalidArgument, "at least 1"));
  start();
  EXPECT_THAT([] { start(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "under way"));
  stop();
}

TEST(Trace, NamesAreKeptOnceAndNotWithoutEnd) {
  EXPECT_EQ(intern("a name"), intern(std::string("a ") + "name"));
  std::set<const char*> different;
  for (int k = 0; k < 10000; ++k) different.insert(intern(str("name ", k)));
  EXPECT_LE(different.size(), 4097U);
  EXPECT_STREQ(intern("one more that is new"), "...");
  EXPECT_STREQ(intern("a name"), "a name");
}

}  // namespace
}  // namespace lockstep::trace
