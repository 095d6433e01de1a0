#include <cstdlib>

#include "lockstep/cluster/ranked_cluster_resolver.h"
#include "lockstep/cluster/resolve.h"
#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/cluster/slurm_cluster_resolver.h"
#include "lockstep/cluster/tf_config_cluster_resolver.h"
#include "lockstep/cluster/union_cluster_resolver.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

constexpr const char* kTfConfig = R"({
  "cluster": {"ps": ["ps0:2222", "ps1:2222"], "worker": ["worker0:2222", "worker1:2222", "worker2:2222"]},
  "task": {"type": "ps", "index": 0}})";

TFConfigClusterResolver tf_config(const std::string& text, TFConfigOptions options = {}) {
  options.variables = Environment::of({{"TF_CONFIG", text}});
  return TFConfigClusterResolver(options);
}

TEST(TfConfig, NamesTheTask) {
  const auto resolver = tf_config(kTfConfig);
  EXPECT_EQ(resolver.master(), "ps0:2222");
  EXPECT_EQ(resolver.master("worker", 1), "worker1:2222");
  EXPECT_EQ(resolver.master("worker", 1, "grpc"), "grpc://worker1:2222");
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(resolver.rpc_layer(), std::nullopt);
}

TEST(TfConfig, CastsWhatIsNotOfItsType) {
  const auto resolver = tf_config(R"({"task": {"type": 123456, "index": "1"}, "rpc_layer": "grpc"})");
  EXPECT_EQ(resolver.task_type(), "123456");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.master(), "");
}

TEST(TfConfig, GivenValuesComeFirst) {
  auto resolver = tf_config(kTfConfig, {.task_type = "worker", .task_id = 2, .rpc_layer = "http"});
  EXPECT_EQ(resolver.master(), "http://worker2:2222");
  resolver.set_task_id(1);
  resolver.set_rpc_layer("grpc");
  EXPECT_EQ(resolver.master(), "grpc://worker1:2222");
}

TEST(TfConfig, AClusterOfNoneOrOneHasNoMaster) {
  EXPECT_EQ(tf_config("{}").master(), "");
  EXPECT_EQ(tf_config(R"({"cluster": {"worker": ["a:1"]}})").master(), "");
}

TEST(TfConfig, SaysWhereItIsWrong) {
  EXPECT_THAT([] { tf_config("{'cluster': {}}").cluster_spec(); },
              ThrowsCode(ErrorCode::kInvalidArgument, "TF_CONFIG", "line 1, column 2"));
  EXPECT_THAT([] { tf_config("7").task_type(); }, ThrowsCode(ErrorCode::kInvalidArgument, "TF_CONFIG is 7"));
  EXPECT_THAT([] { tf_config(R"({"task": {"type": "worker", "index": "first"}})").task_id(); },
              ThrowsCode(ErrorCode::kInvalidArgument, "\"first\""));
  EXPECT_THAT([] { tf_config(R"({"cluster": {"worker": ["a:1", "b:1"]}})").master(); },
              ThrowsCode(ErrorCode::kInvalidArgument, "which task"));
  EXPECT_THAT([] { tf_config(kTfConfig, {.task_id = 7}).master(); }, ThrowsCode(ErrorCode::kInvalidArgument, "task 7"));
}

TEST(SimpleCluster, GivesBackWhatItWasGiven) {
  const ClusterSpec spec({{"worker", {"worker0:2222", "worker1:2222"}}});
  SimpleClusterResolver resolver(
      spec, {.task_type = "ps", .task_id = 1, .environment = "cloud", .num_accelerators = {{"GPU", 8}}, .rpc_layer = "grpc"});
  EXPECT_EQ(resolver.cluster_spec(), spec);
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.environment(), "cloud");
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 8);
  resolver.set_task_type("worker");
  resolver.set_task_id(2);
  resolver.set_rpc_layer("http");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  EXPECT_EQ(resolver.master("worker", 0), "http://worker0:2222");
  EXPECT_EQ(resolver.master("worker", 0, "grpc"), "grpc://worker0:2222");
}

std::shared_ptr<const ClusterResolver> simple(const char* json, const SimpleClusterOptions& options = {}) {
  return std::make_shared<SimpleClusterResolver>(ClusterSpec::from_json(json), options);
}

TEST(UnionOfClusters, PutsJobsTogether) {
  const UnionResolver lists(
      {simple(R"({"worker": ["worker4:1", "worker5:1"]})"), simple(R"({"worker": ["worker0:1"], "ps": ["p:1"]})")});
  EXPECT_EQ(lists.cluster_spec().to_json(), R"({"worker":["worker4:1","worker5:1","worker0:1"],"ps":["p:1"]})");
  const UnionResolver numbered({simple(R"({"worker": {"3": "a:1"}})"), simple(R"({"worker": ["c:1"]})")});
  EXPECT_EQ(numbered.cluster_spec().to_json(), R"({"worker":{"0":"c:1","3":"a:1"}})");
  const UnionResolver clash(
      {simple(R"({"worker": {"7": "a:1", "9": "b:1"}})"), simple(R"({"worker": {"3": "c:1", "7": "d:1"}})")});
  EXPECT_THAT([&] { clash.cluster_spec(); }, ThrowsCode(ErrorCode::kInvalidArgument, "task 7", "a:1", "d:1"));
}

TEST(UnionOfClusters, TheFirstSaysTheRest) {
  UnionResolver both({simple(R"({"ps": ["p:1"]})", {.master = "p:1", .task_type = "ps", .task_id = 0, .rpc_layer = "grpc"}),
                      simple(R"({"worker": ["w:1"]})", {.task_type = "worker", .task_id = 1})});
  EXPECT_EQ(both.task_type(), "ps");
  EXPECT_EQ(both.rpc_layer(), "grpc");
  EXPECT_EQ(both.master(), "grpc://p:1");
  EXPECT_EQ(both.master("worker", 0), "grpc://w:1");
  both.set_task_type("worker");
  EXPECT_EQ(both.task_type(), "worker");
  EXPECT_THAT([] { UnionResolver({}); }, ThrowsCode(ErrorCode::kInvalidArgument, "at least one"));
  EXPECT_THAT([] { UnionResolver({nullptr}); }, ThrowsCode(ErrorCode::kInvalidArgument, "null"));
}

Environment slurm(const char* rank, const char* tasks, const char* per_node, const char* nodes) {
  return Environment::of({{"SLURM_PROCID", rank},
                          {"SLURM_STEP_NUM_TASKS", tasks},
                          {"SLURM_STEP_TASKS_PER_NODE", per_node},
                          {"SLURM_STEP_NODELIST", nodes},
                          {"CUDA_VISIBLE_DEVICES", "0"}});
}

TEST(Slurm, ReadsItsStep) {
  const SlurmClusterResolver resolver({.auto_set_gpu = false, .variables = slurm("0", "3", "1(x3)", "t02n13,t02n41,t02n43")});
  EXPECT_EQ(resolver.cluster_spec().to_json(), R"({"worker":["t02n13:8888","t02n41:8888","t02n43:8888"]})");
  EXPECT_EQ(resolver.master("worker", 0, "grpc"), "grpc://t02n13:8888");
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 1);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 0);
}

TEST(Slurm, GivesRanksToJobsInAlphabeticalOrder) {
  const SlurmClusterResolver resolver(
      {.jobs = {{"worker", 2}, {"ps", 1}}, .auto_set_gpu = false, .variables = slurm("2", "3", "2,1", "t02n13,t02n41")});
  EXPECT_EQ(resolver.cluster_spec().to_json(), R"({"ps":["t02n13:8888"],"worker":["t02n13:8889","t02n41:8888"]})");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
}

TEST(Slurm, KeepsTheOrderInWhichSlurmGaveTheRanks) {
  const SlurmClusterResolver resolver({.auto_set_gpu = false, .variables = slurm("2", "6", "2(x2),1(x2)", "n[8-11]")});
  EXPECT_EQ(resolver.cluster_spec().to_json(), R"({"worker":["n8:8888","n8:8889","n9:8888","n9:8889","n10:8888","n11:8888"]})");
}

TEST(Slurm, DividesTheGpusOfANode) {
  const SlurmClusterResolver resolver(
      {.gpus_per_node = 4, .gpus_per_task = 2, .auto_set_gpu = false, .variables = slurm("1", "2", "2", "t02n13")});
  EXPECT_EQ(resolver.gpus(), std::pair(2, 2));
  EXPECT_THAT([] { SlurmClusterResolver({.gpus_per_node = 1, .gpus_per_task = 2, .variables = slurm("0", "1", "1", "a")}); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "2 GPUs"));
}

TEST(Slurm, SaysWhatIsMissing) {
  EXPECT_THAT([] { SlurmClusterResolver({.variables = Environment::of({})}); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "SLURM_PROCID", "srun"));
  EXPECT_THAT(
      [] {
        SlurmClusterResolver({.jobs = {{"worker", 5}}, .variables = slurm("0", "3", "1(x3)", "n[1-3]")});
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "5 tasks", "3"));
  EXPECT_THAT([] { SlurmClusterResolver({.variables = slurm("0", "3", "1(x3)", "n[1-")}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "host list"));
}

TEST(Torchrun, KnowsWorkerZeroAndItsOwnRank) {
  const TorchrunClusterResolver resolver(
      Environment::of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(resolver.cluster_spec().to_json(), R"({"worker":["10.0.0.1:29500",""]})");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_THAT(
      [] {
        TorchrunClusterResolver(Environment::of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "MASTER_ADDR"));
  EXPECT_THAT(
      [] {
        TorchrunClusterResolver(
            Environment::of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "rank 2"));
}

TEST(Torchrun, LeavesItsPortToTorchrunsOwnStore) {
  const auto address = [](const char* uses_store, const char* port) {
    return TorchrunClusterResolver(Environment::of({{"RANK", "0"},
                                                    {"WORLD_SIZE", "1"},
                                                    {"MASTER_ADDR", "a"},
                                                    {"MASTER_PORT", port},
                                                    {"TORCHELASTIC_USE_AGENT_STORE", uses_store}}))
        .master();
  };
  EXPECT_EQ(address("True", "29500"), "a:29501");
  EXPECT_EQ(address("False", "29500"), "a:29500");
  EXPECT_EQ(address("", "65535"), "a:65535");
  EXPECT_THAT([&] { address("True", "65535"); }, ThrowsCode(ErrorCode::kInvalidArgument, "MASTER_PORT", "65536"));
  EXPECT_THAT([&] { address("False", "70000"); }, ThrowsCode(ErrorCode::kInvalidArgument, "MASTER_PORT", "70000"));
}

TEST(Torchrun, AnIpv6HostStandsInBrackets) {
  const TorchrunClusterResolver resolver(
      Environment::of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "1"}}));
  EXPECT_EQ(resolver.master(), "[fe80::1]:1");
}

TEST(Mpi, ReadsOpenMpiAndMpich) {
  EXPECT_EQ(MpiClusterResolver(Environment::of({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}})).task_id(), 3);
  EXPECT_EQ(MpiClusterResolver(Environment::of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})).cluster_spec().num_tasks("worker"), 2);
  EXPECT_THAT(
      [] {
        MpiClusterResolver(Environment::of({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "PMI_RANK", "'x'"));
}

TEST(Kubernetes, ReadsTheNumberFromThePodsName) {
  const KubernetesClusterResolver set(
      Environment::of({{"HOSTNAME", "train-2"}, {"LOCKSTEP_K8S_SERVICE", "train"}, {"LOCKSTEP_K8S_REPLICAS", "3"}}));
  EXPECT_EQ(set.cluster_spec().to_json(), R"({"worker":["train-0.train:8470","train-1.train:8470","train-2.train:8470"]})");
  EXPECT_EQ(set.task_id(), 2);
  EXPECT_THAT(
      [] {
        KubernetesClusterResolver(Environment::of({{"HOSTNAME", "train"}, {"LOCKSTEP_K8S_REPLICAS", "3"}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "'train'"));
}

TEST(Resolve, TakesTheFirstThatDescribesACluster) {
  EXPECT_EQ(resolve_cluster(Environment::of({})), nullptr);
  const std::map<std::string, std::string> mpi = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  EXPECT_EQ(resolve_cluster(Environment::of(mpi))->source(), "mpirun's variables");
  auto more = mpi;
  more["TF_CONFIG"] = kTfConfig;
  EXPECT_EQ(resolve_cluster(Environment::of(more))->source(), "TF_CONFIG");
}

TEST(Resolve, SaysWhatItLookedAtAndFound) {
  const testing::LogCapture log;
  resolve_cluster(Environment::of({{"TF_CONFIG", kTfConfig}}));
  EXPECT_THAT(log.at(LogLevel::kInfo), ::testing::ElementsAre(::testing::AllOf(::testing::HasSubstr("found by TF_CONFIG"),
                                                                               ::testing::HasSubstr("ps 0"))));
}

TEST(Resolve, AnUnfinishedDescriptionIsAnErrorNotALonelyProgram) {
  EXPECT_THAT(
      [] {
        resolve_cluster(Environment::of({{"WORLD_SIZE", "4"}}));
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "RANK"));
  EXPECT_THAT(
      [] {
        resolve_cluster(Environment::of({{"TF_CONFIG", "{"}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "TF_CONFIG"));
  EXPECT_THAT(
      [] {
        resolve_cluster(Environment::of({{"LOCKSTEP_K8S_REPLICAS", "2"}, {"HOSTNAME", "train-1"}}));
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "LOCKSTEP_K8S_SERVICE"));
}

TEST(Resolve, ADeepDescriptionIsRefused) {
  constexpr std::size_t kLevels = 100'000;
  const auto text = str(R"({"cluster": {"worker": ["a:1"]}, "x": )", std::string(kLevels, '['), std::string(kLevels, ']'), "}");
  EXPECT_THAT(
      [&] {
        resolve_cluster(Environment::of({{"TF_CONFIG", text}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "TF_CONFIG", "levels deep"));
}

TEST(ResolveCluster, OneOfSeveralDoesNotRunAloneBecauseSomethingElseSaysSo) {
  const auto code_with = [](const std::map<std::string, std::string>& variables) {
    return testing::code_of([&] { resolve_cluster(Environment::of(variables)); });
  };
  const std::map<std::string, std::string> mpirun = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert(mpirun.begin(), mpirun.end());
    return more;
  };
  EXPECT_EQ(code_with(with({{"TF_CONFIG", "{}"}})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_with(with({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})"}})),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_with(with({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_with({{"TF_CONFIG", R"({"task": {"type": "worker", "index": 3}})"}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with(mpirun), std::nullopt);
  EXPECT_EQ(code_with({{"TF_CONFIG", "{}"}}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
