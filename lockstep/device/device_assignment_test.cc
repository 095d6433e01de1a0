#include "lockstep/device/device_assignment.h"

#include <limits>
#include <numeric>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::ThrowsCode;

using Cores = std::vector<Coordinates>;

// A mesh with a device everywhere, divided evenly among tasks, in the order of their places.
Topology full_mesh(const std::vector<int>& shape, int tasks = 1) {
  std::vector<Coordinates> places;
  for (int x = 0; x < shape[0]; ++x)
    for (int y = 0; y < shape[1]; ++y)
      for (int z = 0; z < shape[2]; ++z)
        for (int core = 0; core < shape[3]; ++core) places.push_back({x, y, z, core});
  const auto share = static_cast<std::ptrdiff_t>(places.size()) / tasks;
  std::vector<std::vector<Coordinates>> devices;
  for (int task = 0; task < tasks; ++task)
    devices.emplace_back(places.begin() + task * share, places.begin() + (task + 1) * share);
  return Topology({.mesh_shape = shape, .device_coordinates = devices});
}

// [2, 2, 1, 2] with the devices of chip (1, 0) missing: three tasks with a chip each, not in the order of places.
Topology holed_mesh() {
  return Topology(
      {.mesh_shape = {2, 2, 1, 2},
       .device_coordinates = {{{1, 1, 0, 0}, {1, 1, 0, 1}}, {{0, 0, 0, 0}, {0, 0, 0, 1}}, {{0, 1, 0, 0}, {0, 1, 0, 1}}}});
}

std::vector<int> ordinals(const DeviceAssignment& assignment) {
  std::vector<int> all;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica)
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core)
      all.push_back(assignment.device_ordinal(replica, core));
  return all;
}

std::vector<int> count_up(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(DeviceAssignment, KeepsWhatItIsGiven) {
  const DeviceAssignment assignment(full_mesh({2, 2, 1, 2}, 2),
                                    {{{1, 1, 0, 1}, {0, 0, 0, 0}}, {{0, 1, 0, 0}, {1, 0, 0, 1}}, {{1, 1, 0, 0}, {0, 1, 0, 1}}});
  EXPECT_EQ(assignment.num_replicas(), 3);
  EXPECT_EQ(assignment.num_cores_per_replica(), 2);
  EXPECT_EQ(assignment.topology(), full_mesh({2, 2, 1, 2}, 2));
  EXPECT_EQ(assignment.coordinates(1, 0), (Coordinates{0, 1, 0, 0}));
  EXPECT_EQ(assignment.core_assignment()[2], (Cores{{1, 1, 0, 0}, {0, 1, 0, 1}}));
  EXPECT_EQ(assignment.device_ordinal(0, 0), 3);
  EXPECT_EQ(assignment.tpu_ordinal(0, 0), 3);
  EXPECT_EQ(assignment.tpu_ordinal(0, 1), 0);
  EXPECT_EQ(assignment.host_device(0, 0, "worker"), "/job:worker/task:1/device:CPU:0");
  EXPECT_EQ(assignment.tpu_device(0, 0, "worker"), "/job:worker/task:1/device:TPU:3");
  EXPECT_EQ(assignment.host_device(), "/task:1/device:CPU:0");
  EXPECT_EQ(assignment.tpu_device(1), "/task:0/device:TPU:2");
}

TEST(DeviceAssignment, FindsTheReplicasOfATask) {
  const DeviceAssignment assignment(full_mesh({2, 2, 1, 2}, 2),
                                    {{{1, 1, 0, 1}, {0, 0, 0, 0}}, {{0, 1, 0, 0}, {0, 0, 0, 1}}, {{1, 1, 0, 0}, {0, 1, 0, 1}}});
  EXPECT_THAT(assignment.lookup_replicas(0, 0), ElementsAre(1));
  EXPECT_THAT(assignment.lookup_replicas(1, 0), ElementsAre(0, 2));
  EXPECT_THAT(assignment.lookup_replicas(0, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT([&] { assignment.lookup_replicas(1, 1); },
              ThrowsCode(ErrorCode::kInvalidArgument, "no replica", "logical core 1", "task 1"));
  for (const auto& at : {std::pair{2, 0}, {-1, 0}, {0, 2}, {0, -1}})
    EXPECT_THAT([&] { assignment.lookup_replicas(at.first, at.second); }, ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(DeviceAssignment, RefusesReplicasAndCoresThatAreNotThere) {
  const auto assignment =
      DeviceAssignment::build(Topology::of_devices(8, 2), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  for (const auto& at : {std::pair{4, 0}, {-1, 0}, {0, 2}, {0, -1}}) {
    EXPECT_THAT([&] { assignment.coordinates(at.first, at.second); },
                ThrowsCode(ErrorCode::kOutOfRange, "4 replicas with 2 logical cores"));
    EXPECT_THAT([&] { assignment.device_ordinal(at.first, at.second); }, ThrowsCode(ErrorCode::kOutOfRange));
    EXPECT_THAT([&] { assignment.host_device(at.first, at.second); }, ThrowsCode(ErrorCode::kOutOfRange));
  }
}

TEST(DeviceAssignment, RefusesCoresThatCannotBe) {
  const auto with = [](const std::vector<Cores>& cores) { return DeviceAssignment(holed_mesh(), cores); };
  EXPECT_THAT([&] { with({}); }, ThrowsCode(ErrorCode::kInvalidArgument, "no device"));
  EXPECT_THAT([&] { with(std::vector<Cores>(3)); }, ThrowsCode(ErrorCode::kInvalidArgument, "no device"));
  EXPECT_THAT(
      [&] {
        with({{{0, 0, 0, 0}}, {{0, 0, 0, 1}, {1, 1, 0, 0}}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "2 cores for replica 1", "equally many"));
  EXPECT_THAT([&] { with({{{0, 0, 0}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[0, 0, 0]", "four numbers"));
  EXPECT_THAT([&] { with({{{0, 0, 0, 2}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[0, 0, 0, 2]", "no device"));
  EXPECT_THAT([&] { with({{{-1, 0, 0, 0}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[-1, 0, 0, 0]", "no device"));
  EXPECT_THAT([&] { with({{{1, 0, 0, 0}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[1, 0, 0, 0]", "no device"));
  EXPECT_THAT(
      [&] {
        with({{{0, 0, 0, 0}}, {{0, 0, 0, 0}}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "core 0 of replica 1", "given before"));
}

TEST(DeviceAssignmentBuild, GivesOneReplicaOneCoreWhenNothingElseIsSaid) {
  const auto assignment = DeviceAssignment::build(full_mesh({2, 2, 1, 2}));
  EXPECT_EQ(assignment.core_assignment(), (std::vector<Cores>{{{0, 0, 0, 0}}}));
}

TEST(DeviceAssignmentBuild, TakesATopologysBytes) {
  const DeviceAssignmentOptions options{.computation_shape = {1, 1, 1, 2}, .num_replicas = 4};
  EXPECT_EQ(DeviceAssignment::build(full_mesh({2, 2, 1, 2}).serialized(), options),
            DeviceAssignment::build(full_mesh({2, 2, 1, 2}), options));
  EXPECT_THAT([&] { DeviceAssignment::build("other bytes", options); }, ThrowsCode(ErrorCode::kInvalidArgument, "Topology"));
}

TEST(DeviceAssignmentBuild, CountsReplicasAlongTheCoreThenX) {
  const auto assignment = DeviceAssignment::build(full_mesh({2, 2, 1, 2}), {.num_replicas = 8});
  EXPECT_THAT(assignment.core_assignment(),
              ElementsAre(Cores{{0, 0, 0, 0}}, Cores{{0, 0, 0, 1}}, Cores{{1, 0, 0, 0}}, Cores{{1, 0, 0, 1}},
                          Cores{{0, 1, 0, 0}}, Cores{{0, 1, 0, 1}}, Cores{{1, 1, 0, 0}}, Cores{{1, 1, 0, 1}}));
}

TEST(DeviceAssignmentBuild, KeepsReplicasCloseTogether) {
  const auto assignment = DeviceAssignment::build(full_mesh({4, 4, 1, 2}), {.num_replicas = 4});
  EXPECT_THAT(assignment.core_assignment(),
              ElementsAre(Cores{{0, 0, 0, 0}}, Cores{{0, 0, 0, 1}}, Cores{{1, 0, 0, 0}}, Cores{{1, 0, 0, 1}}));
}

TEST(DeviceAssignmentBuild, CountsLogicalCoresAlongTheCoreThenZ) {
  const auto assignment = DeviceAssignment::build(full_mesh({2, 2, 2, 2}), {.computation_shape = {2, 2, 1, 2}});
  EXPECT_THAT(
      assignment.core_assignment(),
      ElementsAre(Cores{
          {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 1, 0, 0}, {0, 1, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1}, {1, 1, 0, 0}, {1, 1, 0, 1}}));
}

TEST(DeviceAssignmentBuild, ReplicasLieBetweenTheCoresOfOthersWhenThereIsAStride) {
  const auto assignment = DeviceAssignment::build(
      full_mesh({8, 1, 1, 1}), {.computation_shape = {2, 1, 1, 1}, .computation_stride = {2, 1, 1, 1}, .num_replicas = 4});
  EXPECT_THAT(ordinals(assignment), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  const auto of_cores = DeviceAssignment::build(
      full_mesh({2, 1, 1, 4}), {.computation_shape = {1, 1, 1, 2}, .computation_stride = {1, 1, 1, 2}, .num_replicas = 4});
  EXPECT_THAT(ordinals(of_cores), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

TEST(DeviceAssignmentBuild, PairsTheCoresOfOneMachine) {
  for (const int cores : {2, 4, 6, 8}) {
    const auto assignment =
        DeviceAssignment::build(Topology::of_devices(cores, 2), {.computation_shape = {1, 1, 1, 2}, .num_replicas = cores / 2});
    EXPECT_EQ(assignment.num_replicas(), cores / 2);
    EXPECT_EQ(assignment.num_cores_per_replica(), 2);
    EXPECT_EQ(ordinals(assignment), count_up(cores));
  }
}

TEST(DeviceAssignmentBuild, TakesOneMachinesDevicesInOrder) {
  for (const auto mode : {DeviceOrderMode::kAuto, DeviceOrderMode::kMesh, DeviceOrderMode::kRing}) {
    for (const int per_replica : {1, 2, 3, 4}) {
      const auto as_chips = DeviceAssignment::build(
          Topology::of_devices(12),
          {.computation_shape = {per_replica, 1, 1, 1}, .num_replicas = 12 / per_replica, .device_order_mode = mode});
      EXPECT_EQ(ordinals(as_chips), count_up(12));
      const auto as_cores = DeviceAssignment::build(
          Topology::of_devices(12, per_replica),
          {.computation_shape = {1, 1, 1, per_replica}, .num_replicas = 12 / per_replica, .device_order_mode = mode});
      EXPECT_EQ(ordinals(as_cores), count_up(12));
    }
  }
}

TEST(DeviceAssignmentBuild, WholeChipsFollowARing) {
  const auto assignment =
      DeviceAssignment::build(full_mesh({2, 2, 1, 2}), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  EXPECT_THAT(assignment.core_assignment(), ElementsAre(Cores{{0, 0, 0, 0}, {0, 0, 0, 1}}, Cores{{1, 0, 0, 0}, {1, 0, 0, 1}},
                                                        Cores{{1, 1, 0, 0}, {1, 1, 0, 1}}, Cores{{0, 1, 0, 0}, {0, 1, 0, 1}}));
}

TEST(DeviceAssignmentBuild, TheChipsOfAReplicaFollowARingToo) {
  const auto assignment =
      DeviceAssignment::build(full_mesh({4, 2, 1, 1}), {.computation_shape = {2, 2, 1, 1}, .num_replicas = 2});
  EXPECT_THAT(assignment.core_assignment(), ElementsAre(Cores{{0, 0, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}, {0, 1, 0, 0}},
                                                        Cores{{2, 0, 0, 0}, {3, 0, 0, 0}, {3, 1, 0, 0}, {2, 1, 0, 0}}));
}

TEST(DeviceAssignmentBuild, GoesRowByRowWhenAMeshIsAskedFor) {
  const auto assignment = DeviceAssignment::build(
      full_mesh({2, 2, 1, 2}),
      {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4, .device_order_mode = DeviceOrderMode::kMesh});
  EXPECT_EQ(assignment.coordinates(2, 0), (Coordinates{0, 1, 0, 0}));
  EXPECT_EQ(assignment.coordinates(3, 1), (Coordinates{1, 1, 0, 1}));
}

TEST(DeviceAssignmentBuild, SaysWhyThereCanBeNoRing) {
  const auto with = [](const Topology& topology, DeviceAssignmentOptions options) {
    options.device_order_mode = DeviceOrderMode::kRing;
    return DeviceAssignment::build(topology, options);
  };
  const auto mesh = full_mesh({2, 2, 1, 2});
  const auto is_refused = ThrowsCode(ErrorCode::kInvalidArgument, "cannot be in rings", "[2, 2, 1, 2]", "kAuto");
  EXPECT_THAT([&] { with(mesh, {.num_replicas = 8}); }, is_refused);                                     // half a chip each
  EXPECT_THAT([&] { with(mesh, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 3}); }, is_refused);  // not all
  EXPECT_THAT(
      [&] {
        with(mesh, {.computation_shape = {1, 1, 1, 2}, .computation_stride = {2, 1, 1, 1}, .num_replicas = 4});
      },
      is_refused);
  EXPECT_THAT([&] { with(holed_mesh(), {.computation_shape = {2, 1, 1, 2}, .num_replicas = 2}); }, is_refused);
  EXPECT_EQ(with(mesh, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4}).coordinates(2, 0), (Coordinates{1, 1, 0, 0}));
}

TEST(DeviceAssignmentBuild, NeedsFourNumbersOfAtLeastOne) {
  const auto mesh = full_mesh({2, 2, 1, 2});
  for (const std::vector<int>& wrong : {std::vector<int>{1}, {1, 1, 1}, {1, 1, 1, 1, 1}, {1, 1, 0, 1}, {1, -1, 1, 1}}) {
    EXPECT_THAT([&] { DeviceAssignment::build(mesh, {.computation_shape = wrong}); },
                ThrowsCode(ErrorCode::kInvalidArgument, "computation_shape is [", "give four numbers"));
    EXPECT_THAT([&] { DeviceAssignment::build(mesh, {.computation_stride = wrong}); },
                ThrowsCode(ErrorCode::kInvalidArgument, "computation_stride is [", "give four numbers"));
  }
  for (const int count : {0, -1})
    EXPECT_THAT([&] { DeviceAssignment::build(mesh, {.num_replicas = count}); },
                ThrowsCode(ErrorCode::kInvalidArgument, str("num_replicas is ", count)));
}

TEST(DeviceAssignmentBuild, RefusesWhatDoesNotFit) {
  const auto mesh = full_mesh({2, 2, 1, 2});
  const int largest = std::numeric_limits<int>::max();
  for (const DeviceAssignmentOptions& options :
       {DeviceAssignmentOptions{.computation_shape = {3, 1, 1, 1}},
        {.computation_stride = {1, 1, 2, 1}},
        {.computation_shape = {2, 1, 1, 1}, .computation_stride = {2, 1, 1, 1}},
        {.computation_shape = {largest, 1, 1, 1}, .computation_stride = {largest, 1, 1, 1}}})
    EXPECT_THAT([&] { DeviceAssignment::build(mesh, options); },
                ThrowsCode(ErrorCode::kInvalidArgument, "does not fit in a mesh of [2, 2, 1, 2]"));
  EXPECT_THAT([&] { DeviceAssignment::build(mesh, {.num_replicas = 9}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "num_replicas is 9", "only 8 replicas"));
  EXPECT_THAT(
      [&] {
        DeviceAssignment::build(mesh, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 5});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "num_replicas is 5", "only 4 replicas"));
}

TEST(DeviceAssignmentBuild, TakesDevicesInTheOrderOfTasksWhereSomeAreMissing) {
  const auto assignment = DeviceAssignment::build(holed_mesh(), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 3});
  EXPECT_THAT(assignment.core_assignment(), ElementsAre(Cores{{1, 1, 0, 0}, {1, 1, 0, 1}}, Cores{{0, 0, 0, 0}, {0, 0, 0, 1}},
                                                        Cores{{0, 1, 0, 0}, {0, 1, 0, 1}}));
  EXPECT_THAT(assignment.lookup_replicas(2, 1), ElementsAre(2));
  EXPECT_THAT(
      [] {
        DeviceAssignment::build(holed_mesh(), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "4 replicas with 2 devices each", "only 6 devices"));
  EXPECT_THAT(
      [] {
        DeviceAssignment::build(holed_mesh(), {.computation_stride = {1, 1, 1, 2}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "computation_stride", "missing devices"));
}

}  // namespace
}  // namespace lockstep
