#include "lockstep/collective/worker_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/mix.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/base/wait_clock.h"
#include "lockstep/collective/packed_tensors.h"
#include "lockstep/collective/rendezvous.h"

namespace lockstep {
namespace {

// Sums up to this size travel with the comparison itself.
constexpr std::size_t kSmallSum = 3000;

std::string describe(const at::Tensor& tensor) { return lockstep::str(tensor.scalar_type(), " ", tensor.sizes()); }

std::string describe(const char* what, std::span<const at::Tensor> tensors) {
  constexpr std::size_t kNamed = 3;
  constexpr std::size_t kLongest = 600;
  std::string text = lockstep::str(what, ": ", tensors.size(), tensors.size() == 1 ? " tensor" : " tensors");
  std::uint64_t rest = 0;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (k < kNamed) text += (k == 0 ? ", " : "; ") + describe(tensors[k]);
    else rest = mix(rest, std::hash<std::string>()(describe(tensors[k])));
  }
  if (tensors.size() > kNamed) text += lockstep::str("; ... (", rest % 100000, ")");
  return text.size() <= kLongest ? text : lockstep::str(text.substr(0, kLongest), "... (", std::hash<std::string>()(text), ")");
}

// "all_reduce" of "all_reduce: 1 tensor, ...".
std::string kind_of(const std::string& text) { return text.substr(0, text.find(':')); }

}  // namespace

// Tensors of one dtype that are summed as one array.
struct WorkerGroup::Pack {
  SumShape shape;
  std::vector<std::size_t> members;
  std::vector<at::Tensor> arrays;  // of this worker's subtrees, one dimension, on the CPU
  at::Tensor result;

  std::vector<const void*> addresses() const {
    std::vector<const void*> all;
    for (const auto& array : arrays) all.push_back(array.data_ptr());
    return all;
  }
  at::Tensor like_result() const { return at::empty({shape.count}, at::TensorOptions(shape.dtype)); }
};

WorkerGroup::WorkerGroup(std::unique_ptr<WorkerBytes> bytes, bool is_deterministic)
    : bytes_(std::move(bytes)), is_deterministic_(is_deterministic) {
  const auto& all = layout();
  const int total = all.total_replicas();
  const auto leaves = [&](int worker) {
    return leaves_of(all.first_replica(worker), all.replicas[static_cast<std::size_t>(worker)]);
  };
  std::vector<SumNode> everything;
  for (int worker = 0; worker < all.size(); ++worker) {
    const auto plan = plan_sums(leaves(worker), total);
    brings_.push_back(plan.nodes.size());
    everything.insert(everything.end(), plan.nodes.begin(), plan.nodes.end());
    if (worker == all.rank) local_ = plan;
  }
  everywhere_ = plan_sums(everything, total);
  if (bytes_->machine() != nullptr) {
    std::vector<std::vector<SumNode>> brings;
    for (const int worker : all.workers_of(all.machine())) brings.push_back(plan_sums(leaves(worker), total).nodes);
    machine_ = std::make_unique<CanonicalSum>(*bytes_->machine(), brings, total);
  }
  if (bytes_->network() != nullptr) {
    std::vector<std::vector<SumNode>> brings;
    for (int machine = 0; machine < all.machine_count(); ++machine) {
      std::vector<SumNode> nodes;
      for (const int worker : all.workers_of(machine))
        for (const auto& leaf : leaves(worker)) nodes.push_back(leaf);
      brings.push_back(plan_sums(nodes, total).nodes);
    }
    // All machines must decide alike.
    is_native_ = !is_deterministic && std::ranges::all_of(brings, [](const auto& nodes) { return nodes.size() == 1; });
    network_ = std::make_unique<CanonicalSum>(*bytes_->network(), brings, total);
  }
}

WorkerGroup::~WorkerGroup() = default;

void WorkerGroup::call(const std::string& text, const std::function<void()>& body) {
  const std::lock_guard alone(calling_);
  throw_if_failed();
  const WaitClock::Scope waiting;
  Calls::Scope scope(calls_, text, /*is_numbered=*/true, Rendezvous::TimeoutScope::current());
  const trace::Span span(trace::is_on() ? trace::intern(kind_of(text)) : "", trace::Category::kSync,
                         {"call", static_cast<std::int64_t>(scope.number())});
  try {
    body();
  } catch (const Error& error) {
    const bool is_shared = error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kFailedPrecondition;
    if (!is_shared) abort_by_engine(error);
    scope.fail(is_shared ? error.message() : failure().value_or(error).message());
    throw_if_failed();  // the first reason, not what it did to this call
    if (is_shared) throw SharedFailure(error, shared_failures_.fetch_add(1) + 1);
    throw;
  } catch (const std::exception& error) {  // LibTorch's, no memory: the others are in the middle of the call
    abort(Error(ErrorCode::kInternal, lockstep::str(text, ": ", error.what())));
    scope.fail(error.what());
    throw;
  }
}

std::vector<std::string> WorkerGroup::compare(const std::string& text, const std::string& extra) {
  const auto head = lockstep::str(calls_.step(), " ", text);
  auto all = bytes_->exchange(lockstep::str(head.size(), " ", head, extra));
  std::vector<std::string> heads;
  for (auto& message : all) {
    const auto space = message.find(' ');
    const auto length = std::stoul(message);
    heads.push_back(message.substr(space + 1, length));
    message.erase(0, space + 1 + length);
  }
  if (std::ranges::all_of(heads, [&](const std::string& one) { return one == heads[0]; })) return all;
  std::vector<std::string> views;
  bool is_other_call = false;
  std::uint64_t last_step = 0;
  for (int worker = 0; worker < layout().size(); ++worker) {
    const auto& one = heads[static_cast<std::size_t>(worker)];
    const auto space = one.find(' ');
    views.push_back(
        lockstep::str(layout().name_of(worker), " at '", one.substr(space + 1), "' of step ", one.substr(0, space)));
    is_other_call = is_other_call || kind_of(one) != kind_of(heads[0]);
    last_step = std::max<std::uint64_t>(last_step, std::stoull(one));
  }
  calls_.catch_up(last_step);
  throw Error(
      is_other_call ? ErrorCode::kFailedPrecondition : ErrorCode::kInvalidArgument,
      lockstep::str(is_other_call ? "the workers are at different collectives: " : "the workers' values do not fit together: ",
                    join("; ", views),
                    "; every worker must make the same calls in the same order, with equal shapes and "
                    "dtypes. Nothing was sent"));
}

void WorkerGroup::sum(const char* what, std::span<const std::vector<at::Tensor>> values, std::span<at::Tensor> outputs) {
  const auto text = describe(what, values[0]);
  call(text, [&] {
    // Equal texts mean equal sizes, but for the number of subtrees: all must decide alike.
    std::size_t most = 0;
    for (const auto& value : values[0]) most += static_cast<std::size_t>(value.numel()) * value.element_size();
    most *= *std::ranges::max_element(brings_);
    const bool is_compared = device_ != nullptr && most > kSmallSum;
    const auto is_served = [&](const auto& of_replica) { return device_->serves(of_replica); };
    if (is_compared && are_on_device(text, std::ranges::all_of(values, is_served))) return device_->sum(values, outputs);
    std::vector<Pack> packs;
    for (auto& group : group_by_dtype(values[0])) {
      Pack pack{{group.dtype, group.count}, group.members, {}, {}};
      std::vector<at::Tensor> flat;
      std::vector<const void*> inputs;
      for (const auto& of_replica : values) {
        flat.push_back(flat_pack(of_replica, pack.members));
        inputs.push_back(flat.back().data_ptr());
      }
      if (flat.size() == 1) {
        pack.arrays = flat;
      } else {
        std::vector<void*> to;
        for (std::size_t i = 0; i < local_.nodes.size(); ++i) {
          pack.arrays.push_back(pack.like_result());
          to.push_back(pack.arrays.back().data_ptr());
        }
        carry_out(local_, pack.shape, inputs, to);
      }
      const bool is_in_place =
          pack.members.size() == 1 && outputs[pack.members[0]].is_cpu() && outputs[pack.members[0]].is_contiguous();
      pack.result = is_in_place ? outputs[pack.members[0]].detach().view(-1) : pack.like_result();
      packs.push_back(std::move(pack));
    }
    if (most <= kSmallSum) {
      std::string extra;
      for (const auto& pack : packs)
        for (const auto& array : pack.arrays) extra.append(static_cast<const char*>(array.data_ptr()), pack.shape.bytes());
      const auto messages = compare(text, extra);
      std::size_t offset = 0;
      for (auto& pack : packs) {
        sum_everywhere(pack, messages, offset);
        offset += pack.shape.bytes();
      }
    } else {
      if (!is_compared) compare(text);
      for (auto& pack : packs) sum_on_levels(pack);
    }
    for (const auto& pack : packs) unpack_flat(pack.result, pack.members, outputs);
  });
}

// Everybody has everybody's arrays: worker by worker, pack by pack, subtree by subtree. `offset` is that of this pack in an
// array list with one subtree.
void WorkerGroup::sum_everywhere(Pack& pack, std::span<const std::string> messages, std::size_t offset) {
  std::vector<at::Tensor> aligned;
  std::vector<const void*> inputs;
  for (std::size_t worker = 0; worker < messages.size(); ++worker)
    for (std::size_t i = 0; i < brings_[worker]; ++i) {
      aligned.push_back(pack.like_result());
      std::memcpy(aligned.back().data_ptr(), messages[worker].data() + offset * brings_[worker] + i * pack.shape.bytes(),
                  pack.shape.bytes());
      inputs.push_back(aligned.back().data_ptr());
    }
  void* const result = pack.result.data_ptr();
  carry_out(everywhere_, pack.shape, inputs, {&result, 1});
}

void WorkerGroup::sum_on_levels(Pack& pack) {
  const bool is_one_machine = layout().machine_count() == 1;
  if (machine_ != nullptr) {
    std::vector<at::Tensor> sums;
    std::vector<void*> to;
    for (std::size_t k = 0; k < machine_->nodes().size(); ++k) {
      sums.push_back(machine_->nodes().size() == 1 ? pack.result : pack.like_result());
      to.push_back(sums.back().data_ptr());
    }
    machine_->reduce(pack.shape, pack.addresses(), to);
    pack.arrays = std::move(sums);
  }
  if (is_one_machine) {
    if (machine_ == nullptr) pack.result.copy_(pack.arrays[0]);
    return;
  }
  void* const result = pack.result.data_ptr();
  const auto whole = Bytes(static_cast<std::byte*>(result), pack.shape.bytes());
  const auto type = native_type(pack.shape.dtype);
  if (network_ != nullptr && is_native_ && type) {
    if (!pack.result.is_same(pack.arrays[0])) pack.result.copy_(pack.arrays[0]);
    bytes_->network()->all_reduce(*type, whole);
  } else if (network_ != nullptr) {
    network_->reduce(pack.shape, pack.addresses(), {&result, 1});
  }
  bytes_->broadcast_in_machine(whole);
}

std::vector<at::Tensor> WorkerGroup::all_gather(const char* what, std::span<const at::Tensor> values) {
  std::vector<at::Tensor> all;
  call(what, [&] {
    if (device_ != nullptr) all = gather_on_device(what, values);
    if (!all.empty()) return;
    if (Transport* const direct = one_level()) {
      all = gather_directly(*direct, values, exchange_in_call(what, shapes_to_text(values)));
    } else {
      compare(what);
      for (const auto& message : bytes_->all_gather(to_bytes(values)))
        for (auto& tensor : from_bytes(message)) all.push_back(std::move(tensor));
    }
    for (auto& tensor : all) tensor = tensor.to(values[0].device());
  });
  return all;
}

// Nothing: not all workers' values are on GPUs.
std::vector<at::Tensor> WorkerGroup::gather_on_device(const char* what, std::span<const at::Tensor> values) {
  auto shapes = exchange_in_call(what, (device_->serves(values) ? "g" : "c") + shapes_to_text(values));
  if (!std::ranges::all_of(shapes, [](const std::string& one) { return one[0] == 'g'; })) return {};
  for (auto& one : shapes) one.erase(0, 1);
  return device_->all_gather(values, shapes);
}

bool WorkerGroup::are_on_device(const std::string& text, bool are_mine) {
  const auto answers = compare(text, are_mine ? "g" : "c");
  return std::ranges::all_of(answers, [](const std::string& one) { return one == "g"; });
}

// The engine that all workers are on, if there is one for all.
Transport* WorkerGroup::one_level() const {
  if (layout().machine_count() == 1) return bytes_->machine();
  return layout().machine_count() == layout().size() ? bytes_->network() : nullptr;
}

// Everybody knows what everybody has: tensors go from memory to memory.
std::vector<at::Tensor> WorkerGroup::gather_directly(Transport& transport, std::span<const at::Tensor> values,
                                                     std::span<const std::string> shapes) {
  std::vector<std::vector<at::Tensor>> by_worker;
  std::size_t most = 0;
  for (int worker = 0; worker < layout().size(); ++worker) {
    auto& tensors = by_worker.emplace_back();
    if (worker == layout().rank) {
      for (const auto& value : values)
        tensors.push_back(flat_pack({&value, 1}, std::array{std::size_t{0}}).view(value.sizes()));
    } else {
      tensors = empty_from_text(shapes[static_cast<std::size_t>(worker)]);
    }
    most = std::max(most, tensors.size());
  }
  for (std::size_t k = 0; k < most; ++k) {
    std::vector<Bytes> parts;
    for (auto& tensors : by_worker)
      parts.push_back(k < tensors.size() ? Bytes(static_cast<std::byte*>(tensors[k].data_ptr()), tensors[k].nbytes())
                                         : Bytes());
    transport.all_gather(parts);
  }
  std::vector<at::Tensor> all;
  for (auto& tensors : by_worker) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

void WorkerGroup::broadcast(const char* what, std::span<at::Tensor> values) {
  const auto text = describe(what, values);
  call(text, [&] {
    if (device_ == nullptr) compare(text);
    else if (are_on_device(text, device_->serves(values))) return device_->broadcast(values);
    for (auto& value : values) {
      auto flat = value.detach().to(at::kCPU).contiguous().view(-1);
      if (flat.is_alias_of(value) && layout().rank != 0) flat = flat.clone();
      bytes_->broadcast({static_cast<std::byte*>(flat.data_ptr()), flat.nbytes()});
      if (layout().rank != 0) value.detach().copy_(flat.view(value.sizes()));
    }
  });
}

std::vector<std::string> WorkerGroup::exchange(const char* what, const std::string& mine) {
  std::vector<std::string> all;
  call(what, [&] { all = exchange_in_call(what, mine); });
  return all;
}

std::vector<std::string> WorkerGroup::exchange_in_call(const char* what, const std::string& mine) {
  constexpr std::size_t kLong = 2000;
  // 's' and the message, or 'l' for one that comes by itself.
  auto all = compare(what, mine.size() < kLong ? "s" + mine : "l");
  if (std::ranges::all_of(all, [](const std::string& one) { return one[0] == 's'; })) {
    for (auto& one : all) one.erase(0, 1);
    return all;
  }
  all.clear();
  for (const auto& part : bytes_->all_gather(std::as_bytes(std::span(mine))))
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

void WorkerGroup::barrier(const char* what) {
  call(what, [&] { compare(what); });
}

std::shared_ptr<Transport> WorkerGroup::new_channel() {
  const auto name = lockstep::str("channel", channels_++);
  return connect(name, [&] { return bytes_->network() == nullptr ? nullptr : make_channel_(name); });
}

std::shared_ptr<Transport> WorkerGroup::connect(const std::string& name,
                                                const std::function<std::shared_ptr<Transport>()>& make) {
  std::shared_ptr<Transport> channel;
  call(lockstep::str("connecting ", name), [&] {
    try {
      channel = make();
    } catch (const Error& error) {
      const bool looks_shared = error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kFailedPrecondition;
      throw looks_shared ? Error(ErrorCode::kInternal, error.message()) : error;
    }
  });
  return channel;
}

std::shared_ptr<SharedBlocks> WorkerGroup::share(std::size_t bytes) {
  auto blocks = std::make_shared<SharedBlocks>();
  call("sharing memory", [&] {
    if (bytes_->machine() != nullptr) *blocks = bytes_->machine()->share(bytes);
    else blocks->blocks.emplace_back(bytes);
  });
  return blocks;
}

void WorkerGroup::use_device_engine(c10::Device device, ChannelFactory factory) {
  make_device_channel_ = std::move(factory);
  device_ = std::make_unique<DeviceExchange>(make_device_channel_("gpu"), device, layout(), is_deterministic_);
}

std::shared_ptr<Transport> WorkerGroup::new_device_channel() {
  const auto name = lockstep::str("gpu", ++device_channel_count_);
  auto channel = connect(name, [&] { return make_device_channel_(name); });
  const std::lock_guard lock(mu_);
  if (failure_) throw *failure_;
  std::erase_if(device_channels_, [](const auto& one) { return one.expired(); });
  device_channels_.push_back(channel);
  return channel;
}

void WorkerGroup::throw_if_failed() const {
  const std::lock_guard lock(mu_);
  if (failure_) throw *failure_;
}

std::optional<Error> WorkerGroup::failure() const {
  const std::lock_guard lock(mu_);
  return failure_;
}

void WorkerGroup::on_abort(std::function<void(const Error&)> hook) {
  const std::lock_guard lock(hook_mu_);
  hook_ = std::move(hook);
}

void WorkerGroup::close(const Error& why) {
  {
    const std::lock_guard lock(mu_);
    if (!failure_) failure_.emplace(why);
    failed_.notify_all();
  }
  on_abort(nullptr);
}

void WorkerGroup::abort_by_engine(const Error& why) noexcept {
  if (why.code() == ErrorCode::kUnavailable) {
    std::unique_lock lock(mu_);
    failed_.wait_for(lock, kVerdict, [&] { return failure_.has_value(); });
  }
  abort(why);
}

void WorkerGroup::abort(const Error& why) noexcept {
  std::vector<std::weak_ptr<Transport>> channels;
  try {
    const std::lock_guard lock(mu_);
    if (failure_) return;
    failure_.emplace(why);
    channels = device_channels_;
    failed_.notify_all();
  } catch (...) {  // no memory for the reason: the engines have it
  }
  bytes_->abort(why);
  if (device_ != nullptr) device_->abort(why);
  for (const auto& one : channels)
    if (const auto channel = one.lock()) channel->abort(why);
  const std::lock_guard lock(hook_mu_);
  if (hook_) hook_(why);
}

}  // namespace lockstep
