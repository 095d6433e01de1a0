#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "lockstep/base/str.h"
#include "tests/multi_worker/cluster.h"
#ifdef LOCKSTEP_SRUN
#include "tests/multi_worker/slurm.h"
#endif

// The ways to start a job: whoever tells the workers of each other, they train to the same bits.

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kLimit = 60s;
const std::vector<std::string> kTrain = {"train", "steps=20", "timeout=20", "join=30"};

Command worker(const Variables& variables, const std::vector<std::string>& more = {}) {
  Command command{{LOCKSTEP_WORKER}, variables};
  command.words.insert(command.words.end(), kTrain.begin(), kTrain.end());
  command.words.insert(command.words.end(), more.begin(), more.end());
  return command;
}

// What stands after every "weights" of the outputs, whatever prefix a launcher put before it.
std::multiset<std::string> weights_of(const std::vector<Ending>& endings) {
  std::multiset<std::string> all;
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.exit_code, 0) << ending;
    for (const auto& line : ending.lines())
      if (const auto at = line.find("weights "); at != std::string::npos) all.insert(line.substr(at + 8));
  }
  return all;
}

// Two replicas in one process, no cluster: what all others must come to.
const std::string& weights() {
  static const std::string known =
      run_process("one process", worker({}, {"replicas=2"}), kLimit).after("weights").value_or("none");
  return known;
}

std::multiset<std::string> twice() { return {weights(), weights()}; }

std::vector<Ending> run_all(const std::vector<Command>& commands) {
  std::vector<std::unique_ptr<Process>> processes;
  for (std::size_t i = 0; i < commands.size(); ++i)
    processes.push_back(std::make_unique<Process>(str("process ", i), commands[i]));
  return join_all(processes, kLimit);
}

TEST(Launch, ByTwoHandWrittenTfConfigs) {
  Cluster cluster(2);
  cluster.start(0, kTrain);
  cluster.start(1, kTrain, {});
  EXPECT_EQ(weights_of(cluster.join(kLimit)), twice());
}

TEST(Launch, ByLockstepRun) {
  auto command = worker({});
  command.words.insert(command.words.begin(), {LOCKSTEP_COMMAND, "run", "-n", "2"});
  EXPECT_EQ(weights_of({run_process("lockstep run", command, kLimit)}), twice());
}

TEST(Launch, ByMpirun) {
  auto command = worker({});
  command.words.insert(command.words.begin(), {LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "2"});
  EXPECT_EQ(weights_of({run_process("mpirun", command, kLimit)}), twice());
}

TEST(Launch, ByMpirunOverMpi) {
  auto command = worker({}, {"engine=mpi"});
  command.words.insert(command.words.begin(), {LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "2"});
  EXPECT_EQ(weights_of({run_process("mpirun", command, kLimit)}), twice());
}

// Four workers that MPI has started, of which two cannot share memory with anybody: a machine of two and two of one.
// A leader of each speaks to the others, over MPI, whoever tells them where worker 0 is.
TEST(Launch, ByMpirunOnMachinesOfSeveralWorkers) {
  const auto alone = run_process("one process", worker({}, {"replicas=4"}), kLimit);
  const auto weights = alone.after("weights").value_or("none");
  const auto port = str(free_ports(1)[0]);
  for (const std::string torchrun : {std::string(), str("export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=4 MASTER_ADDR=127.0.0.1",
                                                        " MASTER_PORT=", port, "; ")}) {
    auto command = worker({{"LOCKSTEP_LOG", "info"}});
    const auto place = torchrun + R"([ $OMPI_COMM_WORLD_RANK -lt 2 ] && exec "$@"; exec unshare --pid --fork "$@")";
    command.words.insert(command.words.begin(), {LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--mca", "btl",
                                                 "tcp,self", "-n", "4", "sh", "-c", place, "sh"});
    const auto ending = run_process("mpirun", command, kLimit);
    EXPECT_THAT(ending.log, HasSubstr("shm between the 2 workers of this machine, mpi between 3 machines")) << ending;
    EXPECT_EQ(weights_of({ending}), (std::multiset<std::string>{weights, weights, weights, weights}));
  }
}

// Whoever waits for the coordinator's address gets the reason instead.
TEST(Launch, ByMpirunWhenTheFirstCannotServe) {
  auto command = worker({});
  command.words.insert(command.words.begin(),
                       {LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "2", "sh", "-c",
                        "[ $OMPI_COMM_WORLD_RANK = 0 ] && export LOCKSTEP_TLS_CA=/nowhere LOCKSTEP_TLS_CERTIFICATE=/nowhere "
                        "LOCKSTEP_TLS_KEY=/nowhere; exec \"$@\"",
                        "sh"});
  const auto ending = run_process("mpirun", command, kLimit);
  EXPECT_FALSE(ending.was_late) << ending;
  EXPECT_THAT(ending.output, HasSubstr("error kUnavailable worker 0: ")) << ending;
  EXPECT_THAT(ending.output, HasSubstr("/nowhere")) << ending;
}

TEST(Launch, ByTorchrunsVariables) {
  const auto port = str(free_ports(1)[0]);
  const auto variables = [&](int rank) {
    return Variables{{"RANK", str(rank)},
                     {"WORLD_SIZE", "2"},
                     {"LOCAL_RANK", str(rank)},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", port}};
  };
  EXPECT_EQ(weights_of(run_all({worker(variables(0)), worker(variables(1))})), twice());
}

#ifdef LOCKSTEP_SRUN
// Slurm itself, not its variables alone.
TEST(Launch, BySrun) {
  const Slurm slurm;
  EXPECT_EQ(weights_of({run_process("srun", slurm.srun(2, worker({})), kLimit)}), twice());
  EXPECT_EQ(weights_of({run_process("srun with gloo", slurm.srun(2, worker({}, {"engine=gloo"})), kLimit)}), twice());
  const auto pmix = slurm.srun(2, worker({}, {"engine=mpi"}), {"--mpi=pmix"});
  EXPECT_EQ(weights_of({run_process("srun with mpi", pmix, kLimit)}), twice());
}
#endif

TEST(Launch, AChiefTrainsWithTheWorkers) {
  const auto ports = free_ports(2);
  const auto config = [&](const std::string& type) {
    return Variables{{"TF_CONFIG", str(R"({"cluster": {"worker": ["127.0.0.1:)", ports[1], R"("], "chief": ["127.0.0.1:)",
                                       ports[0], R"("]}, "task": {"type": ")", type, R"(", "index": 0}})")}};
  };
  EXPECT_EQ(weights_of(run_all({worker(config("worker")), worker(config("chief"))})), twice());
}

TEST(Launch, AnEvaluatorIsAClusterOfItsOwn) {
  const auto ports = free_ports(3);
  const Variables evaluator{
      {"TF_CONFIG", str(R"({"cluster": {"worker": ["127.0.0.1:)", ports[0], R"(", "127.0.0.1:)", ports[1],
                        R"("], "evaluator": ["127.0.0.1:)", ports[2], R"("]}, "task": {"type": "evaluator", "index": 0}})")}};
  const auto ending = run_process("evaluator", worker(evaluator), kLimit);
  EXPECT_EQ(ending.exit_code, 0) << ending;
  EXPECT_EQ(ending.after("replicas"), "1") << ending;
}

TEST(Launch, WorkersMayStartInAnyOrderSecondsApart) {
  for (const auto& order : std::vector<std::vector<int>>{{2, 1, 0}, {1, 0, 2}}) {
    Cluster cluster(3);
    for (const int worker : order) {
      cluster.start(worker, {"train", "steps=20", "timeout=20", "join=30", str("replicas=", worker == 0 ? 2 : 1)});
      if (worker != order.back()) std::this_thread::sleep_for(1500ms);
    }
    const auto found = weights_of(cluster.join(kLimit));
    EXPECT_EQ(found.size(), 3u);
    EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 1u);
  }
}

TEST(Launch, TwoJobsAtOnceDoNotMeet) {
  Cluster first(2);
  Cluster second(2);
  for (const int worker : {0, 1})
    for (Cluster* cluster : {&first, &second}) cluster->start(worker, kTrain);
  EXPECT_EQ(weights_of(first.join(kLimit)), twice());
  EXPECT_EQ(weights_of(second.join(kLimit)), twice());
}

// A described cluster is joined or an error: nobody trains alone by accident.
TEST(Launch, VariablesThatAreNotWholeAreAnError) {
  const std::vector<Variables> partial = {
      {{"WORLD_SIZE", "2"}},
      {{"WORLD_SIZE", "2"}, {"RANK", "0"}},
      {{"WORLD_SIZE", "2"}, {"RANK", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29999"}},
      {{"WORLD_SIZE", "two"}, {"RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29999"}},
      {{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "x"}}};
  std::vector<Command> commands;
  for (const auto& variables : partial) commands.push_back(worker(variables, {"join=3"}));
  for (const auto& ending : run_all(commands)) {
    EXPECT_EQ(ending.exit_code, 3) << ending;
    EXPECT_THAT(ending.error_code(), ::testing::AnyOf("kInvalidArgument", "kFailedPrecondition")) << ending;
  }
}

}  // namespace
}  // namespace lockstep::testing
