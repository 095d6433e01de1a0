#include "lockstep/collective/worker_bytes.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using Parts = std::vector<std::vector<std::byte>>;

// Sizes travel as 64-bit numbers before the bytes themselves.
std::vector<std::uint64_t> sizes_of(const Parts& parts) {
  std::vector<std::uint64_t> sizes;
  for (const auto& part : parts) sizes.push_back(part.size());
  return sizes;
}

// Everybody's lists, each as long as `counts` says.
std::vector<std::vector<std::uint64_t>> gather_numbers(Transport& transport, const std::vector<std::uint64_t>& mine,
                                                       const std::vector<std::size_t>& counts) {
  std::vector<std::vector<std::uint64_t>> all;
  for (const auto count : counts) all.emplace_back(count);
  all[static_cast<std::size_t>(transport.rank())] = mine;
  std::vector<Bytes> parts;
  for (auto& list : all) parts.push_back(std::as_writable_bytes(std::span(list)));
  transport.all_gather(parts);
  return all;
}

std::vector<std::byte> joined(const Parts& parts) {
  std::vector<std::byte> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

int WorkerLayout::total_replicas() const { return std::accumulate(replicas.begin(), replicas.end(), 0); }

int WorkerLayout::first_replica(int worker) const { return std::accumulate(replicas.begin(), replicas.begin() + worker, 0); }

int WorkerLayout::machine_count() const { return *std::ranges::max_element(machines) + 1; }

std::vector<int> WorkerLayout::workers_of(int machine) const {
  std::vector<int> workers;
  for (int worker = 0; worker < size(); ++worker)
    if (machines[static_cast<std::size_t>(worker)] == machine) workers.push_back(worker);
  return workers;
}

std::vector<int> WorkerLayout::leaders() const {
  std::vector<int> leaders;
  for (int machine = 0; machine < machine_count(); ++machine) leaders.push_back(workers_of(machine)[0]);
  return leaders;
}

std::string WorkerLayout::name_of(int worker) const {
  const auto index = static_cast<std::size_t>(worker);
  return index < names.size() ? names[index] : str("worker ", worker);
}

WorkerBytes::WorkerBytes(WorkerLayout layout, std::shared_ptr<ShmTransport> machine, std::shared_ptr<Transport> network)
    : layout_(std::move(layout)), machine_(std::move(machine)), network_(std::move(network)) {}

std::vector<std::string> WorkerBytes::exchange(const std::string& mine) {
  std::vector<std::string> all;
  if (layout_.machine_count() == 1 && machine_ != nullptr && mine.size() <= ShmTransport::kSmall) {
    for (const auto& message : machine_->exchange(std::as_bytes(std::span(mine))))
      all.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    return all;
  }
  for (const auto& part : all_gather(std::as_bytes(std::span(mine))))
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

std::vector<std::vector<std::byte>> WorkerBytes::all_gather(ConstBytes mine) {
  auto of_machine = gather_in_machine(mine);
  return layout_.machine_count() == 1 ? of_machine : gather_between_machines(std::move(of_machine));
}

Parts WorkerBytes::gather_in_machine(ConstBytes mine) {
  if (machine_ == nullptr) return {std::vector<std::byte>(mine.begin(), mine.end())};
  const auto sizes =
      gather_numbers(*machine_, {mine.size()}, std::vector<std::size_t>(static_cast<std::size_t>(machine_->size()), 1));
  Parts parts;
  for (const auto& size : sizes) parts.emplace_back(size[0]);
  std::ranges::copy(mine, parts[static_cast<std::size_t>(machine_->rank())].begin());
  machine_->all_gather(std::vector<Bytes>(parts.begin(), parts.end()));
  return parts;
}

// Leaders exchange what their machines gave; the others get it from them.
Parts WorkerBytes::gather_between_machines(Parts of_machine) {
  const int machines = layout_.machine_count();
  std::vector<std::size_t> counts;
  std::vector<std::uint64_t> sizes;
  for (int m = 0; m < machines; ++m) counts.push_back(layout_.workers_of(m).size());
  if (network_ != nullptr)
    for (const auto& list : gather_numbers(*network_, sizes_of(of_machine), counts))
      sizes.insert(sizes.end(), list.begin(), list.end());
  sizes.resize(static_cast<std::size_t>(layout_.size()));
  broadcast_in_machine(std::as_writable_bytes(std::span(sizes)));

  Parts by_machine;
  std::size_t worker = 0;
  for (const auto count : counts) {
    by_machine.emplace_back(std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(worker),
                                            sizes.begin() + static_cast<std::ptrdiff_t>(worker + count), std::uint64_t{0}));
    worker += count;
  }
  by_machine[static_cast<std::size_t>(layout_.machine())] = joined(of_machine);
  if (network_ != nullptr) network_->all_gather(std::vector<Bytes>(by_machine.begin(), by_machine.end()));
  Parts all(static_cast<std::size_t>(layout_.size()));
  std::size_t index = 0;
  for (int m = 0; m < machines; ++m) {
    auto& bytes = by_machine[static_cast<std::size_t>(m)];
    if (m != layout_.machine()) broadcast_in_machine(bytes);
    std::size_t offset = 0;
    for (const int w : layout_.workers_of(m)) {
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
      all[static_cast<std::size_t>(w)].assign(begin, begin + static_cast<std::ptrdiff_t>(sizes[index]));
      offset += sizes[index++];
    }
  }
  return all;
}

void WorkerBytes::broadcast(Bytes data) {
  if (layout_.machine() == 0) broadcast_in_machine(data);  // worker 0 leads machine 0
  if (network_ != nullptr) network_->broadcast(data, 0);
  if (layout_.machine() != 0) broadcast_in_machine(data);
}

void WorkerBytes::broadcast_in_machine(Bytes data) {
  if (machine_ != nullptr) machine_->broadcast(data, 0);
}

void WorkerBytes::abort(const Error& why) noexcept {
  if (machine_ != nullptr) machine_->abort(why);
  if (network_ != nullptr) network_->abort(why);
}

}  // namespace lockstep
