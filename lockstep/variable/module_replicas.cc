#include "lockstep/variable/module_replicas.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/recording.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/variable/gradient_hooks.h"

namespace lockstep {
namespace {

bool shares_tensors(const torch::nn::Module& a, const torch::nn::Module& b) {
  std::set<const void*> seen;
  for (const auto& tensors : {a.parameters(), a.buffers()})
    for (const auto& tensor : tensors) seen.insert(tensor.unsafeGetTensorImpl());
  for (const auto& tensors : {b.parameters(), b.buffers()})
    for (const auto& tensor : tensors)
      if (seen.count(tensor.unsafeGetTensorImpl()) > 0) return true;
  return false;
}

std::shared_ptr<torch::nn::Module> clone_of(const torch::nn::Module& module) {
  try {
    return module.clone();
  } catch (const c10::Error&) {
    throw Error(ErrorCode::kInvalidArgument,
                str("mirrored: ", module.name(),
                    " was given submodules that every copy would share, and it has no clone(); use "
                    "mirrored_from([] { return <a new module>; }), which is called once a replica"));
  }
}

std::vector<at::Tensor> all_tensors(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors;
  for (const auto& list : {module.parameters(), module.buffers()})
    std::ranges::copy_if(list, std::back_inserter(tensors), [](const at::Tensor& tensor) { return tensor.defined(); });
  return tensors;
}

// For every tensor of the list, where it stands in it first: tied weights stand in it more than once.
std::vector<std::size_t> ties(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::map<const void*, std::size_t> first;
  std::vector<std::size_t> positions;
  for (const auto& item : tensors)
    positions.push_back(first.emplace(item.value().unsafeGetTensorImpl(), positions.size()).first->second);
  return positions;
}

// The memory is replaced where the other copy's has another dtype or order.
void copy_tensor(const at::Tensor& from, at::Tensor to) {
  const c10::NoGradGuard no_grad;
  if (from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() && from.strides() == to.strides()) to.copy_(from);
  else to.set_data(from.detach().to(to.device(), from.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
}

// Copies by name; both must list the same tensors.
void copy_tensors(const torch::OrderedDict<std::string, at::Tensor>& from,
                  const torch::OrderedDict<std::string, at::Tensor>& to, const std::string& module) {
  bool is_equal = from.size() == to.size();
  for (std::size_t i = 0; is_equal && i < from.size(); ++i)
    is_equal = from[i].key() == to[i].key() && from[i].value().sizes() == to[i].value().sizes();
  if (!is_equal)
    throw Error(ErrorCode::kInvalidArgument, str("mirrored: two copies of ", module,
                                                 " have different parameters or buffers; its constructor must make the "
                                                 "same module every time"));
  if (ties(from) != ties(to))
    throw Error(ErrorCode::kInvalidArgument,
                str("mirrored: ", module,
                    " uses a parameter or buffer in several places, and its copy has one for each place: they would train "
                    "apart; use mirrored_from([] { return <a new module>; }), which is called once a replica"));
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i].value().defined()) copy_tensor(from[i].value(), to[i].value());
}

}  // namespace

// One parameter or buffer of all copies, and what replica 0's was when last noted.
struct ModuleReplicas::Mirror {
  void note() {
    storage = copies[0].storage().getWeakStorageImpl();
    version = internal::version_of(copies[0]);
  }
  // The storage is held weakly, so that its address is not given to another one.
  bool is_changed() const {
    return copies[0].storage().unsafeGetStorageImpl() != storage._unsafe_get_target() ||
           internal::version_of(copies[0]) != version;
  }
  void hand_out() const {
    for (std::size_t r = 1; r < copies.size(); ++r) copy_tensor(copies[0], copies[r]);
  }

  bool is_buffer = false;
  std::vector<at::Tensor> copies;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
  std::int64_t version = 0;
};

// Notices a training loop that never brings the replicas' gradients together (a plain LibTorch optimizer inside run()).
class ModuleReplicas::GradientWatch {
 public:
  GradientWatch(const ModuleReplicas& owner) {
    for (std::size_t replica = 0; replica < owner.size(); ++replica) {
      for (const auto& [name, parameter] : owner.named_parameters(replica)) {
        if (!parameter.requires_grad()) continue;
        const auto stream = owner.replicas()->streams().use(replica);
        hooks_.push_back(internal::on_gradient_ready(
            parameter, [this, &owner, replica](const at::Tensor&) { note_gradient(owner, replica); }));
        break;
      }
    }
    counts_ = std::make_unique<Count[]>(owner.size());
  }

  void note_synchronized(std::size_t replica) { counts_[replica].unsynchronized_runs = 0; }

 private:
  struct alignas(64) Count {
    std::uint64_t last_run = 0;
    int unsynchronized_runs = 0;
  };

  void note_gradient(const ModuleReplicas& owner, std::size_t replica) {
    const auto mode = internal::current_mode();
    if (mode.replicas == nullptr || mode.context == nullptr) return;
    Count& count = counts_[replica];
    if (count.last_run == mode.replicas->runs()) return;
    count.last_run = mode.replicas->runs();
    if (++count.unsynchronized_runs == kRunsBeforeWarning)
      log_once(LogLevel::kWarning,
               str("gradients of ", owner.name(), " were computed in ", kRunsBeforeWarning,
                   " run() calls and never brought "
                   "together: the replicas train apart. Step with lockstep::optimizer<...>(model, ...), or call its "
                   "synchronize(); accumulate gradients under its no_sync()"));
  }

  static constexpr int kRunsBeforeWarning = 3;

  std::vector<std::shared_ptr<void>> hooks_;
  std::unique_ptr<Count[]> counts_;  // [r] used only on replica r's thread
};

ModuleReplicas::ModuleReplicas(const Factory& make) {
  const auto mode = internal::current_mode();
  replicas_ = internal::strategy_replicas(mode);
  if (replicas_ != nullptr && mode.context != nullptr)
    throw Error(
        ErrorCode::kFailedPrecondition,
        "mirrored() was called inside a replica, where every replica would make a model of its own; call it in scope()");
  const auto make_one = [&] {
    auto module = make();
    if (module == nullptr)
      throw Error(ErrorCode::kInvalidArgument,
                  "mirrored_from: the function gave no module; it must return a new one each time");
    return module;
  };
  modules_.push_back(make_one());
  name_ = modules_[0]->name();
  if (replicas_ == nullptr) return;

  auto generator = at::globalContext().defaultGenerator(c10::Device(c10::kCPU));
  const auto state = generator.get_state();
  for (int replica = 1; replica < replicas_->size(); ++replica) {
    auto module = make_one();
    if (shares_tensors(*modules_[0], *module)) module = clone_of(*modules_[0]);
    modules_.push_back(std::move(module));
  }
  generator.set_state(state);
  for (std::size_t replica = 0; replica < size(); ++replica) {
    modules_[replica]->to(replicas_->torch_device(static_cast<int>(replica)));
    if (replica == 0) take_from_first_worker("the initial weights of ", all_tensors(*modules_[0]));
    else copy_from_first(replica);
  }
  synchronized_at_run_ = replicas_->runs();
  if (replicas_->global_size() == 1) return;
  watch_ = std::make_unique<GradientWatch>(*this);
  list_mirrors();
  ReplicaSet::RunObserver observer{[this] { hand_out_changes(); }, [this] { note_state(); }};
  if (replicas_->workers() != nullptr) observer.succeeded = [this] { exchange_buffers(); };
  observer_ = replicas_->observe_runs(std::move(observer));
}

ModuleReplicas::~ModuleReplicas() = default;

void ModuleReplicas::copy_from_first(std::size_t replica) const {
  copy_tensors(modules_[0]->named_parameters(), modules_[replica]->named_parameters(), name_);
  copy_tensors(modules_[0]->named_buffers(), modules_[replica]->named_buffers(), name_);
}

void ModuleReplicas::take_from_first_worker(const char* what, std::vector<at::Tensor> tensors) const {
  if (replicas_->workers() == nullptr || tensors.empty()) return;
  const c10::NoGradGuard no_grad;
  replicas_->workers()->broadcast(str(what, name_).c_str(), tensors);
}

// Every replica of every worker goes on with its own; the mean is there for whoever looks.
void ModuleReplicas::exchange_buffers() const {
  std::vector<std::vector<at::Tensor>> values(size());
  std::vector<at::Tensor> integers;
  std::vector<at::Tensor> sums;
  buffer_means_.assign(mirrors_.size(), {});
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < mirrors_.size(); ++i) {
    if (!mirrors_[i]->is_buffer) continue;
    const auto& copies = mirrors_[i]->copies;
    buffer_means_[i] = copies[0].clone(at::MemoryFormat::Contiguous);
    if (!copies[0].is_floating_point()) {
      integers.push_back(buffer_means_[i]);
      continue;
    }
    for (std::size_t r = 0; r < size(); ++r) values[r].push_back(copies[r]);
    sums.push_back(buffer_means_[i]);
  }
  auto& workers = *replicas_->workers();
  const auto what = str("the buffers of ", name_);
  if (!sums.empty()) workers.sum(what.c_str(), values, sums);
  for (auto& sum : sums) sum.div_(replicas_->global_size());
  if (!integers.empty()) workers.broadcast(what.c_str(), integers);
}

void ModuleReplicas::list_mirrors() {
  const auto add = [&](bool is_buffer, const auto& tensors_of) {
    std::vector<std::vector<at::Tensor>> all;
    for (const auto& module : modules_) all.push_back(tensors_of(*module));
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      if (!all[0][i].defined()) continue;
      auto mirror = std::make_unique<Mirror>();
      mirror->is_buffer = is_buffer;
      for (const auto& tensors : all) mirror->copies.push_back(tensors[i]);
      mirror->note();
      mirrors_.push_back(std::move(mirror));
    }
  };
  add(false, [](const torch::nn::Module& module) { return module.parameters(); });
  add(true, [](const torch::nn::Module& module) { return module.buffers(); });
}

void ModuleReplicas::note_state() const {
  for (const auto& mirror : mirrors_) mirror->note();
}

void ModuleReplicas::hand_out_changes() const {
  std::vector<at::Tensor> parameters;
  std::vector<const Mirror*> changed;
  for (const auto& mirror : mirrors_) {
    if (!mirror->is_changed()) continue;
    changed.push_back(mirror.get());
    if (!mirror->is_buffer) parameters.push_back(mirror->copies[0]);
  }
  take_from_first_worker("weights that all workers must write alike outside run(), of ", std::move(parameters));
  for (const auto* mirror : changed) mirror->hand_out();
}

const std::shared_ptr<torch::nn::Module>& ModuleReplicas::at(std::size_t replica) const {
  if (replica < modules_.size()) return modules_[replica];
  throw Error(ErrorCode::kInvalidArgument,
              str("copy ", replica, " of ", name_, ", of which there are ", size(), "; copies count from 0, one a replica"));
}

std::shared_ptr<void> ModuleReplicas::take_gradients(std::function<void()> retire) const {
  if (is_in_replica())
    throw Error(ErrorCode::kFailedPrecondition,
                str("an optimizer for ", name_, " was made inside a replica; one serves all replicas: make it outside run()"));
  if (const auto previous = retire_.lock()) (*previous)();
  auto token = std::make_shared<std::function<void()>>(std::move(retire));
  retire_ = token;
  return token;
}

bool ModuleReplicas::is_in_replica() const {
  const auto mode = internal::current_mode();
  return mode.context != nullptr && mode.replicas == replicas_.get();
}

std::size_t ModuleReplicas::index_here() const {
  const auto mode = internal::current_mode();
  if (replicas_ == nullptr) {
    if (mode.context != nullptr && mode.replicas != &internal::default_replicas())
      throw Error(ErrorCode::kFailedPrecondition,
                  str("the model ", name_,
                      " was made outside the strategy's scope() and is used inside a replica, where all "
                      "replicas would train the one copy; call mirrored() inside scope()"));
    return 0;
  }
  if (mode.context != nullptr && mode.replicas == replicas_.get())
    return static_cast<std::size_t>(mode.context->local_replica_id());
  if (mode.replicas == &internal::default_replicas()) return 0;
  const int replica = internal::local_replica_of(replicas_.get(), name_.c_str());
  return replica < 0 ? 0 : static_cast<std::size_t>(replica);
}

const std::shared_ptr<torch::nn::Module>& ModuleReplicas::here() const {
  const auto index = index_here();
  if (internal::current_mode().context == nullptr) synchronize_buffers();
  else if (replicas_ != nullptr && replicas_->recording() != nullptr) take_part_in(*replicas_->recording());
  return modules_[index];
}

// The recorded work knows the weights by their addresses, and does what the modules' modes were.
void ModuleReplicas::take_part_in(Recording& recording) const {
  if (!recording.is_first_use_of(this)) return;
  struct Used {
    at::Tensor tensor;
    const void* memory;
    bool requires_grad;
  };
  std::vector<Used> tensors;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes;
  for (const auto& copy : modules_) {
    for (const auto& tensor : all_tensors(*copy)) tensors.push_back({tensor, tensor.data_ptr(), tensor.requires_grad()});
    for (const auto& module : copy->modules()) modes.emplace_back(module, module->is_training());
  }
  recording.add({.is_current = [tensors = std::move(tensors), modes = std::move(modes)] {
    return std::ranges::all_of(tensors,
                               [](const Used& used) {
                                 return used.tensor.data_ptr() == used.memory &&
                                        used.tensor.requires_grad() == used.requires_grad;
                               }) &&
           std::ranges::all_of(modes, [](const auto& mode) { return mode.first->is_training() == mode.second; });
  }});
}

void ModuleReplicas::train(bool on) const {
  if (internal::current_mode().context != nullptr) return here()->train(on);
  for (const auto& module : modules_) module->train(on);
}

NamedTensors ModuleReplicas::named_parameters(std::size_t replica) const {
  NamedTensors parameters;
  std::set<const void*> seen;
  for (const auto& item : modules_.at(replica)->named_parameters())
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      parameters.emplace_back(item.key(), item.value());
  return parameters;
}

void ModuleReplicas::synchronize_buffers() const {
  if (replicas_ == nullptr || replicas_->runs() == synchronized_at_run_) return;
  // Inside run(), in merge_call, the replicas may still change them afterwards.
  const bool is_running = replicas_->is_running_here();
  if (!is_running) synchronized_at_run_ = replicas_->runs();
  const c10::NoGradGuard no_grad;
  const bool is_alone = replicas_->workers() == nullptr;
  for (std::size_t i = 0; i < mirrors_.size(); ++i) {
    auto& mirror = mirrors_[i];
    if (!mirror->is_buffer) continue;
    auto& copies = mirror->copies;
    if (!is_running && mirror->is_changed()) {  // the program has written a value of its own since
      mirror->hand_out();
    } else if (is_alone) {
      const auto value = copies[0].is_floating_point() ? reduce_values(ReduceOp::kMean, copies) : copies[0].clone();
      for (auto& copy : copies) copy.copy_(value);
    } else if (!is_running && !buffer_means_.empty()) {
      for (auto& copy : copies) copy.copy_(buffer_means_[i]);
    }
    if (!is_running) mirror->note();
  }
}

void ModuleReplicas::note_synchronized(std::size_t replica) const {
  if (watch_) watch_->note_synchronized(replica);
}

}  // namespace lockstep
