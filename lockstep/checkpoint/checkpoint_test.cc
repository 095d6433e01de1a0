#include "lockstep/checkpoint/checkpoint.h"

#include <ATen/ATen.h>

#include <atomic>

#include "lockstep/checkpoint/checkpoint_manager.h"
#include "lockstep/checkpoint/together.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/crashing_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"
#include "tests/support/worker_threads.h"

namespace lockstep {
namespace {

using testing::cpus;
using testing::CrashingFiles;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using testing::LogCapture;
using testing::on_workers;
using testing::ScratchFolder;
using testing::ThrowsCode;

NamedTensors of_all_types() {
  NamedTensors tensors;
  const auto values = at::arange(6).reshape({2, 3});
  for (const auto type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble})
    tensors.emplace_back(toString(type), values.to(type));
  tensors.emplace_back("empty", at::empty({0, 3}));
  tensors.emplace_back("scalar", at::scalar_tensor(2.5));
  tensors.emplace_back("transposed", at::rand({3, 4}).t());
  return tensors;
}

TEST(Weights, OfEveryTypeComeBack) {
  const ScratchFolder folder;
  const auto tensors = of_all_types();
  save_weights(folder / "w", tensors, {{"who", "me"}});
  const auto loaded = load_weights(folder / "w");
  EXPECT_EQ(loaded.metadata.at("who"), "me");
  ASSERT_EQ(loaded.tensors.size(), tensors.size());
  const CheckpointPart part{loaded.tensors, {}};
  for (const auto& [name, tensor] : tensors) {
    ASSERT_NE(part.find(name), nullptr) << name;
    EXPECT_EQ(part.find(name)->scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(*part.find(name), tensor)) << name;
  }
  EXPECT_THAT(real_files().list(folder.path()), ElementsAre("w"));
  EXPECT_THAT(
      [&] {
        save_weights(folder / "w", {{"z", at::zeros({1}, at::kComplexFloat)}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "'z'", "ComplexFloat"));
  EXPECT_EQ(load_weights(folder / "w").tensors.size(), tensors.size());  // still there
  EXPECT_THAT([&] { load_weights(folder / "none"); }, ThrowsCode(ErrorCode::kNotFound, "none"));
}

// A part that a test can look at.
struct Thing : Trackable {
  explicit Thing(NamedTensors tensors = {}) : state{std::move(tensors), {}} {}
  CheckpointPart save() override { return state; }
  void restore(const CheckpointPart& part) override {
    state.values = part.values;
    for (auto& [name, tensor] : state.tensors) tensor.copy_(*part.find(name));
  }
  std::vector<std::string> problems(const CheckpointPart& part) const override { return compare_tensors(state.tensors, part); }
  CheckpointPart state;
};

TEST(Checkpoint, BringsPartsBack) {
  const ScratchFolder folder;
  auto thing = std::make_shared<Thing>(NamedTensors{{"a", at::ones({2})}, {"b", at::full({3}, 7, at::kLong)}});
  thing->state.values = {{"text", "hello"}, {"bytes", std::string("\xff\0\x01", 3)}, {"long", std::string(1000, 'x')}};
  std::int64_t step = 5;
  double rate = 0.1;
  Checkpoint checkpoint;
  checkpoint.track("thing", thing).track("step", &step).track("rate", &rate);
  checkpoint.write(folder / "c", {.step = 5, .epoch = 1, .learning_rate = 0.1});
  EXPECT_THAT(real_files().list(folder / "c"), ElementsAre("manifest.json", "state.safetensors"));
  const auto saved = thing->state.values;
  thing->state.tensors[0].second.zero_();
  thing->state.values.clear();
  step = 0;
  rate = 0;
  const auto restored = checkpoint.read(folder / "c");
  EXPECT_EQ(restored.info.epoch, 1);
  EXPECT_EQ(step, 5);
  EXPECT_EQ(rate, 0.1);
  EXPECT_EQ(thing->state.values, saved);
  EXPECT_TRUE(at::equal(thing->state.tensors[0].second, at::ones({2})));
  EXPECT_THAT([&] { checkpoint.write(folder / "c"); }, ThrowsCode(ErrorCode::kFailedPrecondition, "is there already"));
  EXPECT_THAT([&] { checkpoint.read(folder / "d"); }, ThrowsCode(ErrorCode::kNotFound, "d/manifest.json"));
}

TEST(Checkpoint, RefusesNamesThatCannotBe) {
  std::int64_t step = 0;
  Checkpoint checkpoint;
  checkpoint.track("step", &step);
  EXPECT_THAT([&] { checkpoint.track("step", &step); }, ThrowsCode(ErrorCode::kInvalidArgument, "two parts named 'step'"));
  EXPECT_THAT([&] { checkpoint.track("a/b", &step); }, ThrowsCode(ErrorCode::kInvalidArgument, "'a/b'"));
  EXPECT_THAT([&] { checkpoint.track("x", std::shared_ptr<Trackable>()); }, ThrowsCode(ErrorCode::kInvalidArgument, "'x'"));
}

TEST(Checkpoint, OfSomethingElseIsRefusedWithAllReasonsAndChangesNothing) {
  const ScratchFolder folder;
  std::int64_t step = 5;
  auto saved = std::make_shared<Thing>(NamedTensors{{"a", at::ones({2})}, {"b", at::ones({3})}, {"c", at::ones({1})}});
  Checkpoint().track("thing", saved).track("step", &step).write(folder / "c");
  step = 6;
  auto other = std::make_shared<Thing>(NamedTensors{{"a", at::zeros({2})}, {"b", at::zeros({4})}, {"d", at::zeros({1})}});
  Checkpoint checkpoint;
  checkpoint.track("step", &step).track("thing", other).track("more", &step);
  EXPECT_THAT([&] { checkpoint.read(folder / "c"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "thing/b: has shape [3], and [4] is needed", "thing/d: missing",
                         "thing/c: unexpected", "more: the checkpoint has no part"));
  EXPECT_EQ(step, 6);
  EXPECT_TRUE(at::equal(other->state.tensors[0].second, at::zeros({2})));
}

TEST(Checkpoint, WhatItDoesNotKnowStaysIfAllowed) {
  const ScratchFolder folder;
  std::int64_t step = 5;
  std::int64_t more = 7;
  Checkpoint().track("step", &step).track("unused", &more).write(folder / "c");
  step = 0;
  const LogCapture log;
  Checkpoint().track("step", &step).track("more", &more).read(folder / "c", {.strict = false});
  EXPECT_EQ(step, 5);
  EXPECT_EQ(more, 7);
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("no part 'more'")));
}

Variable on_read(VariableAggregation aggregation) {
  return Variable(0.0, {.synchronization = VariableSynchronization::kOnRead, .aggregation = aggregation});
}

TEST(Checkpoint, VariablesComeBackOnAnotherNumberOfReplicas) {
  const ScratchFolder folder;
  {
    MirroredStrategy strategy(cpus(2));
    const auto scope = strategy.scope();
    Variable weight(at::ones({3}));
    auto sum = on_read(VariableAggregation::kSum);
    strategy.run([&] { sum.assign_add(3.0); });
    Checkpoint().track("weight", weight).track("sum", sum).write(folder / "c");
  }
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  Variable weight(at::zeros({3}));
  auto sum = on_read(VariableAggregation::kSum);
  Checkpoint().track("weight", weight).track("sum", sum).read(folder / "c");
  for (const auto& component : weight.components()) EXPECT_TRUE(at::equal(component.detach(), at::ones({3})));
  EXPECT_EQ(sum.read_value().item<float>(), 6);
}

TEST(Checkpoint, IsRefusedInsideRun) {
  const ScratchFolder folder;
  MirroredStrategy strategy(cpus(2));
  Checkpoint checkpoint(strategy);
  checkpoint.write(folder / "c");
  EXPECT_THAT([&] { strategy.run([&] { checkpoint.write(folder / "d"); }); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "inside run()"));
  EXPECT_THAT([&] { strategy.run([&] { checkpoint.read(folder / "c"); }); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "inside run()"));
}

TEST(Checkpoint, RandomNumbersGoOnWhereTheyWere) {
  const ScratchFolder folder;
  const auto draw = [](Strategy& strategy) { return strategy.run([] { return at::rand({8}); }); };
  MirroredStrategy saved(cpus(2), {.seed = 5});
  draw(saved);
  Checkpoint(saved).track_generators().write(folder / "c");
  const auto here = at::rand({8});
  const auto expected = draw(saved);
  MirroredStrategy restored(cpus(3), {.seed = 6});
  Checkpoint(restored).track_generators().read(folder / "c");
  EXPECT_TRUE(at::equal(at::rand({8}), here));
  const auto continued = draw(restored);
  for (std::size_t replica = 0; replica < 2; ++replica) EXPECT_TRUE(at::equal(continued[replica], expected[replica]));
  EXPECT_FALSE(at::equal(continued[2], continued[0]));
}

TEST(Checkpoint, LearnsItsStrategyFromWhatIsTrackedLater) {
  const ScratchFolder folder;
  MirroredStrategy strategy(cpus(2));
  std::optional<Variable> variable;
  {
    const auto scope = strategy.scope();
    variable.emplace(1.0);
  }
  Checkpoint checkpoint;
  checkpoint.track_generators().track("v", *variable).write(folder / "c");
  EXPECT_THAT(read_manifest(folder / "c").replicas, ElementsAre(2));
  EXPECT_THAT(read_manifest(folder / "c").find_part("generators")->blobs,
              IsSupersetOf({"process-0", "replica-0", "replica-1"}));  // and those of GPUs
}

TEST(Checkpoint, ADatasetGoesOnWhereItWas) {
  const ScratchFolder folder;
  const auto dataset = data::Dataset::from_tensor_slices({at::arange(100)}).shuffle(20, 3).batch(6);
  MirroredStrategy strategy(cpus(2));
  const auto distributed = strategy.experimental_distribute_dataset(dataset);
  auto local = data::Iterator(dataset.node());
  auto iterator = distributed.make_iterator();
  for (int i = 0; i < 5; ++i) iterator.next();
  local.next();
  Checkpoint(strategy).track("data", iterator).track("local", local).write(folder / "c");
  const auto expected = iterator.get_next();
  const auto expected_local = local.next();
  auto new_iterator = distributed.make_iterator();
  auto new_local = data::Iterator(dataset.node());
  Checkpoint checkpoint(strategy);
  checkpoint.track("data", new_iterator).track("local", new_local).read(folder / "c");
  const auto found = new_iterator.get_next();
  for (std::size_t replica = 0; replica < 2; ++replica) EXPECT_TRUE(at::equal(found[replica][0], expected[replica][0]));
  EXPECT_TRUE(at::equal((*new_local.next())[0], (*expected_local)[0]));
}

TEST(CheckpointOfAVariable, GivesAnInitialValueAndOverwritesNothingUnasked) {
  const ScratchFolder folder;
  const Variable plain(at::ones({5}));
  Checkpoint().track("v", plain).write(folder / "c");

  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const CheckpointPart loaded{load_weights(folder / "c/state.safetensors").tensors, {}};
  Variable variable(*loaded.find("v/value"));
  for (const auto& component : variable.components()) EXPECT_TRUE(at::equal(component, at::ones({5})));
  variable.assign(at::zeros({5}));
  Checkpoint checkpoint(strategy);
  checkpoint.track("v", variable);
  for (const auto& component : variable.components()) EXPECT_TRUE(at::equal(component, at::zeros({5})));
  checkpoint.read(folder / "c");
  for (const auto& component : variable.components()) EXPECT_TRUE(at::equal(component, at::ones({5})));
}

// Of a worker that is a thread of this test.
std::shared_ptr<ReplicaSet> replicas_of(WorkerGroup& group) {
  std::vector<LogicalDevice> devices;
  for (int i = 0; i < group.layout().local_replicas(); ++i) devices.push_back(find_logical_device(str("CPU:", i)));
  ReplicaSetOptions options;
  options.workers = std::shared_ptr<WorkerGroup>(std::shared_ptr<void>(), &group);
  return std::make_shared<ReplicaSet>(nullptr, std::move(devices), options);
}

TEST(CheckpointOfWorkers, IsWrittenOnceAndReadByAll) {
  const ScratchFolder folder;
  on_workers({2, 1}, [&](WorkerGroup& group) {
    const auto replicas = replicas_of(group);
    auto thing = std::make_shared<Thing>(NamedTensors{{"a", at::full({2}, group.layout().rank)}});
    Checkpoint checkpoint(replicas);
    checkpoint.track("thing", thing).track_generators();
    for (int replica = 0; replica < replicas->size(); ++replica) replicas->manual_seed(17);
    CheckpointManager manager(checkpoint, folder / "d");
    EXPECT_EQ(manager.save(3), folder / "d/ckpt-1");
    manager.wait();
    const auto state = replicas->generator_state(0);
    replicas->manual_seed(18);
    thing->state.tensors[0].second.fill_(9);
    const auto restored = manager.restore_latest();
    EXPECT_EQ(restored.value().info.step, 3);
    EXPECT_TRUE(at::equal(thing->state.tensors[0].second, at::zeros({2})));  // worker 0's
    EXPECT_TRUE(at::equal(replicas->generator_state(0), state));
  });
  const auto manifest = read_manifest(folder / "d/ckpt-1");
  EXPECT_THAT(manifest.replicas, ElementsAre(2, 1));
  EXPECT_THAT(manifest.find_part("generators")->blobs,
              IsSupersetOf({"process-0", "process-1", "replica-0", "replica-1", "replica-2"}));
}

TEST(CheckpointOfWorkers, EachGetsItsOwnPosition) {
  const ScratchFolder folder;
  const auto dataset = [](AutoShardPolicy policy) { return data::Dataset::range(40).batch(4).with_options({policy}); };
  for (const auto policy : {AutoShardPolicy::kData, AutoShardPolicy::kOff}) {
    const auto path = folder / str("c", static_cast<int>(policy));
    on_workers({1, 1}, [&](WorkerGroup& group) {
      const auto replicas = replicas_of(group);
      const auto distributed = DistributedDataset::from_dataset(*replicas, dataset(policy));
      auto iterator = distributed.make_iterator();
      iterator.next();
      Checkpoint(replicas).track("data", iterator).write(path);
      const auto expected = iterator.get_next();
      auto again = distributed.make_iterator();
      Checkpoint(replicas).track("data", again).read(path);
      EXPECT_TRUE(at::equal(again.get_next()[0][0], expected[0][0]));
      group.barrier("read");
    });
    on_workers({1, 1, 1}, [&](WorkerGroup& group) {
      const auto replicas = replicas_of(group);
      auto iterator = DistributedDataset::from_dataset(*replicas, dataset(policy)).make_iterator();
      Checkpoint checkpoint(replicas);
      checkpoint.track("data", iterator);
      if (policy == AutoShardPolicy::kData) checkpoint.read(path);
      else EXPECT_THAT([&] { checkpoint.read(path); }, ThrowsCode(ErrorCode::kInvalidArgument, "2 workers"));
    });
  }
}

TEST(CheckpointOfWorkers, AFailureOfOneIsEverybodys) {
  const ScratchFolder folder;
  folder.write("file", "");
  on_workers({1, 1}, [&](WorkerGroup& group) {
    const auto replicas = replicas_of(group);
    std::int64_t step = 1;
    Checkpoint checkpoint(replicas);
    checkpoint.track("step", &step);
    CheckpointManager manager(checkpoint, folder / "file/d");
    EXPECT_THAT([&] { manager.save(1); }, ThrowsCode(ErrorCode::kNotFound, "file/d"));
    checkpoint.write(folder / "good");
    // One that cannot see the folder, or has something else.
    if (group.layout().rank == 1) checkpoint.track("other", &step);
    EXPECT_THAT([&] { checkpoint.read(folder / "good"); }, ThrowsCode(ErrorCode::kInvalidArgument, "other"));
    EXPECT_FALSE(CheckpointManager(checkpoint, folder / "empty").restore_latest());
  });
}

// A part that communicates, but on the second worker fails before.
struct Talking : Thing {
  explicit Talking(WorkerGroup& workers) : group(workers) {}
  CheckpointPart save() override {
    if (group.layout().rank == 1) throw Error(ErrorCode::kDataLoss, "one's own");
    group.exchange("what a part asks", "");
    return {};
  }
  WorkerGroup& group;
};

TEST(CheckpointOfWorkers, OnesOwnErrorIsThrownWhenTheOthersAreInACallOfAPart) {
  const ScratchFolder folder;
  on_workers({1, 1}, [&](WorkerGroup& group) {
    Checkpoint checkpoint(replicas_of(group));
    checkpoint.track("talking", std::make_shared<Talking>(group));
    std::string said;
    try {
      checkpoint.write(folder / "c");
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_THAT(said, HasSubstr(group.layout().rank == 1 ? "kDataLoss: one's own" : "different collectives"));
  });
}

TEST(CheckpointOfWorkers, WhatIsNoExceptionIsEverybodysFailureToo) {
  on_workers({1, 1}, [&](WorkerGroup& group) {
    const auto act = [&] {
      return internal::together(&group, "odd", [&]() -> std::string {
        if (group.layout().rank == 1) throw 42;
        return "";
      });
    };
    if (group.layout().rank == 1) {
      EXPECT_THROW(act(), int);
    } else {
      EXPECT_THAT(act, ThrowsCode(ErrorCode::kInternal, "no std::exception"));
    }
  });
}

struct Saved {
  explicit Saved(float value) : thing(std::make_shared<Thing>(NamedTensors{{"a", at::full({1000}, value)}})) {
    checkpoint.track("thing", thing);
  }
  float value() const { return thing->state.tensors[0].second[7].item<float>(); }
  void set(float value) const { thing->state.tensors[0].second.fill_(value); }

  std::shared_ptr<Thing> thing;
  Checkpoint checkpoint;
};

TEST(CheckpointManager, SavesWhatWasThereWhenItWasCalled) {
  const ScratchFolder folder;
  const Saved saved(1);
  {
    CheckpointManager manager(saved.checkpoint, folder / "d", {.max_to_keep = 2});
    EXPECT_FALSE(manager.restore_latest());
    EXPECT_FALSE(manager.latest_checkpoint());
    for (int step = 1; step <= 5; ++step) {
      saved.set(static_cast<float>(step));
      manager.save(step);
      saved.set(-1);  // training goes on
    }
    manager.wait();
    EXPECT_THAT(manager.checkpoints(), ElementsAre(folder / "d/ckpt-4", folder / "d/ckpt-5"));
    manager.save(6);
  }
  CheckpointManager manager(saved.checkpoint, folder / "d");
  EXPECT_EQ(manager.latest_checkpoint(), folder / "d/ckpt-6");  // its destructor waited
  remove_tree(real_files(), folder / "d/ckpt-6");
  EXPECT_EQ(manager.restore_latest()->info.step, 5);
  EXPECT_EQ(saved.value(), 5);
}

TEST(CheckpointManager, RestoresTheBest) {
  const ScratchFolder folder;
  const Saved saved(0);
  CheckpointManager manager(saved.checkpoint, folder / "d", {.max_to_keep = 1, .keep_best = "loss"});
  EXPECT_FALSE(manager.restore_best());
  for (const float loss : {3.F, 1.F, 2.F}) {
    saved.set(loss);
    manager.save({.metrics = {{"loss", loss}}});
  }
  EXPECT_EQ(manager.restore_best()->number, 2);
  EXPECT_EQ(saved.value(), 1);
  manager.remove_all();
  EXPECT_THAT(real_files().list(folder.path()), ElementsAre());
}

TEST(CheckpointManager, UsesTheLastGoodOneAndSaysSo) {
  const ScratchFolder folder;
  const Saved saved(1);
  CheckpointManager manager(saved.checkpoint, folder / "d", {.async = false});
  manager.save(1);
  saved.set(2);
  const auto path = manager.save(2);
  ASSERT_EQ(truncate((path + "/state.safetensors").c_str(), 50), 0);
  {
    const LogCapture log;
    EXPECT_EQ(manager.restore_latest()->number, 1);
    EXPECT_EQ(saved.value(), 1);
    EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("ckpt-2/state.safetensors' is damaged")));
  }
  ASSERT_EQ(truncate((folder / "d/ckpt-1/manifest.json").c_str(), 50), 0);
  saved.set(5);
  EXPECT_THAT([&] { manager.restore_latest(); },
              ThrowsCode(ErrorCode::kDataLoss, "no checkpoint", "ckpt-2/state.safetensors", "ckpt-1/manifest.json"));
  EXPECT_EQ(saved.value(), 5);
}

TEST(CheckpointManager, AFailureInTheBackgroundIsToldByTheNextCall) {
  const ScratchFolder folder;
  CrashingFiles files(folder.path());
  const Saved saved(1);
  CheckpointManager manager(saved.checkpoint, folder / "d", {.files = &files});
  manager.save(1);
  manager.wait();
  files.end_at(3, CrashingFiles::End::kError);
  manager.save(2);
  EXPECT_THAT([&] { manager.save(3); }, ThrowsCode(ErrorCode::kUnavailable, "the disk is full"));
  EXPECT_EQ(manager.restore_latest()->info.step, 1);
  manager.save(4);
  manager.wait();
  EXPECT_EQ(manager.restore_latest()->info.step, 4);
  EXPECT_THAT(real_files().list(folder / "d"), ElementsAre(".lock", "ckpt-1", "ckpt-2"));
}

TEST(CheckpointManager, TwoInOneDirectoryAreToldOfEachOther) {
  const ScratchFolder folder;
  const Saved saved(1);
  CheckpointManager first(saved.checkpoint, folder.path());
  CheckpointManager second(saved.checkpoint, folder.path());
  first.save(1);
  EXPECT_THAT([&] { second.save(1); }, ThrowsCode(ErrorCode::kFailedPrecondition, str("process ", getpid())));
  first.wait();
  EXPECT_EQ(second.restore_latest()->info.step, 1);
}

}  // namespace
}  // namespace lockstep
