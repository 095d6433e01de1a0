#include <cmath>
#include <limits>

#include "lockstep/observe/event_writer.h"
#include "lockstep/observe/step_stats.h"
#include "tests/launcher/command.h"
#include "tools/lockstep/chart.h"
#include "tools/lockstep/page.h"

namespace lockstep::tool {
namespace {

using lockstep::testing::lockstep_command;
using lockstep::testing::read_file;
using lockstep::testing::Scratch;
using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

void write_run(const std::string& folder, double from) {
  EventWriter train(folder + "/train");
  EventWriter validation(folder + "/validation");
  StepStats stats(2);
  for (int epoch = 0; epoch < 3; ++epoch) {
    train.scalar("epoch_loss", from / (epoch + 1), epoch);
    train.scalar("epoch_accuracy", 0.3 * epoch, epoch);
    validation.scalar("epoch_loss", from / (epoch + 1) + 0.1, epoch);
    stats.reset();
    const std::vector<StepTimes> times = {{{0.1, 0.5, 0.4}}, {{0.5, 0.5, 0}}};
    for (int step = 0; step < 10; ++step) stats.add(times);
    for (const auto& [tag, value] : stats.scalars()) train.scalar(tag, value, epoch);
    train.text(kStragglersTag, stats.straggler_lines(), epoch);
  }
}

TEST(RoundTicks, AreRoundAndHoldTheValues) {
  EXPECT_THAT(round_ticks(0, 1, 6), ElementsAre(0, 0.2, 0.4, 0.6, 0.8, 1));
  EXPECT_THAT(round_ticks(0.31, 2.4, 5), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(round_ticks(0, 0.96, 5), ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_THAT(round_ticks(-3, 12, 4), ElementsAre(-5, 0, 5, 10, 15));
  EXPECT_THAT(round_ticks(0, 20000, 5), ElementsAre(0, 5000, 10000, 15000, 20000));
  for (const auto& [low, high] : {std::pair(5.0, 5.0), {0.0, 0.0}, {-1e-9, 1e-9}, {1e9, 1e9 + 1}, {-7.0, -7.0}}) {
    const auto ticks = round_ticks(low, high, 5);
    ASSERT_GE(ticks.size(), 2U);
    EXPECT_LE(ticks.front(), low);
    EXPECT_GE(ticks.back(), high);
    EXPECT_LE(ticks.size(), 12U);
    EXPECT_TRUE(std::ranges::is_sorted(ticks));
  }
  EXPECT_EQ(tick_text(0.3), "0.3");
  EXPECT_EQ(tick_text(1500), "1500");
  EXPECT_EQ(tick_text(15000), "15k");
  EXPECT_EQ(tick_text(-2e6), "-2M");
  EXPECT_EQ(tick_text(1e-5), "1e-05");
  EXPECT_EQ(tick_text(0), "0");
}

TEST(Thinned, KeepsEndsAndExtremes) {
  std::vector<Point> points;
  for (int k = 0; k < 10'000; ++k) points.push_back({1.0 * k, std::sin(k * 0.01)});
  points[5003].y = 50;
  points[7001].y = -50;
  const auto kept = thinned(points, 400);
  EXPECT_LE(kept.size(), 403U);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 9999);
  EXPECT_EQ(std::ranges::max(kept, {}, &Point::y).x, 5003);
  EXPECT_EQ(std::ranges::min(kept, {}, &Point::y).x, 7001);
  EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &Point::x));
}

TEST(Smoothed, IsTheCourse) {
  std::vector<Point> points;
  for (int k = 0; k <= 10'000; ++k) points.push_back({1.0 * k, 0.001 * k + (k % 2 == 0 ? 1 : -1)});
  const auto course = smoothed(points);
  ASSERT_EQ(course.size(), 101U);
  EXPECT_EQ(course.front().x, 0);
  EXPECT_EQ(course.back().x, 10'000);
  for (std::size_t k = 1; k + 1 < course.size(); ++k) EXPECT_NEAR(course[k].y, 0.001 * course[k].x, 0.02);
}

TEST(RunLogs, TrainingAndValidationAreOneChart) {
  const Scratch scratch;
  write_run(scratch.path("logs/first"), 2);
  write_run(scratch.path("logs/second"), 3);
  const auto logs = read_run_logs(scratch.path("logs"));
  ASSERT_EQ(logs.charts.size(), 2U);
  EXPECT_EQ(logs.charts[0].title, "loss");
  EXPECT_EQ(logs.charts[0].x_name, "epoch");
  ASSERT_EQ(logs.charts[0].curves.size(), 4U);
  EXPECT_EQ(logs.charts[0].curves[0].run, "first");
  EXPECT_FALSE(logs.charts[0].curves[0].is_validation);
  EXPECT_TRUE(logs.charts[0].curves[1].is_validation);
  EXPECT_EQ(logs.charts[0].curves[2].run, "second");
  EXPECT_EQ(logs.charts[0].curves[0].points.size(), 3U);
  EXPECT_EQ(logs.charts[0].curves[0].points[1].y, 1);
  EXPECT_EQ(logs.charts[1].title, "accuracy");
  ASSERT_EQ(logs.runs.size(), 2U);
  ASSERT_EQ(logs.runs[0].workers.size(), 2U);
  EXPECT_NEAR(logs.runs[0].workers.at(1).times[StepPhase::kInput], 15, 1e-4);
  EXPECT_EQ(logs.runs[0].workers.at(1).steps, 30);
  EXPECT_THAT(logs.runs[0].stragglers, ElementsAre("worker 1 was waited for in 100 % of steps, 400 ms each: input"));
  // A run's own folder.
  const auto one = read_run_logs(scratch.path("logs/first/"));
  ASSERT_EQ(one.runs.size(), 1U);
  EXPECT_EQ(one.runs[0].name, "first");
}

TEST(RunLogs, CsvLogsAndPrefixesOfValidation) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("logs/run"));
  std::ofstream(scratch.path("logs/run/log.csv")) << "epoch,accuracy,loss,val_loss,note\n0,0.5,2,2.5,x\n1,0.75,1,nan,y\n";
  std::ofstream(scratch.path("logs/other.csv")) << "a,b\n1,2\n";
  auto logs = read_run_logs(scratch.path("logs"));
  ASSERT_EQ(logs.charts.size(), 2U);
  EXPECT_EQ(logs.csv_files, 1);
  EXPECT_EQ(logs.charts[0].tag, "epoch_loss");
  ASSERT_EQ(logs.charts[0].curves.size(), 2U);
  EXPECT_EQ(logs.charts[0].curves[0].points.at(1).y, 1);
  EXPECT_EQ(logs.charts[0].curves[1].points.size(), 1U);
  EXPECT_EQ(logs.charts[0].curves[1].not_finite, 1);
  // Events say the same, and count.
  {
    EventWriter writer(scratch.path("logs/run"));
    writer.scalar("epoch_loss", 7, 0);
    writer.scalar("epoch_val_loss", 8, 0);
    writer.scalar("val_batch", 9, 100);
  }
  logs = read_run_logs(scratch.path("logs"));
  EXPECT_EQ(logs.charts[0].curves.at(0).points.at(0).y, 7);
  EXPECT_EQ(logs.charts[0].curves.at(1).points.at(0).y, 8);
  EXPECT_TRUE(logs.charts[0].curves.at(1).is_validation);
  EXPECT_EQ(logs.charts.back().tag, "batch");
  EXPECT_EQ(logs.charts.back().x_name, "step");
}

TEST(RunLogs, AStepThatWasWrittenAgainCountsOnce) {
  const Scratch scratch;
  for (const double value : {1.0, 2.0}) {
    EventWriter writer(scratch.path("logs"));
    writer.scalar("loss", value, 5);
    writer.flush();
  }
  const auto logs = read_run_logs(scratch.path("logs"));
  ASSERT_EQ(logs.charts.at(0).curves.at(0).points.size(), 1U);
  EXPECT_EQ(logs.charts[0].curves[0].points[0].y, 2);
}

TEST(ReportPage, IsWholeAndQuotesWhatItIsGiven) {
  RunLogs logs;
  const std::string evil = "</script><b>&\"'";
  logs.runs = {{evil}};
  logs.charts = {{evil, evil, "step", {{evil, false, {{0, 1}, {1, 2}}}, {evil, true, {}, 2}}}};
  const auto page = report_page(logs, evil);
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;b&gt;&amp;&quot;&#39;"));
  EXPECT_THAT(page, HasSubstr("no finite value"));
  EXPECT_THAT(page, HasSubstr("2 values are not finite"));
  EXPECT_THAT(page, Not(HasSubstr("http://www.w3.org/1999")));
  EXPECT_THAT(page, ::testing::EndsWith("</html>\n"));
  RunLogs nothing;
  nothing.runs = {{"x"}};
  EXPECT_THAT(report_page(nothing, "x"), HasSubstr("nothing to draw"));
}

TEST(LockstepReport, WritesThePageAndSaysWhere) {
  const Scratch scratch;
  write_run(scratch.path("logs/a"), 2);
  const auto done = lockstep_command(str("report ", scratch.path("logs")));
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr(scratch.path("logs/report.html") + ": 2 charts, 3 curves, 1 run\n"));
  const auto page = read_file(scratch.path("logs/report.html"));
  EXPECT_THAT(page, HasSubstr("class=\"curve c1 dash\""));
  EXPECT_THAT(page, HasSubstr("worker 1 was waited for in 100 % of steps, 400 ms each: input"));
  EXPECT_EQ(lockstep_command(str("report ", scratch.path("logs"), " --out ", scratch.path("x.html"))).exit_code, 0);
  EXPECT_THAT(read_file(scratch.path("x.html")), HasSubstr("<svg class=\"chart\""));
}

TEST(LockstepReport, SaysWhatIsWrong) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("empty"));
  const auto none = lockstep_command(str("report ", scratch.path("none")));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.output, HasSubstr("there is no folder"));
  const auto empty = lockstep_command(str("report ", scratch.path("empty")));
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.output, HasSubstr("no event files"));
  write_run(scratch.path("logs"), 1);
  const auto unwritable = lockstep_command(str("report ", scratch.path("logs"), " --out ", scratch.path("no/x.html")));
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_THAT(unwritable.output, HasSubstr("no/x.html"));
  const auto help = lockstep_command("report --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, HasSubstr("--out"));
  EXPECT_EQ(lockstep_command("report").exit_code, 2);
}

}  // namespace
}  // namespace lockstep::tool
