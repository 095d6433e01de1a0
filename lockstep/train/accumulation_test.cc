#include "tests/support/train_testing.h"

// Several backward() calls a step, all but the last under no_sync().

namespace lockstep {
namespace {

using namespace testing;

const auto make_net = [] { return std::make_shared<SmallAndLarge>(); };

Weights train_on_whole_batches() {
  return train_alone(make_net, [](SmallAndLarge& net, int step) { return loss_of(net, batch(step, 8)); });
}

TEST(Accumulation, MicroBatchesEqualOneBatch) {
  const auto alone = train_on_whole_batches();
  for (const int replicas : {1, 2, 3})
    for (const int parts : {1, 2, 4})
      for (const bool overlap : {true, false}) {
        const auto together = train_together(replicas, {.gradients = {.overlap = overlap}}, make_net,
                                             [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                               const auto rows = part_of(batch(step, 8), context).tensor_split(parts);
                                               {
                                                 const auto no_sync = optimizer.no_sync();
                                                 for (int k = 0; k + 1 < parts; ++k)
                                                   loss_of(*model, rows[static_cast<std::size_t>(k)]).backward();
                                               }
                                               loss_of(*model, rows.back()).backward();
                                               optimizer.step();
                                             });
        expect_close(together, alone, str(replicas, " replicas, ", parts, " parts, overlap ", overlap));
      }
}

TEST(Accumulation, AllPartsMayComeUnderNoSync) {
  const auto together =
      train_together(3, {}, make_net, [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        {
          const auto outer = optimizer.no_sync();
          for (const auto& rows : part_of(batch(step, 8), context).split(1)) {
            const auto inner = optimizer.no_sync();
            loss_of(*model, rows).backward();
          }
        }
        optimizer.step();
      });
  expect_close(together, train_on_whole_batches(), "all under no_sync");
}

// As many parts as the replica has a number: sums do not depend on how often backward() was called.
TEST(Accumulation, ReplicasMayCutTheirRowsDifferently) {
  const auto together =
      train_together(3, {}, make_net, [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        const auto rows = part_of(batch(step, 8), context).tensor_split(1 + context.replica_id_in_sync_group());
        for (std::size_t k = 0; k + 1 < rows.size(); ++k) {
          const auto no_sync = optimizer.no_sync();
          loss_of(*model, rows[k]).backward();
        }
        loss_of(*model, rows.back()).backward();
        optimizer.step();
      });
  expect_close(together, train_on_whole_batches(), "different parts");
}

class AccumulationOverRuns : public ::testing::Test {
 protected:
  AccumulationOverRuns() {
    torch::manual_seed(3);
    model_.emplace(mirrored_from(make_net));
    optimizer_.emplace(lockstep::optimizer<Sgd>(*model_, 0.01));
  }
  // backward() for half of every replica's rows.
  void backward(int step, std::size_t half, const ReplicaContext& context) {
    loss_of(**model_, part_of(batch(step, 8), context).tensor_split(2)[half]).backward();
  }

  // An ordinary one, after which sums begin while backward() still runs.
  void first_step() {
    strategy_.run([&](ReplicaContext& context) {
      loss_of(**model_, part_of(batch(0, 8), context)).backward();
      optimizer_->step();
    });
  }

  MirroredStrategy strategy_{cpus(2)};
  Scope scope_ = strategy_.scope();
  std::optional<MirroredModule<SmallAndLarge>> model_;
  std::optional<Optimizer> optimizer_;
};

TEST_F(AccumulationOverRuns, MicroBatchesMayComeInRunsOfTheirOwn) {
  first_step();
  for (int step = 1; step < kSteps; ++step) {
    strategy_.run([&](ReplicaContext& context) {
      const auto no_sync = optimizer_->no_sync();
      backward(step, 0, context);
    });
    strategy_.run([&](ReplicaContext& context) {
      backward(step, 1, context);
      optimizer_->step();
    });
  }
  expect_close(weights_of(model_->at(0)), train_on_whole_batches(), "two runs a step");
  expect_equal_copies(*model_, "two runs a step");
}

TEST_F(AccumulationOverRuns, NoSyncMadeOutsideRunIsForAllReplicas) {
  first_step();
  for (int step = 1; step < kSteps; ++step) {
    {
      const auto no_sync = optimizer_->no_sync();
      strategy_.run([&](ReplicaContext& context) { backward(step, 0, context); });
    }
    strategy_.run([&](ReplicaContext& context) {
      backward(step, 1, context);
      optimizer_->step();
    });
  }
  expect_close(weights_of(model_->at(0)), train_on_whole_batches(), "no_sync outside run()");
  expect_equal_copies(*model_, "no_sync outside run()");
}

TEST_F(AccumulationOverRuns, NoSyncMadeOutsideRunLivesThroughAFailedRun) {
  first_step();
  for (int step = 1; step < kSteps; ++step) {
    {
      const auto no_sync = optimizer_->no_sync();
      EXPECT_THROW(strategy_.run([] { throw std::domain_error("planted"); }), std::domain_error);
      strategy_.run([&](ReplicaContext& context) { backward(step, 0, context); });
    }
    strategy_.run([&](ReplicaContext& context) {
      backward(step, 1, context);
      optimizer_->step();
    });
  }
  expect_close(weights_of(model_->at(0)), train_on_whole_batches(), "failed runs between");
}

// Without no_sync() the first part's sum may have begun.
TEST_F(AccumulationOverRuns, ASecondBackwardWithoutNoSyncIsRefusedAndTheNextStepIsRight) {
  for (int step = 0; step < kSteps; ++step) {
    if (step == 3) {
      EXPECT_THAT(
          [&] {
            strategy_.run([&](ReplicaContext& context) {
              backward(step, 0, context);
              backward(step, 1, context);
              optimizer_->step();
            });
          },
          ThrowsCode(ErrorCode::kFailedPrecondition, "came twice", "no_sync"));
    }
    strategy_.run([&](ReplicaContext& context) {
      loss_of(**model_, part_of(batch(step, 8), context)).backward();
      optimizer_->step();
    });
  }
  expect_close(weights_of(model_->at(0)), train_on_whole_batches(), "after a refused step");
}

TEST(Accumulation, WithoutOverlapNoSyncIsNotNeeded) {
  const auto together = train_together(2, {.gradients = {.overlap = false}}, make_net,
                                       [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                         for (const auto& rows : part_of(batch(step, 8), context).split(2))
                                           loss_of(*model, rows).backward();
                                         optimizer.step();
                                       });
  expect_close(together, train_on_whole_batches(), "without overlap");
}

// A model that does so from the first step on is never refused.
TEST(Accumulation, TwoBackwardsInEveryStepFromTheFirstOnAreAllowed) {
  const auto together =
      train_together(2, {}, make_net, [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        for (const auto& rows : part_of(batch(step, 8), context).split(3)) loss_of(*model, rows).backward();
        optimizer.step();
      });
  expect_close(together, train_on_whole_batches(), "two backwards");
}

}  // namespace
}  // namespace lockstep
