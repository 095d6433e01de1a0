#include "lockstep/device/divide_mesh.h"

#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "tests/support/testing.h"

namespace lockstep::internal {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;

int product(const std::vector<int>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 1, std::multiplies<>()); }

int distance(const Coordinates& a, const Coordinates& b) {
  int steps = 0;
  for (std::size_t d = 0; d < a.size(); ++d) steps += std::abs(a[d] - b[d]);
  return steps;
}

TEST(ReplicaShape, IsAsMuchOfACubeAsCanBe) {
  EXPECT_THAT(replica_shape({4, 4, 1, 2}, 4), ElementsAre(2, 1, 1, 2));
  EXPECT_THAT(replica_shape({2, 2, 1, 2}, 8), ElementsAre(2, 2, 1, 2));
  EXPECT_THAT(replica_shape({4, 4, 4, 4}, 1), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(replica_shape({4, 4, 4, 4}, 16), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(replica_shape({4, 4, 4, 4}, 17), ElementsAre(2, 2, 2, 3));
  EXPECT_THAT(replica_shape({9, 9, 9, 1}, 27), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(replica_shape({1 << 20, 1, 1, 1}, 1 << 20), ElementsAre(1 << 20, 1, 1, 1));
}

TEST(ReplicaShape, HasRoomForAllAndFits) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int> most(4);
    for (auto& size : most) size = static_cast<int>(random() % 6) + 1;
    const int replicas = static_cast<int>(random() % static_cast<unsigned>(product(most))) + 1;
    const auto shape = replica_shape(most, replicas);
    ASSERT_GE(product(shape), replicas);
    ASSERT_THAT(shape, Each(Ge(1)));
    for (std::size_t d = 0; d < 4; ++d) ASSERT_LE(shape[d], most[d]);
  }
}

TEST(Ring, GoesThroughRowsAndHomeAlongTheFirstColumn) {
  EXPECT_THAT(ring({2, 2, 1, 1}),
              ElementsAre(Coordinates{0, 0, 0, 0}, Coordinates{1, 0, 0, 0}, Coordinates{1, 1, 0, 0}, Coordinates{0, 1, 0, 0}));
  std::vector<std::pair<int, int>> places;
  for (const auto& chip : ring({4, 4, 1, 1})) places.emplace_back(chip[0], chip[1]);
  EXPECT_EQ(places, (std::vector<std::pair<int, int>>{{0, 0},
                                                      {1, 0},
                                                      {2, 0},
                                                      {3, 0},
                                                      {3, 1},
                                                      {2, 1},
                                                      {1, 1},
                                                      {1, 2},
                                                      {2, 2},
                                                      {3, 2},
                                                      {3, 3},
                                                      {2, 3},
                                                      {1, 3},
                                                      {0, 3},
                                                      {0, 2},
                                                      {0, 1}}));
}

TEST(Ring, OfEvenSizesComesHomeStepByStep) {
  for (const int x : {1, 2, 4, 6}) {
    for (const int y : {1, 2, 4}) {
      for (const int z : {1, 2, 4}) {
        if ((x > 1) + (y > 1) + (z > 1) < 2) continue;
        const auto chips = ring({x, y, z, 2});
        ASSERT_EQ(chips.size(), static_cast<std::size_t>(x * y * z));
        EXPECT_EQ(std::set(chips.begin(), chips.end()).size(), chips.size());
        EXPECT_EQ(chips.front(), (Coordinates{0, 0, 0, 0}));
        for (std::size_t i = 0; i < chips.size(); ++i)
          EXPECT_EQ(distance(chips[i], chips[(i + 1) % chips.size()]), 1) << x << " " << y << " " << z << " at " << i;
      }
    }
  }
}

TEST(Ring, OfALineGoesToItsEnd) {
  for (std::size_t dimension = 0; dimension < 3; ++dimension) {
    std::vector<int> box(4, 1);
    box[dimension] = 4;
    const auto chips = ring(box);
    ASSERT_EQ(chips.size(), 4U);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(chips[static_cast<std::size_t>(i)][dimension], i);
  }
}

TEST(Ring, OfOddSizesGoesRowByRow) {
  std::vector<std::vector<int>> places;
  for (const auto& chip : ring({3, 2, 1, 1})) places.push_back({chip[0], chip[1]});
  EXPECT_EQ(places, (std::vector<std::vector<int>>{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(ring({2, 2, 3, 1})[4], (Coordinates{0, 0, 1, 0}));
}

// Drawn by lot: a mesh, what a replica has of it, how far apart, and how many.
struct Case {
  std::vector<int> mesh = {};
  DeviceAssignmentOptions options = {};
  int most = 1;
};

Case draw(std::mt19937_64& random) {
  Case drawn;
  const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)) + 1; };
  for (int d = 0; d < 4; ++d) {
    const int size = up_to(d < 2 ? 6 : 3);
    const int shape = up_to(size);
    const int stride = random() % 2 == 0 ? 1 : up_to(size / shape);
    drawn.mesh.push_back(size);
    drawn.options.computation_shape.push_back(shape);
    drawn.options.computation_stride.push_back(stride);
    drawn.most *= size / (shape * stride) * stride;
  }
  drawn.options.num_replicas = random() % 3 == 0 ? drawn.most : up_to(drawn.most);
  drawn.options.device_order_mode = random() % 2 == 0 ? DeviceOrderMode::kAuto : DeviceOrderMode::kMesh;
  return drawn;
}

Topology topology_of(const std::vector<int>& mesh) {
  std::vector<Coordinates> devices;
  for (const auto& chip : ring({mesh[0], mesh[1], mesh[2], 1}))
    for (int core = 0; core < mesh[3]; ++core) devices.push_back({chip[0], chip[1], chip[2], core});
  return Topology({.mesh_shape = mesh, .device_coordinates = {devices}});
}

TEST(DivideMesh, GivesEachDeviceToOneReplicaAtMost) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto drawn = draw(random);
    const auto topology = topology_of(drawn.mesh);
    const auto replicas = divide_mesh(topology, drawn.options);
    ASSERT_EQ(replicas.size(), static_cast<std::size_t>(drawn.options.num_replicas));
    std::set<Coordinates> taken;
    for (const auto& cores : replicas) {
      ASSERT_EQ(cores.size(), static_cast<std::size_t>(product(drawn.options.computation_shape)));
      for (const auto& core : cores) {
        ASSERT_TRUE(topology.has_device_at(core)) << join(" ", core);
        ASSERT_TRUE(taken.insert(core).second) << join(" ", core);
      }
    }
  }
}

TEST(DivideMesh, GivesEveryReplicaAGridOfTheSameShape) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 1000; ++round) {
    const auto drawn = draw(random);
    for (const auto& cores : divide_mesh(topology_of(drawn.mesh), drawn.options)) {
      for (std::size_t d = 0; d < 4; ++d) {
        std::set<int> along;
        for (const auto& core : cores) along.insert(core[d]);
        ASSERT_EQ(along.size(), static_cast<std::size_t>(drawn.options.computation_shape[d]));
        ASSERT_EQ(*along.rbegin() - *along.begin(),
                  (drawn.options.computation_shape[d] - 1) * drawn.options.computation_stride[d]);
      }
    }
  }
}

TEST(DivideMesh, FitsExactlyAsManyReplicasAsItSays) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 500; ++round) {
    auto drawn = draw(random);
    drawn.options.num_replicas = drawn.most;
    EXPECT_EQ(divide_mesh(topology_of(drawn.mesh), drawn.options).size(), static_cast<std::size_t>(drawn.most));
    drawn.options.num_replicas = drawn.most + 1;
    EXPECT_THAT([&] { divide_mesh(topology_of(drawn.mesh), drawn.options); },
                testing::ThrowsCode(ErrorCode::kInvalidArgument, str("only ", drawn.most, " replicas")));
  }
}

}  // namespace
}  // namespace lockstep::internal
