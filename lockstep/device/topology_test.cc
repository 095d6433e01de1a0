#include "lockstep/device/topology.h"

#include <cstdint>
#include <limits>

#include "lockstep/base/mix.h"
#include "tests/support/mutations.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::code_of;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Mutations;
using testing::ThrowsCode;

using Devices = std::vector<std::vector<Coordinates>>;

constexpr int kLargest = std::numeric_limits<int>::max();

// Two tasks with three devices each, in a mesh that has places for eight. The second task counts backwards.
Topology two_tasks() {
  return Topology(
      {.mesh_shape = {2, 2, 1, 2},
       .device_coordinates = {{{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}}, {{1, 1, 0, 1}, {1, 1, 0, 0}, {0, 1, 0, 1}}}});
}

// Bytes as they are written, with the sum that belongs to them.
std::string sealed(const std::string& bytes) {
  std::uint64_t sum = 0;
  for (const char byte : bytes) sum = mix(sum, static_cast<unsigned char>(byte));
  auto with_sum = bytes;
  for (int i = 0; i < 8; ++i) with_sum += static_cast<char>((sum >> (8 * i)) & 0xff);
  return with_sum;
}

std::string sealed_numbers(const std::vector<int>& numbers) {
  std::string bytes = "LTop0001";
  for (const int number : numbers) bytes += static_cast<char>(number);
  return sealed(bytes);
}

TEST(Topology, KnowsTheMeshAndItsDevices) {
  const auto topology = two_tasks();
  EXPECT_THAT(topology.mesh_shape(), ElementsAre(2, 2, 1, 2));
  EXPECT_EQ(topology.mesh_rank(), 4);
  EXPECT_EQ(topology.num_tasks(), 2);
  EXPECT_EQ(topology.num_devices_per_task(), 3);
  EXPECT_EQ(topology.num_tpus_per_task(), 3);
  EXPECT_EQ(topology.device_coordinates()[1][2], (Coordinates{0, 1, 0, 1}));
}

TEST(Topology, FindsTheTaskAndTheDeviceAtAPlace) {
  const auto topology = two_tasks();
  for (int task = 0; task < 2; ++task) {
    for (int device = 0; device < 3; ++device) {
      const auto& place = topology.device_coordinates()[static_cast<std::size_t>(task)][static_cast<std::size_t>(device)];
      EXPECT_TRUE(topology.has_device_at(place));
      EXPECT_EQ(topology.task_ordinal_at_coordinates(place), task);
      EXPECT_EQ(topology.device_ordinal_at_coordinates(place), device);
      EXPECT_EQ(topology.tpu_device_ordinal_at_coordinates(place), device);
    }
  }
}

TEST(Topology, NamesDevicesWithAJobAndWithout) {
  const auto topology = two_tasks();
  EXPECT_EQ(topology.cpu_device_name_at_coordinates({1, 1, 0, 0}, "worker"), "/job:worker/task:1/device:CPU:0");
  EXPECT_EQ(topology.tpu_device_name_at_coordinates({1, 1, 0, 0}, "worker"), "/job:worker/task:1/device:TPU:1");
  EXPECT_EQ(topology.cpu_device_name_at_coordinates({1, 0, 0, 0}), "/task:0/device:CPU:0");
  EXPECT_EQ(topology.tpu_device_name_at_coordinates({1, 0, 0, 0}), "/task:0/device:TPU:2");
}

TEST(Topology, ListsPlacesWithoutADevice) {
  EXPECT_THAT(two_tasks().missing_devices(), ElementsAre(Coordinates{0, 1, 0, 0}, Coordinates{1, 0, 0, 1}));
  EXPECT_TRUE(two_tasks().has_missing_devices());
  EXPECT_THAT(Topology({.mesh_shape = {2, 3, 1, 1}, .device_coordinates = {{{0, 0, 0, 0}, {0, 2, 0, 0}}}}).missing_devices(),
              ElementsAre(Coordinates{0, 1, 0, 0}, Coordinates{1, 0, 0, 0}, Coordinates{1, 1, 0, 0}, Coordinates{1, 2, 0, 0}));
  EXPECT_THAT(Topology::of_devices(8, 2).missing_devices(), IsEmpty());
  EXPECT_FALSE(Topology::of_devices(8, 2).has_missing_devices());
}

TEST(Topology, LookingWhereNothingIsSaysWhatIsWrong) {
  const auto topology = two_tasks();
  EXPECT_FALSE(topology.has_device_at({0, 1, 0, 0}));
  EXPECT_THAT([&] { topology.task_ordinal_at_coordinates({0, 1, 0, 0}); }, ThrowsCode(ErrorCode::kNotFound, "[0, 1, 0, 0]"));
  for (const Coordinates& outside : {Coordinates{2, 0, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, -1}, {kLargest, 0, 0, 0}}) {
    EXPECT_FALSE(topology.has_device_at(outside));
    EXPECT_THAT([&] { topology.device_ordinal_at_coordinates(outside); },
                ThrowsCode(ErrorCode::kOutOfRange, "outside the mesh", "[2, 2, 1, 2]"));
    EXPECT_THAT([&] { topology.tpu_device_name_at_coordinates(outside); }, ThrowsCode(ErrorCode::kOutOfRange));
  }
  for (const Coordinates& wrong : {Coordinates{}, {0, 0, 0}, {0, 0, 0, 0, 0}}) {
    EXPECT_FALSE(topology.has_device_at(wrong));
    EXPECT_THAT([&] { topology.cpu_device_name_at_coordinates(wrong); },
                ThrowsCode(ErrorCode::kInvalidArgument, "give four numbers"));
  }
}

TEST(Topology, AMeshHasFourPositiveDimensionsAndAnEnd) {
  for (const std::vector<int>& shape : {std::vector<int>{}, {2, 2, 2}, {2, 2, 1, 2, 1}, {0, 1, 1, 1}, {2, 2, -1, 2}})
    EXPECT_THAT(
        [&] {
          Topology({.mesh_shape = shape, .device_coordinates = {{{0, 0, 0, 0}}}});
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "mesh_shape", "give four numbers"));
  for (const std::vector<int>& shape : {std::vector<int>{1 << 20, 2, 1, 1}, {kLargest, kLargest, kLargest, kLargest}})
    EXPECT_THAT(
        [&] {
          Topology({.mesh_shape = shape, .device_coordinates = {{{0, 0, 0, 0}}}});
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "at most 1048576 places"));
}

TEST(Topology, DevicesAreInTheMeshEachInAPlaceOfItsOwn) {
  const auto with = [](const Devices& devices) {
    return Topology({.mesh_shape = {2, 2, 1, 2}, .device_coordinates = devices});
  };
  EXPECT_THAT([&] { with({}); }, ThrowsCode(ErrorCode::kInvalidArgument, "no device"));
  EXPECT_THAT([&] { with(Devices(2)); }, ThrowsCode(ErrorCode::kInvalidArgument, "no device"));
  EXPECT_THAT(
      [&] {
        with({{{0, 0, 0, 0}, {0, 0, 0, 1}}, {{1, 0, 0, 0}}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "1 devices of task 1", "equally many"));
  EXPECT_THAT([&] { with({{{0, 0, 0}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[0, 0, 0]", "four numbers"));
  EXPECT_THAT([&] { with({{{0, 0, 0, -1}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[0, 0, 0, -1]"));
  EXPECT_THAT([&] { with({{{0, 2, 0, 0}}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[0, 2, 0, 0]", "[2, 2, 1, 2]"));
  EXPECT_THAT(
      [&] {
        with({{{0, 1, 0, 0}}, {{0, 1, 0, 0}}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "[0, 1, 0, 0]", "twice"));
}

TEST(Topology, OfOneMachinesDevicesHasThemInOrder) {
  for (const auto& [count, cores] : {std::pair{1, 1}, {8, 1}, {8, 2}, {6, 2}, {8, 8}, {9, 3}}) {
    const auto topology = Topology::of_devices(count, cores);
    EXPECT_THAT(topology.mesh_shape(), ElementsAre(count / cores, 1, 1, cores));
    EXPECT_EQ(topology.num_tasks(), 1);
    EXPECT_EQ(topology.num_devices_per_task(), count);
    for (int device = 0; device < count; ++device)
      EXPECT_EQ(topology.device_ordinal_at_coordinates({device / cores, 0, 0, device % cores}), device);
  }
  EXPECT_EQ(Topology::of_devices(4), Topology::of_devices(4, 1));
}

TEST(Topology, OfOneMachinesDevicesNeedsAWholeNumberOfChips) {
  for (const auto& wrong : {std::pair{0, 1}, {-2, 1}, {4, 0}, {4, -2}, {5, 2}, {2, 4}})
    EXPECT_THAT([&] { Topology::of_devices(wrong.first, wrong.second); },
                ThrowsCode(ErrorCode::kInvalidArgument, str(wrong.first, " devices with ", wrong.second, " cores")));
  EXPECT_THAT([] { Topology::of_devices(kLargest); }, ThrowsCode(ErrorCode::kInvalidArgument, "at most"));
}

TEST(TopologyBytes, BringTheTopologyBack) {
  std::vector<Topology> all = {two_tasks(), Topology::of_devices(1), Topology::of_devices(8, 2),
                               Topology::of_devices(20000, 4)};
  all.push_back(Topology({.mesh_shape = {300, 7, 1, 2}, .device_coordinates = {{{299, 6, 0, 1}}, {{128, 0, 0, 0}}}}));
  for (const auto& topology : all) {
    const auto bytes = topology.serialized();
    EXPECT_EQ(Topology::from_serialized(bytes), topology);
    EXPECT_EQ(Topology::from_serialized(bytes).serialized(), bytes);
    EXPECT_EQ(Topology({.serialized = bytes}), topology);
  }
  EXPECT_EQ(two_tasks().serialized().size(), 8 + 6 + 6 * 4 + 8);
}

TEST(TopologyBytes, WinOverTheOtherOptions) {
  const auto bytes = two_tasks().serialized();
  EXPECT_EQ(Topology({.serialized = bytes, .mesh_shape = {1}, .device_coordinates = {{{7}}}}), two_tasks());
}

TEST(TopologyBytes, OfSomethingElseAreRefused) {
  for (const std::string bytes : {"", "L", "LTop", "LTop0001", "LTop0002", "lockstep", "a text that is longer than a topology"})
    EXPECT_THAT([&] { Topology::from_serialized(bytes); }, ThrowsCode(ErrorCode::kInvalidArgument, "Topology::serialized()"));
  auto newer = two_tasks().serialized();
  newer[7] = '2';
  EXPECT_THAT([&] { Topology({.serialized = newer}); }, ThrowsCode(ErrorCode::kInvalidArgument, "another version"));
}

TEST(TopologyBytes, ThatWereCutAreRefused) {
  const auto bytes = two_tasks().serialized();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(code_of([&] { Topology::from_serialized(bytes.substr(0, size)); }), ErrorCode::kInvalidArgument) << size;
}

TEST(TopologyBytes, WithAnotherByteAreRefused) {
  const auto bytes = two_tasks().serialized();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      auto other = bytes;
      other[at] = static_cast<char>(other[at] ^ change);
      ASSERT_EQ(code_of([&] { Topology::from_serialized(other); }), ErrorCode::kInvalidArgument) << at << " " << change;
    }
  }
}

TEST(TopologyBytes, WithAMatchingSumStillHaveToMakeSense) {
  EXPECT_EQ(Topology::from_serialized(sealed_numbers({1, 1, 1, 1, 1, 1, 0, 0, 0, 0})), Topology::of_devices(1));
  for (const std::vector<int>& numbers : {
           std::vector<int>{},
           {1, 1, 1, 1},
           {1, 1, 1, 1, 1, 1, 0, 0, 0},                                // a coordinate too few
           {1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0},                          // one too many
           {1, 1, 1, 1, 0, 1},                                         // no task
           {1, 1, 1, 1, 1, 0},                                         // no device
           {1, 1, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0},                 // the same place twice
           {1, 1, 1, 1, 1, 1, 0, 0, 0, 1},                             // outside the mesh
           {0, 1, 1, 1, 1, 1, 0, 0, 0, 0},                             // no mesh
           {1, 1, 1, 1, 1, 1, 0, 0, 0, 0x80},                          // a number without an end
           {1, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 1},     // a number of too many bytes
           {1, 1, 1, 0x81, 0x80, 0x80, 0x80, 0x10, 1, 1, 0, 0, 0, 0},  // 2^32 + 1
           {1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1},              // more than an int
       })
    EXPECT_EQ(code_of([&] { Topology::from_serialized(sealed_numbers(numbers)); }), ErrorCode::kInvalidArgument)
        << join(" ", numbers);
}

// Cut, or with another byte, and the sum made to match.
TEST(TopologyBytes, WithAnyByteChangedAreATopologyOrATypedError) {
  const auto whole = two_tasks().serialized();
  const auto numbers = whole.substr(0, whole.size() - 8);
  for (std::size_t size = 0; size < numbers.size(); ++size)
    EXPECT_EQ(code_of([&] { Topology::from_serialized(sealed(numbers.substr(0, size))); }), ErrorCode::kInvalidArgument)
        << size;
  int read = 0;
  for (std::size_t at = 0; at < numbers.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      auto other = numbers;
      other[at] = static_cast<char>(other[at] ^ change);
      const auto code = code_of([&] {
        const auto topology = Topology::from_serialized(sealed(other));
        EXPECT_EQ(Topology::from_serialized(topology.serialized()), topology);
        EXPECT_NE(topology, two_tasks());
        ++read;
      });
      ASSERT_EQ(code.value_or(ErrorCode::kInvalidArgument), ErrorCode::kInvalidArgument) << at << " " << change;
    }
  }
  EXPECT_GT(read, 0);
}

// A few bytes never ask for the memory that they speak of.
TEST(TopologyBytes, CannotAskForMoreThanTheyAre) {
  const std::vector<int> huge = {0xff, 0xff, 0xff, 0xff, 0x07};  // 2^31 - 1
  const auto with = [&](std::vector<int> numbers, int times) {
    for (int i = 0; i < times; ++i) numbers.insert(numbers.end(), huge.begin(), huge.end());
    return sealed_numbers(numbers);
  };
  EXPECT_THAT(
      [&] {
        Topology::from_serialized(with({1, 1, 1, 1}, 2));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "devices that they count"));
  EXPECT_THAT(
      [&] {
        Topology::from_serialized(with({1, 1, 1, 1, 1}, 1));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "devices that they count"));
  auto mesh = with({}, 4);
  mesh = sealed(mesh.substr(0, mesh.size() - 8) + std::string("\1\1\0\0\0\0", 6));
  EXPECT_THAT([&] { Topology::from_serialized(mesh); }, ThrowsCode(ErrorCode::kInvalidArgument, "at most 1048576 places"));
}

TEST(TopologyBytes, SpoiledAtRandomGiveATypedErrorOrATopology) {
  Mutations mutations(11);
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    auto bytes = two_tasks().serialized();
    bytes.resize(bytes.size() - 8);
    mutations.spoil(bytes);
    bytes = sealed(bytes);
    try {
      const auto topology = Topology::from_serialized(bytes);
      ASSERT_EQ(Topology::from_serialized(topology.serialized()), topology);
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace lockstep
