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
  std::optional<Deadline> earlier = std::nullopt;  // so long an earlier step is waited for
};

HeldGradients::HeldGradients(VariableStore& store, std::size_t most_bytes, ChangeOrder* order)
    : store_(store),
      order_(order),
      update_(store.methods().at(methods::kUpdate).handler),
      memory_(most_bytes),
      uploads_(memory_) {}
HeldGradients::~HeldGradients() = default;

HeldGradients::Model& HeldGradients::model_of(const std::string& name) {
  if (const auto found = models_.find(name); found != models_.end()) {
    auto& model = found->second;
    // A backup's store has steps that were applied elsewhere.
    if (order_ != nullptr) model.next = std::max(model.next, store_.client_state(model.client).last_done);
    return model;
  }
  if (name.empty() || name.size() > kLongestName || models_.size() >= kMostModels)
    throw Error(ErrorCode::kInvalidArgument,
                str("a step of a model whose name has ", name.size(), " bytes (it has 1 to ", kLongestName, ") beside ",
                    models_.size(), " models (at most ", kMostModels, ")"));
  // The same at every start of a server: a store that was restored knows which steps it has.
  const auto client = std::hash<std::string>()("sync:" + name);
  return models_.emplace(name, Model{client, store_.client_state(client).last_done}).first->second;
}

HeldGradients::Held HeldGradients::read(const StepHoldRequest& request, Incoming& payload, From from) {
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
    if (from == From::kClient) {  // another server has looked, and here it may be that not all are there yet
      variables.push_back(store_.find(operation.name));
      if (variables.back() == nullptr)
        throw Error(ErrorCode::kNotFound, str("variable '", operation.name, "' is not among those of this server"));
      variables.back()->require_fits(operation);
    }
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
  held.reserved.push_back(memory_.reserve(wanted, "gradients that wait for their step", MemoryUse::kPasses));
  for (std::size_t i = 0; i < request.operations.size(); ++i) {
    const auto& operation = request.operations[i];
    const auto id_bytes = id_bytes_of(operation);
    const auto value_bytes = bytes_of(operation.dtype, operation.shape, operation.name);
    at::Tensor all;
    if (operation.is_staged) {
      auto& uploads = from == From::kClient ? uploads_ : store_.uploads();
      auto whole = uploads.take(request.sender, static_cast<std::uint32_t>(i), id_bytes + value_bytes);
      all = std::move(whole.bytes);
      held.reserved.push_back(std::move(whole.reserved));
    } else {
      all = allocate({static_cast<std::int64_t>(id_bytes + value_bytes)}, static_cast<std::int8_t>(at::kByte), operation.name,
                     MemoryUse::kPasses);
      payload.read(bytes_in(all));
    }
    const auto part = [&](std::size_t first, std::size_t count, std::int8_t dtype) {
      const auto bytes = all.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
      return bytes.view(static_cast<at::ScalarType>(dtype));
    };
    Given given;
    if (is_of_rows(operation.kind)) given.ids = part(0, id_bytes, static_cast<std::int8_t>(at::kLong));
    given.values = part(id_bytes, value_bytes, operation.dtype).view(operation.shape);
    if (from == From::kClient) variables[i]->require_fits(operation, given);
    held.operations.push_back({operation, std::move(given)});
  }
  return held;
}

StepHoldReply HeldGradients::hold(const StepHoldRequest& request, Incoming& payload) {
  {
    const std::lock_guard lock(mu_);
    const auto& model = model_of(request.model);
    if (request.step < model.next) return {model.next};
    if (order_ != nullptr) require_room(request, model);
  }
  const auto held = std::make_shared<const Held>(read(request, payload, From::kClient));
  if (order_ == nullptr) return keep(request, held);
  StepHoldReply reply;
  order_->in_turn(copy_of({request, held}, request.sender), [&] {
    reply = keep(request, held);
    return std::string();
  });
  order_->wait_until_kept(ChangeOrder::Asks::kFirst);
  return reply;
}

void HeldGradients::redo(Incoming& request) {
  const auto message = from_bytes<StepHoldRequest>(request.fields());
  keep(message, std::make_shared<const Held>(read(message, request, From::kOtherServer)));
}

std::vector<HeldGradients::Waiting> HeldGradients::waiting() const {
  std::vector<Waiting> all;
  const std::lock_guard lock(mu_);
  for (const auto& [name, model] : models_)
    for (const auto& [step, contributions] : model.held)
      for (const auto& [from, held] : contributions) {
        all.push_back({{.model = name, .step = step, .from = from}, held});
        for (const auto& one : held->operations) all.back().request.operations.push_back(one.first);
      }
  return all;
}

Change HeldGradients::copy_of(const Waiting& one, const Sender& sender) {
  Change change{methods::kStepHold, sender};
  for (std::uint32_t i = 0; i < one.held->operations.size(); ++i) {
    const auto& given = one.held->operations[i].second;
    change.parts.push_back({i});
    if (given.ids.defined()) change.parts.back().pieces.push_back(piece_of(given.ids));
    change.parts.back().pieces.push_back(piece_of(given.values));
  }
  change.fields = [request = one.request, sender](const std::set<std::uint32_t>& staged) {
    auto copy = request;
    copy.sender = sender;
    for (std::uint32_t i = 0; i < copy.operations.size(); ++i) copy.operations[i].is_staged = staged.contains(i);
    return to_bytes(copy);
  };
  return change;
}

StepHoldReply HeldGradients::keep(const StepHoldRequest& request, const std::shared_ptr<const Held>& held) {
  const std::lock_guard lock(mu_);
  auto& model = model_of(request.model);
  if (order_ != nullptr) model.held.erase(model.held.begin(), model.held.lower_bound(model.next));
  else if (request.step >= model.next) require_room(request, model);
  if (request.step >= model.next) model.held[request.step][request.from] = held;
  return {model.next};
}

void HeldGradients::require_room(const StepHoldRequest& request, const Model& model) const {
  const auto known = model.held.find(request.step);
  const bool is_known = known != model.held.end();
  if ((!is_known && model.held.size() >= kMostSteps) || (is_known && known->second.size() >= kMostHeld))
    throw Error(ErrorCode::kInvalidArgument,
                str("step ", request.step, " of model '", request.model, "', where step ", model.next,
                    " is the next: gradients of ", kMostSteps, " steps are held, ", kMostHeld, " of each"));
}

// Who closed the step before is repeating it at this server, after another one was lost.
void HeldGradients::require_next(const StepApplyRequest& request, Model& model) const {
  if (order_ == nullptr || request.step <= model.next) {
    model.earlier.reset();
    return;
  }
  if (!model.earlier) model.earlier = Deadline::after(kEarlierStep);
  const auto text = str("step ", request.step, " of model '", request.model, "': step ", model.next, " has not been applied");
  if (!model.earlier->has_passed()) throw Error(ErrorCode::kUnavailable, str(text, " yet; try again"));
  log_warning(str(text, ", whoever had closed it was lost, too; its gradients are not used here"));
  model.earlier.reset();
}

void HeldGradients::apply(const StepApplyRequest& request) {
  std::unique_lock lock(mu_);
  auto& model = model_of(request.model);
  if (!applied_.wait_until(lock, Deadline::after(kApplyWaits).time(), [&] { return !model.is_applying; }))
    throw Error(ErrorCode::kDeadlineExceeded,
                str("step ", model.next, " of model '", request.model, "' has been applied for ", kApplyWaits.count(), " s"));
  if (request.step < model.next || request.step + 1 == 0) return;
  require_next(request, model);
  model.is_applying = true;
  const auto all = model.held[request.step];
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
