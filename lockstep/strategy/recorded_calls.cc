#include "lockstep/strategy/recorded_calls.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/split/split_tensor.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::internal {
namespace {

constexpr int kMostTimes = 16;  // that a signature is recorded again

// Why no step of these replicas can be recorded; empty: they can.
std::string why_never(const ReplicaSet& replicas) {
  if (replicas.workers() != nullptr) return "several workers take part, whose messages cannot be recorded";
  const auto device = replicas.torch_device(0);
  for (int replica = 1; replica < replicas.size(); ++replica)
    if (replicas.torch_device(replica) != device) return "the replicas are on several devices";
  return DeviceGraph::why_not(device);
}

// Those that there are something to copy of.
std::vector<at::Tensor> dense_tensors(const SignatureOf& signature) {
  std::vector<at::Tensor> tensors;
  for (const auto* const tensor : signature.tensors())
    if (tensor->defined() && tensor->numel() > 0) tensors.push_back(tensor->detach().contiguous());
  return tensors;
}

// LibTorch's errors go on with where in its code they were thrown.
std::string first_line(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

// A number among the arguments that is another one in each step makes each a signature. The last used are first.
void forget_old(std::vector<std::unique_ptr<RecordedCall>>& calls) {
  constexpr std::size_t kMostCalls = 64;
  if (calls.size() < kMostCalls) return;
  const auto oldest = std::find_if(calls.rbegin(), calls.rend(), [](const auto& call) { return !call->is_recorded(); });
  if (oldest != calls.rend()) calls.erase(std::next(oldest).base());
}

}  // namespace

void SignatureOf::operator()(at::Tensor& leaf) {
  tensors_.push_back(&leaf);
  if (!leaf.defined()) return add(-1);
  add(static_cast<int>(leaf.scalar_type()) | static_cast<int>(leaf.requires_grad()) << 8 |
      static_cast<int>(leaf.is_contiguous()) << 15 | static_cast<int>(leaf.layout()) << 9 |
      static_cast<int>(leaf.device().type()) << 16 | (leaf.device().index() + 1) << 24);
  add(static_cast<int>(leaf.is_conj()) | static_cast<int>(leaf.is_neg()) << 1 |
      static_cast<int>(split::find_value(leaf) != nullptr) << 2);
  for (const auto size : leaf.sizes()) add(size);
  add(-2);
}

void SignatureOf::operator()(IndexedSlices& leaf) {
  (*this)(leaf.values);
  (*this)(leaf.indices);
  for (const auto size : leaf.dense_shape) add(size);
}

void DetachLeaves::operator()(at::Tensor& leaf) const {
  if (leaf.defined()) leaf = leaf.detach();
}
void DetachLeaves::operator()(IndexedSlices& leaf) const {
  (*this)(leaf.values);
  (*this)(leaf.indices);
}
void HandOutLeaves::operator()(at::Tensor& leaf) const {
  if (leaf.defined()) leaf = call.hand_out(leaf);
}
void HandOutLeaves::operator()(IndexedSlices& leaf) const {
  (*this)(leaf.values);
  (*this)(leaf.indices);
}

void RecordedCall::take_inputs(const SignatureOf& signature) {
  inputs_.clear();
  given_ = dense_tensors(signature);
  std::size_t next = 0;
  for (auto* const tensor : signature.tensors()) {
    if (!tensor->defined() || tensor->numel() == 0) continue;
    inputs_.push_back(at::empty_like(given_[next++]));
    *tensor = inputs_.back();
  }
}

// A storage of its own over the same memory: what happens to that happens to all views of the tensor.
at::Tensor RecordedCall::hand_out(const at::Tensor& result) {
  if (!result.is_cuda() || result.numel() == 0) return result.clone();
  auto handed = at::from_blob(
      result.data_ptr(), result.sizes(), result.strides(), [kept = result](void*) {}, result.options(), result.device());
  handed_out_.emplace_back(handed.storage().getWeakStorageImpl());
  return handed;
}

void RecordedCall::rescue_handed_out() {
  for (const auto& weak : handed_out_) {
    const auto storage = weak.lock();
    if (storage.get() == nullptr) continue;
    const c10::Storage over(storage);
    const auto bytes = at::empty({0}, at::TensorOptions(at::kByte).device(over.device()));
    const auto old = at::Tensor(bytes).set_(over, 0, {static_cast<std::int64_t>(over.nbytes())}, {1}).clone();
    storage->set_data_ptr(old.storage().unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, over.device())));
  }
  handed_out_.clear();
}

RecordedCalls::RecordedCalls(Strategy& strategy, const FunctionOptions& options) : strategy_(strategy), options_(options) {
  if (options.warm_up < 1 || options.most_recordings < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("FunctionOptions: warm_up is ", options.warm_up, " and most_recordings ", options.most_recordings,
                    "; the first must be at least 1, the second at least 0"));
  auto why = options.is_recorded ? why_never(strategy.replicas()) : "it was not asked for (FunctionOptions::is_recorded)";
  if (!why.empty()) {
    is_possible_ = false;
    why_not_ = std::move(why);
    log_info(str("function: steps run as they are, unrecorded: ", why_not_));
  }
}

RecordedCalls::~RecordedCalls() = default;

std::size_t RecordedCalls::size() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(calls_, [](const auto& call) { return call->is_recorded_; }));
}

void RecordedCalls::refuse(const std::string& why) {
  is_possible_ = false;
  if (why_not_ == why) return;
  why_not_ = why;
  log_warning(str("function: steps run as they are, unrecorded: ", why));
}

RecordedCall* RecordedCalls::refuse(RecordedCall& call, const std::string& why) {
  call.refused_ = why;
  call.is_recorded_ = false;
  call.recording_.reset();
  call.results_.reset();
  call.inputs_.clear();
  call.given_.clear();
  why_not_ = why;
  log_once(LogLevel::kWarning, str("function: a step runs as it is, unrecorded: ", why));
  return nullptr;
}

std::string RecordedCalls::unusable_input(const SignatureOf& signature) const {
  const auto device = strategy_.replicas().torch_device(0);
  for (std::size_t i = 0; i < signature.tensors().size(); ++i) {
    const auto& tensor = *signature.tensors()[i];
    const bool is_plain = tensor.defined() && tensor.layout() == at::kStrided && !tensor.requires_grad() && !tensor.is_conj() &&
                          !tensor.is_neg() && split::find_value(tensor) == nullptr;
    if (!tensor.defined() || (tensor.device() == device && is_plain && tensor.is_contiguous())) continue;
    return lockstep::str("tensor ", i, " of the arguments is ", tensor.layout(), " on ", tensor.device(),
                         ", and only contiguous ones on ", device,
                         " without a gradient can be; the strategy's datasets copy batches there");
  }
  return "";
}

RecordedCall* RecordedCalls::find(const SignatureOf& signature) {
  const auto& numbers = signature.numbers();
  auto found = std::ranges::find_if(calls_, [&](const auto& call) { return call->numbers_ == numbers; });
  if (found == calls_.end()) {
    forget_old(calls_);
    found = calls_.insert(calls_.begin(), std::make_unique<RecordedCall>(numbers));
  }
  if (found != calls_.begin()) found = std::rotate(calls_.begin(), found, found + 1), found = calls_.begin();
  auto& call = **found;
  if (!call.refused_.empty()) {
    why_not_ = call.refused_;
    return nullptr;
  }
  if (call.is_recorded_ && call.recording_->is_current()) return &call;
  if (call.is_recorded_ && ++call.recorded_ > kMostTimes)
    return refuse(call, str("what it uses has changed ", kMostTimes,
                            " times after it was recorded: where weights are, modes, or "
                            "what optimizers were made with"));
  call.is_recorded_ = false;
  if (call.calls_++ < options_.warm_up) {
    why_not_ = "its first calls run as they are";
    return nullptr;
  }
  if (size() >= static_cast<std::size_t>(options_.most_recordings))
    return refuse(call, str(options_.most_recordings,
                            " other signatures are recorded (FunctionOptions::most_recordings); give "
                            "batches of equal shapes, with drop_remainder for the last one"));
  if (signature.has_bytes()) return refuse(call, "byte strings are among the arguments");
  if (const auto why = unusable_input(signature); !why.empty()) return refuse(call, why);
  return &call;
}

bool RecordedCalls::record(RecordedCall& call, FunctionRef<void()> run) {
  auto& replicas = strategy_.replicas();
  try {
    call.recording_ = std::make_unique<Recording>(replicas);
    call.recording_->set_inputs(call.given_, call.inputs_);
    replicas.set_recording(call.recording_.get());
    const OnExit over([&] {
      replicas.set_recording(nullptr);
      call.recording_->take_back();
    });
    run();
  } catch (const std::exception& error) {
    refuse(call, str(call.recording_ == nullptr ? "" : call.recording_->last_operation(), first_line(error)));
    return false;
  }
  call.is_recorded_ = true;
  return true;
}

void RecordedCalls::replay(RecordedCall& call, const SignatureOf& signature) {
  strategy_.replicas().replay([&] {
    const c10::NoGradGuard no_grad;
    call.rescue_handed_out();
    // The first time they are in the recording already, and the signature's are the recording's own.
    if (call.given_.empty()) call.recording_->set_inputs(dense_tensors(signature));
    call.given_.clear();
    call.recording_->replay();
  });
  why_not_.clear();
}

}  // namespace lockstep::internal
