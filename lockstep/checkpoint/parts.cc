#include <ATen/ATen.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/device/torch_device.h"
#include "lockstep/replica/replica_set.h"

// What a checkpoint keeps of the library's own things.

namespace lockstep::internal {
namespace {

// Its shape and dtype.
at::Tensor form_of(const Variable& variable) { return variable.components()[0]; }
at::Tensor form_of(const ShardedVariable& variable) {
  return at::empty(variable.sizes(), at::device(at::kMeta).dtype(variable.scalar_type()));
}

// One that is divided is kept like a whole one: either comes back as the other.
template <typename V>
class VariablePart : public Trackable {
 public:
  explicit VariablePart(const V& variable) : variable_(variable) {}

  CheckpointPart save() override { return {{{"value", variable_.saved_value()}}, {}}; }
  void restore(const CheckpointPart& part) override { variable_.restore(*part.find("value")); }
  std::vector<std::string> problems(const CheckpointPart& part) const override {
    return compare_tensors({{"value", form_of(variable_)}}, part);
  }

 private:
  V variable_;
};

template <typename T>
class NumberPart : public Trackable {
 public:
  explicit NumberPart(T* number) : number_(number) { require(number != nullptr, "track(): the number's address is null"); }

  CheckpointPart save() override { return {{}, {{"value", exact_text(*number_)}}}; }
  void restore(const CheckpointPart& part) override { *number_ = *whole_number<T>(part.value("value")); }
  std::vector<std::string> problems(const CheckpointPart& part) const override {
    const auto found = part.values.find("value");
    if (found != part.values.end() && whole_number<T>(found->second)) return {};
    return {found == part.values.end() ? "value: missing" : str("value: '", found->second, "' is not such a number")};
  }

 private:
  T* const number_;
};

// Everybody's bytes, by worker.
std::vector<std::string> gather(WorkerGroup* workers, const char* what, std::string mine) {
  if (workers == nullptr) return {std::move(mine)};
  return workers->exchange(what, mine);
}
int rank_in(const WorkerGroup* workers) { return workers == nullptr ? 0 : workers->layout().rank; }

// This worker's position; null: there is none.
const std::string* find_position(const Checkpoint::State& state, const CheckpointPart& part) {
  const auto workers = state.workers() == nullptr ? 1 : state.workers()->layout().size();
  auto found = part.values.find("position");
  if (found == part.values.end() && part.values.size() == static_cast<std::size_t>(workers))
    found = part.values.find(str("position-", rank_in(state.workers())));
  return found == part.values.end() ? nullptr : &found->second;
}

// A position that is the same on all workers is kept once, and serves any number of them.
template <typename Iterator>
class IteratorPart : public Trackable {
 public:
  IteratorPart(const Checkpoint::State& state, Iterator& iterator) : state_(state), iterator_(iterator) {}

  CheckpointPart save() override {
    const auto all = gather(state_.workers(), "the positions of a dataset's iterators", iterator_.save());
    if (std::ranges::all_of(all, [&](const std::string& one) { return one == all[0]; })) return {{}, {{"position", all[0]}}};
    CheckpointPart part;
    for (std::size_t worker = 0; worker < all.size(); ++worker) part.values[str("position-", worker)] = all[worker];
    return part;
  }
  void restore(const CheckpointPart& part) override {
    const auto* const position = find_position(state_, part);
    if (position == nullptr) throw Error(ErrorCode::kInvalidArgument, problems(part)[0]);
    iterator_.restore(*position);
  }
  std::vector<std::string> problems(const CheckpointPart& part) const override { return position_problems(state_, part); }

 private:
  const Checkpoint::State& state_;
  Iterator& iterator_;
};

std::string bytes_of_state(const at::Tensor& state) {
  const auto host = state.cpu().contiguous();
  return {static_cast<const char*>(host.data_ptr()), host.nbytes()};
}
at::Tensor state_of_bytes(const std::string& bytes) {
  auto state = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(state.data_ptr()));
  return state;
}

// Note [generators of a checkpoint]
// "replica-K": of replica K of the job. "process-W" and "process-W-cuda-D": worker W's own, which serve what is drawn outside
// run(). One that is not there, or is of another kind of device, stays as it is: it has its own stream from the start.
class GeneratorsPart : public Trackable {
 public:
  explicit GeneratorsPart(const Checkpoint::State& state) : state_(state) {}

  CheckpointPart save() override {
    std::map<std::string, std::string> mine;
    if (replicas() != nullptr)
      for (int replica = 0; replica < replicas()->size(); ++replica)
        mine[replica_key(replica)] = bytes_of_state(replicas()->generator_state(replica));
    for (auto& [key, generator] : process_generators()) {
      const std::lock_guard lock(generator.mutex());
      mine[key] = bytes_of_state(generator.get_state());
    }
    CheckpointPart part;
    for (const auto& theirs : gather(workers(), "the states of random generators", packed(mine))) unpack(theirs, part.values);
    return part;
  }

  void restore(const CheckpointPart& part) override {
    if (replicas() != nullptr)
      for (int replica = 0; replica < replicas()->size(); ++replica)
        put(part, replica_key(replica), replicas()->generator_state(replica),
            [&](const at::Tensor& state) { replicas()->set_generator_state(replica, state); });
    for (auto& [key, generator] : process_generators()) {
      const std::lock_guard lock(generator.mutex());
      put(part, key, generator.get_state(), [&generator = generator](const at::Tensor& state) { generator.set_state(state); });
    }
  }

 private:
  WorkerGroup* workers() const { return state_.workers(); }
  ReplicaSet* replicas() const { return state_.replicas.get(); }
  std::string replica_key(int replica) const { return str("replica-", replicas()->first_replica() + replica); }

  std::vector<std::pair<std::string, at::Generator>> process_generators() const {
    const auto name = str("process-", rank_in(workers()));
    std::vector<std::pair<std::string, at::Generator>> all{{name, at::globalContext().defaultGenerator(at::Device(at::kCPU))}};
    for (int device = 0; device < count_devices(at::kCUDA); ++device)
      all.emplace_back(str(name, "-cuda-", device),
                       at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device))));
    return all;
  }

  template <typename Set>
  static void put(const CheckpointPart& part, const std::string& key, const at::Tensor& now, Set set) {
    const auto found = part.values.find(key);
    if (found == part.values.end()) return;
    if (found->second.size() != now.nbytes())
      return log_warning(
          str("the random generator '", key, "' of the checkpoint is of another kind of device, and was not restored"));
    set(state_of_bytes(found->second));
  }

  // Key, size and bytes of each.
  static std::string packed(const std::map<std::string, std::string>& values) {
    std::string text;
    for (const auto& [key, bytes] : values) text += str(key, " ", bytes.size(), "\n") + bytes;
    return text;
  }
  static void unpack(std::string_view text, std::map<std::string, std::string>& values) {
    while (!text.empty()) {
      const auto space = text.find(' ');
      const auto end = text.find('\n', space);
      const auto size = *whole_number<std::size_t>(text.substr(space + 1, end - space - 1));
      values[std::string(text.substr(0, space))] = std::string(text.substr(end + 1, size));
      text.remove_prefix(end + 1 + size);
    }
  }

  const Checkpoint::State& state_;
};

}  // namespace

std::vector<std::string> position_problems(const Checkpoint::State& state, const CheckpointPart& part) {
  if (find_position(state, part) != nullptr) return {};
  if (part.values.empty()) return {"position: missing"};
  return {str("position: is of ", part.values.size(), " workers that read data of their own, of which this one, worker ",
              rank_in(state.workers()), ", is none; only data divided by the policy DATA can go on with other workers")};
}

std::shared_ptr<Trackable> variable_part(const Variable& variable) {
  return std::make_shared<VariablePart<Variable>>(variable);
}
std::shared_ptr<Trackable> variable_part(const ShardedVariable& variable) {
  return std::make_shared<VariablePart<ShardedVariable>>(variable);
}
std::shared_ptr<Trackable> iterator_part(const Checkpoint::State& state, DistributedIterator& iterator) {
  return std::make_shared<IteratorPart<DistributedIterator>>(state, iterator);
}
std::shared_ptr<Trackable> iterator_part(const Checkpoint::State& state, data::Iterator& iterator) {
  return std::make_shared<IteratorPart<data::Iterator>>(state, iterator);
}
std::shared_ptr<Trackable> number_part(std::int64_t* number) { return std::make_shared<NumberPart<std::int64_t>>(number); }
std::shared_ptr<Trackable> number_part(double* number) { return std::make_shared<NumberPart<double>>(number); }
std::shared_ptr<Trackable> generators_part(const Checkpoint::State& state) { return std::make_shared<GeneratorsPart>(state); }

}  // namespace lockstep::internal
