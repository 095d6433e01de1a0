#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/store_state.h"
#include "lockstep/ps/tensor_bytes.h"

// Variables as another store gets them: value, version, and what the rule has learned.

namespace lockstep::ps {
namespace {

struct CopiedTensor {
  std::string name = "";
  std::int8_t dtype = 0;
  std::vector<std::int64_t> shape = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, dtype, shape);
  }
};

// Part 0 is the value, part i + 1 tensor i of the rule's state.
struct CopyRequest {
  Sender sender = {};
  Description description = {};
  std::uint64_t version = 0;
  std::vector<CopiedTensor> tensors = {};
  std::vector<std::pair<std::string, double>> numbers = {};
  std::vector<std::uint32_t> staged = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(sender, description, version, tensors, numbers, staged);
  }
};

}  // namespace

Change VariableStore::copy_of(const std::shared_ptr<StoredVariable>& variable, const Sender& sender) const {
  Change change{.method = kCopy, .sender = sender};
  CopyRequest request{sender, variable->description()};
  variable->look([&](const at::Tensor& value, const UpdateRule* rule, std::uint64_t version) {
    request.version = version;
    change.parts.push_back({0, {piece_of(value)}});
    if (rule == nullptr) return;
    const auto state = rule->state();
    request.numbers = state.numbers;
    for (const auto& [name, tensor] : state.tensors) {
      const auto dense = tensor.detach().contiguous();
      request.tensors.push_back({name, static_cast<std::int8_t>(dense.scalar_type()), dense.sizes().vec()});
      change.parts.push_back({static_cast<std::uint32_t>(request.tensors.size()), {piece_of(dense)}});
    }
  });
  change.fields = [request = std::move(request)](const std::set<std::uint32_t>& staged) {
    auto copy = request;
    copy.staged.assign(staged.begin(), staged.end());
    return to_bytes(copy);
  };
  return change;
}

void VariableStore::take_copy(Incoming& payload) {
  auto& state = *state_;
  const auto request = from_bytes<CopyRequest>(payload.fields());
  const auto& description = request.description;
  require_possible(description);
  const auto text = str("a copy of variable '", description.name, "'");
  std::vector<Memory::Reservation> reserved;
  const auto tensor_of = [&](std::uint32_t part, std::int8_t dtype, const std::vector<std::int64_t>& shape) {
    const auto size = bytes_of(dtype, shape, text);
    if (std::ranges::find(request.staged, part) != request.staged.end()) {
      auto whole = state.uploads.take(request.sender, part, size);
      if (part == 0) reserved.push_back(std::move(whole.reserved));
      return whole.bytes.view(static_cast<at::ScalarType>(dtype)).view(shape);
    }
    if (part == 0) reserved.push_back(state.memory->reserve(size, text, MemoryUse::kPasses));
    auto tensor = allocate(shape, dtype, text, MemoryUse::kPasses);
    payload.read({static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
    return tensor;
  };
  with_typed_errors([&] {
    auto value = tensor_of(0, description.dtype, description.shape);
    RuleState learned{{}, request.numbers};
    for (std::uint32_t i = 0; i < request.tensors.size(); ++i)
      learned.tensors.emplace_back(request.tensors[i].name,
                                   tensor_of(i + 1, request.tensors[i].dtype, request.tensors[i].shape));
    require_payload(payload, 0);
    auto rule = state.make_rule(description, value, MemoryUse::kPasses);
    if (rule != nullptr) {
      reserved.push_back(state.memory->reserve(rule->state_bytes(), text + "'s optimizer", MemoryUse::kPasses));
      rule->load_state(learned);
    }
    const auto made = std::make_shared<StoredVariable>(description, std::move(value), std::move(rule), std::move(reserved));
    made->start_at(request.version);
    const std::unique_lock lock(state.mu);
    auto& place = state.variables[description.name];
    if (place != nullptr) state.bytes -= place->bytes();
    state.bytes += made->bytes();
    ++state.names_changed;
    place = made;
    return std::string();
  });
}

void VariableStore::change(const std::shared_ptr<StoredVariable>& variable, const StoredVariable::Work& work) {
  if (state_->options.order == nullptr) {
    variable->change(work);
    if (state_->options.done != nullptr) ++*state_->options.done;
    return;
  }
  state_->options.order->copied_in_turn([&] {
    variable->change(work);
    return copy_of(variable, {unguessable_number(), 1, 1});
  });
}

std::string VariableStore::copy_of_clients() const { return state_->clients.save(); }
void VariableStore::take_clients(const std::string& copy) { state_->clients.load(copy); }

}  // namespace lockstep::ps
