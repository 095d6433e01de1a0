#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "lockstep/base/str.h"
#include "tests/multi_worker/cluster.h"

// MultiWorkerMirroredStrategy in real processes: the same replicas give the same, however they are spread over workers.

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::Eq;
using ::testing::IsEmpty;

// How many replicas each worker has, and what carries the bytes.
struct Layout {
  std::vector<int> replicas;
  std::string engine = "auto";
};

std::string name_of(const Layout& layout) { return str(join("+", layout.replicas), " replicas, ", layout.engine); }

std::vector<Ending> run_layout(const Layout& layout, std::vector<std::string> words, std::chrono::seconds limit) {
  Cluster cluster(static_cast<int>(layout.replicas.size()));
  words.push_back(str("engine=", layout.engine));
  for (int worker = 0; worker < cluster.size(); ++worker) {
    auto mine = words;
    mine.push_back(str("replicas=", layout.replicas[static_cast<std::size_t>(worker)]));
    mine.push_back(str("seed=", worker + 1));
    cluster.start(worker, mine);
  }
  return cluster.join(limit);
}

void expect_success(const std::vector<Ending>& endings) {
  for (const auto& ending : endings) EXPECT_EQ(ending.exit_code, 0) << ending;
}

// What a run of `collectives` printed, by name. Lines of one name must be equal, whoever printed them.
using Lines = std::map<std::string, std::string>;

Lines lines_of(const std::vector<Ending>& endings) {
  Lines lines;
  for (const auto& ending : endings)
    for (const auto& line : ending.lines()) {
      const auto equals = line.find(" = ");
      if (equals == std::string::npos) continue;
      const auto name = line.substr(0, equals);
      const auto value = line.substr(equals + 3);
      const auto [at, is_new] = lines.emplace(name, value);
      EXPECT_EQ(at->second, value) << name << " differs between workers or replicas; " << ending.name << " has the second";
    }
  return lines;
}

// Every layout is run once, whichever test asks first.
const Lines& collectives_on(const Layout& layout) {
  static std::map<std::string, Lines> known;
  const auto found = known.find(name_of(layout));
  if (found != known.end()) return found->second;
  const auto endings = run_layout(layout, {"collectives", "timeout=30"}, 120s);
  expect_success(endings);
  return known.emplace(name_of(layout), lines_of(endings)).first->second;
}

// The lines of one part of the scenario.
Lines part_of(const Lines& all, const std::string& part) {
  Lines some;
  for (const auto& [name, value] : all)
    if (name.starts_with(part + "/")) some.emplace(name, value);
  return some;
}

class Collectives : public ::testing::TestWithParam<const char*> {};

TEST_P(Collectives, AreTheSameHoweverTheReplicasAreSpread) {
  const auto one_process = part_of(collectives_on({{4}}), GetParam());
  EXPECT_FALSE(one_process.empty());
  for (const char* engine : {"auto", "gloo"})
    for (const auto& replicas : std::vector<std::vector<int>>{{2, 2}, {1, 1, 1, 1}, {3, 1}}) {
      const Layout layout{replicas, engine};
      SCOPED_TRACE(name_of(layout));
      const auto found = part_of(collectives_on(layout), GetParam());
      for (const auto& [name, value] : one_process)
        EXPECT_EQ(found.contains(name) ? found.at(name) : "not printed", value) << name;
    }
}

TEST_P(Collectives, AreWhatTheyShouldBe) {
  for (const auto& replicas : std::vector<std::vector<int>>{{4}, {2, 2}, {1, 1, 1, 1}, {3, 1}}) {
    const Layout layout{replicas, "auto"};
    SCOPED_TRACE(name_of(layout));
    for (const auto& [name, value] : part_of(collectives_on(layout), GetParam()))
      EXPECT_EQ(value.find("WRONG"), std::string::npos) << name << " = " << value;
  }
}

INSTANTIATE_TEST_SUITE_P(OfEveryPart, Collectives,
                         ::testing::Values("all_reduce", "structures", "all_gather", "gradients", "across", "contexts",
                                           "variables", "on_read", "scatters", "inputs", "own_inputs", "training",
                                           "odd_training", "fitting"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep::testing
