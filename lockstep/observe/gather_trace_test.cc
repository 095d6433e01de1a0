#include "lockstep/observe/gather_trace.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/data/io/png.h"
#include "lockstep/observe/clock_bounds.h"
#include "lockstep/observe/event_reader.h"
#include "lockstep/observe/summary.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"
#include "tests/support/worker_threads.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using testing::content_of;
using testing::ScratchFolder;
using testing::ThrowsCode;
using trace::Category;

trace::Recording recording_at(std::int64_t begin, const char* name) {
  trace::Recording recording{begin, begin + 10'000, {}};
  recording.threads.push_back({"main", 100, {{name, begin + 1000, 2500, Category::kCompute, {"bytes", 4096}}}, 2});
  recording.threads.push_back({"lockstep:r1", 101, {{"wait", begin + 2000, 10, Category::kWait}}, 0});
  return recording;
}

// The rules of Chrome's trace format that viewers rely on.
void expect_valid(const Json& file) {
  ASSERT_TRUE(file.at("traceEvents").is_array());
  std::set<std::pair<int, int>> named;
  for (const auto& event : file["traceEvents"])
    if (event.at("name") == "thread_name") named.emplace(event.at("pid"), event.at("tid"));
  for (const auto& event : file["traceEvents"]) {
    EXPECT_TRUE(event.at("pid").is_number_integer());
    EXPECT_TRUE(event.at("name").is_string());
    if (event.at("ph") == "M") {
      EXPECT_TRUE(event.at("args").is_object());
      continue;
    }
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_TRUE(event.at("ts").is_number());
    EXPECT_GE(event.at("dur").get<double>(), 0);
    EXPECT_TRUE(event.at("cat").is_string());
    EXPECT_TRUE(named.contains({event.at("pid"), event.at("tid")})) << event;
  }
}

std::vector<Json> events_named(const Json& file, const std::string& name) {
  std::vector<Json> found;
  for (const auto& event : file.at("traceEvents"))
    if (event.at("name") == name) found.push_back(event);
  return found;
}

TEST(TraceFile, AllWorkersAreOnTheFirstOnesClock) {
  const std::vector<WorkerTrace> workers = {{"worker 0 (a)", recording_at(5'000'000, "first \"quoted\"")},
                                            {"worker 1 (b)", recording_at(777, "second"), 4'999'223, 12'000}};
  const testing::LogCapture log;
  const auto file = Json::parse(chrome_trace(workers));
  expect_valid(file);
  const auto first = events_named(file, "first \"quoted\"").at(0);
  const auto second = events_named(file, "second").at(0);
  EXPECT_EQ(first["ts"], 1.0);
  EXPECT_EQ(first["dur"], 2.5);
  EXPECT_EQ(first["args"]["bytes"], 4096);
  EXPECT_EQ(second["ts"], 1.0);
  EXPECT_EQ(second["pid"], 1);
  EXPECT_EQ(events_named(file, "process_name").at(1)["args"]["name"], "worker 1 (b)");
  EXPECT_EQ(events_named(file, "thread_name").at(1)["args"]["name"], "replica 1");
  EXPECT_EQ(file["otherData"]["workers"][1]["clock_error_us"], 12.0);
  EXPECT_EQ(file["otherData"]["workers"][0]["dropped_spans"], 2);
  EXPECT_THAT(log.warnings(), ::testing::Contains(::testing::HasSubstr("worker 0 (a) lacks 2 spans")));
}

TEST(TraceFile, RecordingsTravelAsBytes) {
  const auto sent = recording_at(123, "x");
  const auto bytes = internal::to_bytes(sent);
  const auto got = internal::recording_from_bytes(bytes);
  EXPECT_EQ(internal::to_bytes(got), bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(testing::code_of([&] { internal::recording_from_bytes(bytes.substr(0, size)); }), ErrorCode::kDataLoss);
}

TEST(ClockBounds, HoldTheTrueDifference) {
  constexpr std::int64_t kBehind = 123'456'789;
  ClockBounds bounds;
  EXPECT_EQ(bounds.offset(), 0);
  // The other comes late, then this one, then both within 40.
  bounds.add({1000, 9100}, {9000 - kBehind, 9050 - kBehind});
  bounds.add({19000, 19200}, {10000 - kBehind, 19150 - kBehind});
  EXPECT_TRUE(bounds.holds(kBehind));
  EXPECT_LE(std::abs(bounds.offset() - kBehind), bounds.error());
  bounds.add({20000, 20040}, {20010 - kBehind, 20050 - kBehind});
  EXPECT_LE(bounds.error(), 50);
  EXPECT_LE(std::abs(bounds.offset() - kBehind), bounds.error());
}

TEST(GatherTrace, EveryWorkerGetsAllRecordings) {
  testing::on_workers({1, 2, 1}, [](WorkerGroup& group) {
    const auto* const name = trace::intern(str("of worker ", group.layout().rank));
    // More than fits into one small message.
    auto mine = recording_at(trace::now(), name);
    for (int k = 0; k < 1000; ++k) mine.threads[0].spans.push_back(mine.threads[0].spans[0]);
    const auto all = gather_trace(group, mine);
    ASSERT_EQ(all.size(), 3U);
    for (std::size_t w = 0; w < 3; ++w) {
      EXPECT_EQ(all[w].recording.threads.at(0).spans.size(), 1001U);
      EXPECT_EQ(all[w].recording.threads.at(0).spans.at(7).name, str("of worker ", w));
      EXPECT_EQ(all[w].clock_offset, 0);  // one machine, one clock
    }
  });
}

TEST(WriteTrace, ShowsWhatTheReplicasDid) {
  const ScratchFolder scratch;
  MirroredStrategy strategy(testing::cpus(2));
  trace::start();
  const auto dataset = strategy.experimental_distribute_dataset(data::Dataset::range(8).batch(4).prefetch(1));
  for (auto batch : dataset)
    strategy.run(
        [](ReplicaContext& context, const at::Tensor& x) {
          auto sum = x.sum();
          context.all_reduce("sum", sum);
        },
        batch);
  write_trace(scratch / "trace.json", trace::stop(), strategy);
  const auto file = Json::parse(content_of(scratch / "trace.json"));
  expect_valid(file);
  std::set<int> replicas;
  for (const auto& event : events_named(file, "run")) replicas.insert(event["args"]["replica"].get<int>());
  EXPECT_EQ(replicas, (std::set<int>{0, 1}));
  EXPECT_EQ(events_named(file, "run").size(), 4U);
  EXPECT_GE(events_named(file, "make element").size(), 2U);
  EXPECT_EQ(events_named(file, "next batch").size(), 3U);  // the last finds the end
  EXPECT_THAT([&] { write_trace(scratch / "none/trace.json", {}); }, ThrowsCode(ErrorCode::kFailedPrecondition, "none"));
}

TEST(Summary, TensorsBecomeHistogramsAndImages) {
  const ScratchFolder scratch;
  std::string path;
  {
    EventWriter writer(scratch.path());
    path = writer.path();
    write_histogram(writer, "h", at::arange(10).view({2, 5}).t(), 1);
    write_histogram(writer, "half", at::ones({3}, at::kBFloat16), 1);
    write_image(writer, "grey", at::tensor({0.0, 0.5, 2.0, 1.0}).view({2, 2}), 1);
    write_image(writer, "grid", at::full({3, 3, 2, 4}, 7, at::kByte), 1);
    write_image(writer, "last", at::zeros({2, 4, 3}), 1, ImageLayout::kChannelsLast);
    EXPECT_THAT(
        [&] {
          write_image(writer, "x", at::zeros({2, 4, 4}), 1);
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "[2, 4, 4]"));
    EXPECT_THAT([&] { write_image(writer, "x", at::zeros({2, 4}, at::kLong), 1); }, ThrowsCode(ErrorCode::kInvalidArgument));
    EXPECT_THAT([&] { write_histogram(writer, "x", at::zeros({2}, at::kComplexFloat), 1); },
                ThrowsCode(ErrorCode::kInvalidArgument, "'x'"));
  }
  std::map<std::string, EventValue> values;
  read_events(path, [&](const Event& event) {
    for (const auto& value : event.values) values[value.tag] = value;
  });
  EXPECT_EQ(values["h"].histogram->sum, 45);
  EXPECT_EQ(values["half"].histogram->count, 3);
  const auto grey = data::internal::read_png(values["grey"].image.value(), 0);
  EXPECT_EQ(grey.bytes, (std::vector<std::uint8_t>{0, 128, 255, 255}));
  const auto grid = data::internal::read_png(values["grid"].image.value(), 0);
  EXPECT_EQ(grid.width, 8);
  EXPECT_EQ(grid.height, 4);
  EXPECT_EQ(grid.channels, 3);
  EXPECT_EQ(data::internal::read_png(values["last"].image.value(), 0).width, 4);
}

}  // namespace
}  // namespace lockstep
