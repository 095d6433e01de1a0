#include "lockstep/ps/held_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/step_mean.h"
#include "lockstep/ps/tensor_bytes.h"

namespace lockstep::ps {
namespace {

constexpr std::chrono::seconds kApplyWaits{60};  // for another call that does it
constexpr std::size_t kMostModels = 1'024;
constexpr std::size_t kMostSteps = 16;     // of a model that wait; in truth one or two do
constexpr std::size_t kMostHeld = 65'536;  // of a step
constexpr std::size_t kLongestName = 1'024;

std::size_t id_bytes_of(const Operation& operation) {
  return is_of_rows(operation.kind) ? static_cast<std::size_t>(operation.shape[0]) * sizeof(std::int64_t) : 0;
}

// Tensors as a request's payload.
class FromTensors final : public Incoming {
 public:
  FromTensors(std::string fields, std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    fields_ = std::move(fields);
    for (const auto& tensor : tensors_) left_ += tensor.nbytes();
  }
  void read(std::span<std::byte> into) override {
    while (!into.empty()) {
      require(index_ < tensors_.size(), "a payload has fewer bytes than were asked for");
      const auto rest = bytes_in(tensors_[index_]).subspan(used_);
      const auto count = std::min(rest.size(), into.size());
      std::copy_n(rest.begin(), count, into.begin());
      into = into.subspan(count);
      left_ -= count;
      used_ += count;
      if (used_ == tensors_[index_].nbytes()) ++index_, used_ = 0;
    }
  }

 private:
  const std::vector<at::Tensor> tensors_;
  std::size_t index_ = 0;
  std::size_t used_ = 0;
};

}  // namespace

struct HeldGradients::Held {
  std::vector<GivenOperation> operations = {};
  std::vector<Memory::Reservation> reserved = {};
};

struct HeldGradients::Model {
  std::uint64_t client = 0;  // as which the store knows it
  std::uint64_t next = 0;    // the first step that was not applied
  bool is_applying = false;
  std::map<std::uint64_t, std::map<Contribution, std::shared_ptr<const Held>>> held = {};  // by step
};

HeldGradients::HeldGradients(VariableStore& store, std::size_t most_bytes)
    : store_(store), update_(store.methods().at(methods::kUpdate).handler), memory_(most_bytes), uploads_(memory_) {}
HeldGradients::~HeldGradients() = default;

HeldGradients::Model& HeldGradients::model_of(const std::string& name) {
  if (const auto found = models_.find(name); found != models_.end()) return found->second;
  if (name.empty() || name.size() > kLongestName || models_.size() >= kMostModels)
    throw Error(ErrorCode::kInvalidArgument,
                str("a step of a model whose name has ", name.size(), " bytes (it has 1 to ", kLongestName, ") beside ",
                    models_.size(), " models (at most ", kMostModels, ")"));
  // The same at every start of a server: a store that was restored knows which steps it has.
  const auto client = std::hash<std::string>()("sync:" + name);
  return models_.emplace(name, Model{client, store_.client_state(client).last_done}).first->second;
}

HeldGradients::Held HeldGradients::read(const StepHoldRequest& request, Incoming& payload) {
  if (request.operations.size() > VariableStore::kMostOperations)
    throw Error(ErrorCode::kInvalidArgument, str("a gradient with ", request.operations.size(), " operations; at most ",
                                                 VariableStore::kMostOperations, " come at a time"));
  std::vector<std::shared_ptr<StoredVariable>> variables;
  std::size_t wanted = 0;
  for (const auto& operation : request.operations) {
    using Kind = Operation::Kind;
    if (operation.kind != Kind::kGradient && operation.kind != Kind::kGradientRows && operation.kind != Kind::kAssign)
      throw Error(ErrorCode::kInvalidArgument, str("operation ", static_cast<int>(operation.kind), " of variable '",
                                                   operation.name, "': a step has gradients, and values to assign"));
    variables.push_back(store_.find(operation.name));
    if (variables.back() == nullptr)
      throw Error(ErrorCode::kNotFound, str("variable '", operation.name, "' is not among those of this server"));
    variables.back()->require_fits(operation);
    if (operation.is_staged) continue;
    const auto bytes = bytes_of(operation.dtype, operation.shape, operation.name);
    const auto most = payload.left() - wanted;
    if (bytes > most || (is_of_rows(operation.kind) && static_cast<std::size_t>(operation.shape[0]) > (most - bytes) / 8))
      throw Error(ErrorCode::kInvalidArgument,
                  str("a gradient of variable '", operation.name, "' with fewer bytes than it has"));
    wanted += bytes + id_bytes_of(operation);
  }
  if (payload.left() != wanted)
    throw Error(ErrorCode::kInvalidArgument, str("gradients of ", payload.left(), " bytes that should have ", wanted));
  Held held;
  held.reserved.push_back(memory_.reserve(wanted, "gradients that wait for their step"));
  for (std::size_t i = 0; i < request.operations.size(); ++i) {
    const auto& operation = request.operations[i];
    const auto id_bytes = id_bytes_of(operation);
    const auto value_bytes = bytes_of(operation.dtype, operation.shape, operation.name);
    at::Tensor all;
    if (operation.is_staged) {
      auto whole = uploads_.take(request.sender, static_cast<std::uint32_t>(i), id_bytes + value_bytes);
      all = std::move(whole.bytes);
      held.reserved.push_back(std::move(whole.reserved));
    } else {
      all = allocate({static_cast<std::int64_t>(id_bytes + value_bytes)}, static_cast<std::int8_t>(at::kByte), operation.name);
      payload.read(bytes_in(all));
    }
    const auto part = [&](std::size_t first, std::size_t count, std::int8_t dtype) {
      const auto bytes = all.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
      return bytes.view(static_cast<at::ScalarType>(dtype));
    };
    Given given;
    if (is_of_rows(operation.kind)) given.ids = part(0, id_bytes, static_cast<std::int8_t>(at::kLong));
    given.values = part(id_bytes, value_bytes, operation.dtype).view(operation.shape);
    variables[i]->require_fits(operation, given);
    held.operations.push_back({operation, std::move(given)});
  }
  return held;
}

StepHoldReply HeldGradients::hold(const StepHoldRequest& request, Incoming& payload) {
  {
    const std::lock_guard lock(mu_);
    const auto& model = model_of(request.model);
    if (request.step < model.next) return {model.next};
  }
  const auto held = std::make_shared<const Held>(read(request, payload));
  const std::lock_guard lock(mu_);
  auto& model = model_of(request.model);
  if (request.step < model.next) return {model.next};
  const bool is_known = model.held.contains(request.step);
  if ((!is_known && model.held.size() >= kMostSteps) || (is_known && model.held[request.step].size() >= kMostHeld))
    throw Error(ErrorCode::kInvalidArgument,
                str("step ", request.step, " of model '", request.model, "', where step ", model.next,
                    " is the next: gradients of ", kMostSteps, " steps are held, ", kMostHeld, " of each"));
  model.held[request.step][request.from] = held;
  return {model.next};
}

void HeldGradients::apply(const StepApplyRequest& request) {
  std::unique_lock lock(mu_);
  auto& model = model_of(request.model);
  if (!applied_.wait_until(lock, Deadline::after(kApplyWaits).time(), [&] { return !model.is_applying; }))
    throw Error(ErrorCode::kDeadlineExceeded,
                str("step ", model.next, " of model '", request.model, "' has been applied for ", kApplyWaits.count(), " s"));
  if (request.step < model.next || request.step + 1 == 0) return;
  model.is_applying = true;
  const auto all = std::move(model.held[request.step]);
  const OnExit done([&] {  // with the lock held
    model.is_applying = false;
    applied_.notify_all();
  });
  lock.unlock();
  std::vector<const Held*> counted;
  auto order = request.counted;
  std::ranges::sort(order);
  for (const auto& one : order)
    if (const auto found = all.find(one); found != all.end()) counted.push_back(found->second.get());
  if (counted.size() < order.size())
    log_warning(str("step ", request.step, " of model '", request.model, "': of ", order.size(), " gradients ",
                    order.size() - counted.size(), " are not here, they were lost with a server; the others are used"));
  bool is_over = false;  // it is done, or cannot be
  std::exception_ptr failure;
  try {
    update(model, request.step, counted);
    is_over = true;
  } catch (const Error& error) {
    is_over = !is_retryable(error.code());
    failure = std::current_exception();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (is_over) model.next = request.step + 1;
  else model.held[request.step] = all;
  model.held.erase(model.held.begin(), model.held.lower_bound(model.next));
  if (failure) std::rethrow_exception(failure);
}

void HeldGradients::update(const Model& model, std::uint64_t step, const std::vector<const Held*>& counted) {
  std::vector<const std::vector<GivenOperation>*> contributions;
  for (const auto* const one : counted) contributions.push_back(&one->operations);
  UpdateRequest request{{model.client, step + 1, step + 1}};
  std::vector<at::Tensor> payload;
  for (auto& [operation, given] : mean_of(contributions)) {
    request.operations.push_back(operation);
    if (given.ids.defined()) payload.push_back(given.ids);
    payload.push_back(given.values);
  }
  FromTensors incoming(to_bytes(request), std::move(payload));
  Outgoing reply;
  update_(incoming, reply);
}

std::size_t HeldGradients::held() const {
  const std::lock_guard lock(mu_);
  std::size_t count = 0;
  for (const auto& [name, model] : models_)
    for (const auto& [step, all] : model.held) count += all.size();
  return count;
}

std::map<std::string, Method> HeldGradients::methods() {
  namespace names = lockstep::ps::methods;
  const auto typed = [](auto work) {
    return Method{[work](Incoming& request, Outgoing& reply) {
      try {
        work(request, reply);
      } catch (const c10::Error& error) {
        throw Error(ErrorCode::kInternal, error.what_without_backtrace());
      }
    }};
  };
  return {
      {names::kStepStage,
       typed([this](Incoming& request, Outgoing&) { uploads_.stage(from_bytes<StageRequest>(request.fields()), request); })},
      {names::kStepHold, typed([this](Incoming& request, Outgoing& reply) {
         reply.fields = to_bytes(hold(from_bytes<StepHoldRequest>(request.fields()), request));
       })},
      {names::kStepApply,
       typed([this](Incoming& request, Outgoing&) { apply(from_bytes<StepApplyRequest>(request.fields())); })},
  };
}

}  // namespace lockstep::ps
