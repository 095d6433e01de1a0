#include "lockstep/device/topology_bytes.h"

#include <cstdint>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/mix.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

constexpr std::string_view kVersion = "LTop0001";
constexpr std::string_view kName = "LTop";
constexpr std::size_t kSumBytes = 8;

[[noreturn]] void throw_unreadable(std::string_view why) {
  throw Error(ErrorCode::kInvalidArgument,
              str("Topology: these bytes ", why, "; give them as Topology::serialized() returned them"));
}

std::string sum_of(std::string_view bytes) {
  std::uint64_t sum = 0;
  for (const char byte : bytes) sum = mix(sum, static_cast<unsigned char>(byte));
  std::string text;
  for (std::size_t i = 0; i < kSumBytes; ++i) text += static_cast<char>((sum >> (8 * i)) & 0xff);
  return text;
}

void put(std::string& bytes, std::size_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  bytes += static_cast<char>(number);
}

class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : left_(bytes) {}

  int next() {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
      if (left_.empty()) throw_unreadable("end too early");
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      number |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80) == 0 && number <= std::numeric_limits<int>::max()) return static_cast<int>(number);
    }
    throw_unreadable("have a number that is too large");
  }

  std::vector<int> next(int count) {
    std::vector<int> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(next());
    return numbers;
  }

  // As many as follow at most: each is a byte or more.
  std::size_t left() const noexcept { return left_.size(); }

 private:
  std::string_view left_;
};

}  // namespace

std::string write_topology(const Topology& topology) {
  std::string bytes(kVersion);
  const auto put_all = [&](const std::vector<int>& numbers) {
    for (const int number : numbers) put(bytes, static_cast<std::size_t>(number));
  };
  put_all(topology.mesh_shape());
  put_all({topology.num_tasks(), topology.num_devices_per_task()});
  for (const auto& devices : topology.device_coordinates())
    for (const auto& coordinates : devices) put_all(coordinates);
  return bytes + sum_of(bytes);
}

TopologyOptions read_topology(std::string_view bytes) {
  if (!bytes.starts_with(kName)) throw_unreadable("are not of a topology");
  if (!bytes.starts_with(kVersion)) throw_unreadable("were made by another version of this library, or are damaged");
  if (bytes.size() < kVersion.size() + kSumBytes) throw_unreadable("end too early");
  const auto sum = bytes.substr(bytes.size() - kSumBytes);
  bytes.remove_suffix(kSumBytes);
  if (sum != sum_of(bytes)) throw_unreadable("are damaged");

  Numbers numbers(bytes.substr(kVersion.size()));
  TopologyOptions read{.mesh_shape = numbers.next(Topology::kMeshRank)};
  const int tasks = numbers.next();
  const int devices = numbers.next();
  const auto described =
      std::uint64_t{Topology::kMeshRank} * static_cast<std::uint64_t>(tasks) * static_cast<std::uint64_t>(devices);
  if (described == 0 || described > numbers.left()) throw_unreadable("do not have the devices that they count");
  for (int task = 0; task < tasks; ++task) {
    auto& coordinates = read.device_coordinates.emplace_back();
    for (int device = 0; device < devices; ++device) coordinates.push_back(numbers.next(Topology::kMeshRank));
  }
  if (numbers.left() != 0) throw_unreadable("have more in them than the devices that they count");
  return read;
}

}  // namespace lockstep::internal
