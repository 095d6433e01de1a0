#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/initial_value.h"
#include "lockstep/ps/store_state.h"
#include "lockstep/ps/tensor_bytes.h"

// What changes a store.

namespace lockstep::ps {
namespace {

constexpr std::chrono::seconds kRepeatWaits{60};            // for the first of the same requests
constexpr std::size_t kMostSentOn = std::size_t{16} << 20;  // of a payload; more is read first, and cut into pieces

// What was staged is in `given`, and so is all other when there is no `payload`.
Change change_of(const UpdateRequest& request, const std::vector<Given>& given, std::vector<Piece> payload) {
  Change change{.method = methods::kUpdate, .sender = request.sender, .payload = std::move(payload)};
  for (std::uint32_t i = 0; i < given.size(); ++i) {
    if (!change.payload.empty() && !request.operations[i].is_staged) continue;
    change.parts.push_back({i, {}, given[i].passed_in});
    if (given[i].ids.defined()) change.parts.back().pieces.push_back(piece_of(given[i].ids));
    if (given[i].values.defined()) change.parts.back().pieces.push_back(piece_of(given[i].values));
  }
  change.fields = [&request](const std::set<std::uint32_t>& staged) {
    auto copy = request;
    for (std::uint32_t i = 0; i < copy.operations.size(); ++i) {
      copy.operations[i].is_staged = staged.contains(i);
      copy.operations[i].wants_value = false;
    }
    return to_bytes(copy);
  };
  return change;
}

}  // namespace

CreateReply VariableStore::State::is_there(const StoredVariable& old, const Description& wanted) const {
  const auto& there = old.description();
  if (there == wanted) return {false, old.version()};
  const auto shown = [](const Description& d) {
    return str(shown_shape(d.dtype, d.shape), " from row ", d.first_row, " on of [", join(", ", d.whole_shape), "], rule '",
               d.rule, "', ", d.is_trainable ? "trainable" : "not trainable", ", initial ", static_cast<int>(d.initial.kind),
               " (", d.initial.first, ", ", d.initial.second, ", seed ", d.initial.seed, ")");
  };
  throw Error(ErrorCode::kFailedPrecondition, str("variable '", wanted.name, "' is there as ", shown(there), ", and wanted as ",
                                                  shown(wanted), "; delete it, or use another name"));
}

CreateReply VariableStore::State::create(const CreateRequest& request, Incoming& payload, Redo redo) {
  const auto& description = request.description;
  require_possible(description);
  if (const auto old = find(description.name)) return is_there(*old, description);
  const auto text = str("variable '", description.name, "'");
  const auto size = bytes_of(description.dtype, description.shape, text);
  const bool is_given = description.initial.kind == Initial::Kind::kGiven;
  const bool is_staged = is_given && request.is_staged;
  require_payload(payload, is_given && !is_staged ? size : 0);
  std::vector<Memory::Reservation> reserved;
  at::Tensor value;
  std::uint64_t passed_in = 0;
  if (is_staged) {
    auto whole = uploads.take(request.sender, 0, size);
    value = whole.bytes.view(static_cast<at::ScalarType>(description.dtype)).view(description.shape);
    reserved.push_back(std::move(whole.reserved));
    passed_in = whole.passed_in;
  } else {
    reserved.push_back(memory->reserve(size, text, MemoryUse::kLasts));
    value = allocate(description.shape, description.dtype, text, MemoryUse::kLasts);
    if (is_given) payload.read(bytes_in(value));
    else fill_initial(value, description);
  }
  auto rule = make_rule(description, value, MemoryUse::kLasts);
  if (rule != nullptr) reserved.push_back(memory->reserve(rule->state_bytes(), text + "'s optimizer", MemoryUse::kLasts));
  const Change::Part part{0, is_given ? std::vector{piece_of(value)} : std::vector<Piece>(), passed_in};
  const auto made = std::make_shared<StoredVariable>(description, value, std::move(rule), std::move(reserved));
  const auto insert = [&] {
    const auto [there, is_new] = keep(made);
    return is_new ? CreateReply{true, 0} : is_there(*there, description);
  };
  if (options.order == nullptr || redo != Redo::kNo) return insert();
  const auto fields = [&](const std::set<std::uint32_t>& staged) {
    return to_bytes(CreateRequest{request.sender, description, !staged.empty()});
  };
  const Change change{.method = methods::kCreate, .sender = request.sender, .parts = {part}, .fields = fields};
  return from_bytes<CreateReply>(in_turn(change, [&] { return to_bytes(insert()); }));
}

std::pair<std::shared_ptr<StoredVariable>, bool> VariableStore::State::keep(const std::shared_ptr<StoredVariable>& made) {
  const std::unique_lock lock(mu);
  const auto [place, is_new] = variables.emplace(made->name(), made);
  if (is_new) bytes += made->bytes(), ++names_changed;
  return {place->second, is_new};
}

std::shared_ptr<StoredVariable> VariableStore::State::add(const Description& description) {
  require_possible(description);
  const auto text = str("variable '", description.name, "'");
  std::vector<Memory::Reservation> reserved;
  constexpr auto kUse = MemoryUse::kPasses;  // files are read again
  reserved.push_back(memory->reserve(bytes_of(description.dtype, description.shape, text), text, kUse));
  const auto value = allocate(description.shape, description.dtype, text, kUse);
  auto rule = make_rule(description, value, kUse);
  if (rule != nullptr) reserved.push_back(memory->reserve(rule->state_bytes(), text + "'s optimizer", kUse));
  const auto made = std::make_shared<StoredVariable>(description, value, std::move(rule), std::move(reserved));
  if (!keep(made).second) throw Error(ErrorCode::kFailedPrecondition, str(text, " is there already"));
  return made;
}

std::unique_ptr<UpdateRule> VariableStore::State::make_rule(const Description& description, const at::Tensor& value,
                                                            MemoryUse use) {
  if (description.rule.empty()) return nullptr;
  const auto text = str("variable '", description.name, "'");
  if (options.rules == nullptr)
    throw Error(ErrorCode::kUnimplemented,
                str(text, ": this server knows no optimizers, and cannot have '", description.rule, "'"));
  memory->require(value.nbytes(), text + "'s optimizer", use);  // some have a state from the beginning
  try {
    return options.rules(description.rule, value);
  } catch (const c10::Error& error) {
    throw no_memory(use, str(text, "'s optimizer: ", error.what_without_backtrace()));
  }
}

void VariableStore::State::remove(const RemoveRequest& request, Redo redo) {
  const auto erase = [&] {
    for (const auto& name : request.names)
      if (redo != Redo::kPartial) at(name);
    const std::unique_lock lock(mu);
    for (const auto& name : request.names) {
      const auto found = variables.find(name);
      if (found == variables.end()) continue;
      bytes -= found->second->bytes();
      variables.erase(found);
      ++names_changed;
    }
    return std::string();
  };
  if (options.order == nullptr || redo != Redo::kNo) erase();
  else
    in_turn({.method = methods::kRemove, .sender = request.sender, .fields = [&](const auto&) { return to_bytes(request); }},
            erase);
}

Given VariableStore::State::give(const UpdateRequest& request, std::size_t index, Incoming& payload) {
  const auto& operation = request.operations[index];
  if (operation.kind == Operation::Kind::kSetLearningRate) return {};
  const auto text = str("an update of variable '", operation.name, "'");
  const auto id_bytes = is_of_rows(operation.kind) ? static_cast<std::size_t>(operation.shape[0]) * sizeof(std::int64_t) : 0;
  Given given;
  if (operation.is_staged) {
    const auto whole = uploads.take(request.sender, static_cast<std::uint32_t>(index),
                                    id_bytes + bytes_of(operation.dtype, operation.shape, text));
    const auto part = [&](std::size_t first, std::size_t count, std::int8_t dtype) {
      auto bytes = whole.bytes.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
      return bytes.view(static_cast<at::ScalarType>(dtype));
    };
    if (id_bytes > 0) given.ids = part(0, id_bytes, static_cast<std::int8_t>(at::kLong));
    given.values = part(id_bytes, whole.bytes.nbytes() - id_bytes, operation.dtype).view(operation.shape);
    given.passed_in = whole.passed_in;
  } else {
    given.values = allocate(operation.shape, operation.dtype, text, MemoryUse::kPasses);
    if (id_bytes > 0) {
      given.ids = allocate({operation.shape[0]}, static_cast<std::int8_t>(at::kLong), text, MemoryUse::kPasses);
      payload.read(bytes_in(given.ids));
    }
    payload.read(bytes_in(given.values));
  }
  if (is_of_rows(operation.kind) && !given.ids.defined()) given.ids = at::empty({0}, at::kLong);
  return given;
}

void VariableStore::State::stage(const StageRequest& request, Incoming& payload) {
  if (options.order == nullptr) return uploads.stage(request, payload);
  const auto count = payload.left();
  std::vector<Piece> bytes;
  for (const auto& piece : payload.rest()) bytes.push_back({piece});
  const auto epoch = options.order->pass_on(request, bytes, [&] { uploads.stage(request, payload); });
  if (epoch > 0) uploads.note_passed(request, count, epoch);
}

VariableStore::State::Prepared VariableStore::State::look(const UpdateRequest& request, const Incoming& payload,
                                                          Redo redo) const {
  if (request.operations.size() > kMostOperations)
    throw Error(ErrorCode::kInvalidArgument,
                str("a request with ", request.operations.size(), " operations; at most ", kMostOperations, " come at a time"));
  Prepared prepared;
  std::size_t wanted = 0;
  std::size_t sent_back = 0;
  std::size_t room = 0;
  for (const auto& operation : request.operations) {
    prepared.variables.push_back(redo == Redo::kPartial ? find(operation.name) : at(operation.name));
    const auto* const variable = prepared.variables.back().get();
    if (variable != nullptr) {
      variable->require_fits(operation);
      if (operation.wants_value) count_reply(sent_back, variable->bytes(), variable->name());
    }
    if (operation.kind == Operation::Kind::kSetLearningRate) continue;
    const auto value_bytes = bytes_of(operation.dtype, operation.shape, operation.name);
    if (variable != nullptr) room = std::max(room, variable->room_for(operation));
    if (operation.is_staged) continue;
    std::size_t id_bytes = 0;
    if (is_of_rows(operation.kind) &&
        __builtin_mul_overflow(static_cast<std::size_t>(operation.shape[0]), sizeof(std::int64_t), &id_bytes))
      require_payload(payload, std::numeric_limits<std::size_t>::max());
    if (__builtin_add_overflow(wanted, value_bytes, &wanted) || __builtin_add_overflow(wanted, id_bytes, &wanted))
      require_payload(payload, std::numeric_limits<std::size_t>::max());
  }
  require_payload(payload, wanted);
  memory->require(wanted + room, "an update", MemoryUse::kPasses);
  prepared.given.resize(request.operations.size());
  return prepared;
}

void VariableStore::State::read_given(const UpdateRequest& request, Parts parts, Incoming& payload, Prepared& prepared) {
  for (std::size_t i = 0; i < request.operations.size(); ++i) {
    if (parts != Parts::kAll && (parts == Parts::kStaged) != request.operations[i].is_staged) continue;
    prepared.given[i] = give(request, i, payload);
    if (prepared.variables[i] != nullptr) prepared.variables[i]->require_fits(request.operations[i], prepared.given[i]);
  }
}

void VariableStore::State::look_again(const UpdateRequest& request, Prepared& prepared) const {
  for (std::size_t i = 0; i < request.operations.size(); ++i) {
    const auto& operation = request.operations[i];
    auto now = at(operation.name);
    if (now == prepared.variables[i]) continue;
    now->require_fits(operation);
    if (prepared.given[i].values.defined()) now->require_fits(operation, prepared.given[i]);  // else: when it is read
    prepared.variables[i] = std::move(now);
  }
}

UpdateReply VariableStore::State::apply(const UpdateRequest& request, const Prepared& prepared) {
  UpdateReply reply;
  reply.versions.reserve(request.operations.size());
  for (std::size_t i = 0; i < request.operations.size(); ++i) {
    if (prepared.variables[i] == nullptr) {
      reply.versions.push_back(0);
      continue;
    }
    try {
      reply.versions.push_back(prepared.variables[i]->apply(request.operations[i], prepared.given[i]));
      if (const auto made_of = request.operations[i].made_of) staleness.add(*made_of, reply.versions.back());
    } catch (const std::exception& error) {  // kInternal: what was done before must not be done again
      throw Error(ErrorCode::kInternal, str("operation ", i, " of ", request.operations.size(), ", on variable '",
                                            request.operations[i].name, "', failed; those before it are done: ", error.what()));
    }
  }
  updates.add(request.operations.size());
  if (options.done != nullptr) *options.done += request.operations.size();
  return reply;
}

std::string VariableStore::State::in_turn(const Change& change, const std::function<std::string()>& work) {
  return options.order->in_turn(change, [&] {
    // Here, not later: who copies the store in a turn of its own finds the answer with what was done for it.
    try {
      auto bytes = with_typed_errors(work);
      clients.record(change.sender, bytes);
      return bytes;
    } catch (const Error& error) {
      if (!is_retryable(error.code())) clients.record(change.sender, error);
      throw;
    }
  });
}

std::string VariableStore::State::once(const Sender& sender, const std::function<std::string()>& work) {
  auto asks = ChangeOrder::Asks::kAgain;
  const auto first = [&] {
    asks = ChangeOrder::Asks::kFirst;
    return with_typed_errors(work);
  };
  auto answer = clients.once(sender, first, Deadline::after(kRepeatWaits));
  if (options.order != nullptr) options.order->wait_until_kept(asks);
  return answer;
}

// Where it can, the payload is sent on from where it came to, before it is read here: both stores read it at the same time,
// and find the same in it.
std::string VariableStore::State::update_in_turn(const UpdateRequest& message, Incoming& request) {
  auto prepared = look(message, request);
  std::vector<Piece> payload;
  if (request.left() <= kMostSentOn)
    for (const auto& piece : request.rest()) payload.push_back({piece});
  bool is_read = payload.empty();
  read_given(message, is_read ? Parts::kAll : Parts::kStaged, request, prepared);
  auto change = change_of(message, prepared.given, std::move(payload));
  change.check = [&] {
    look_again(message, prepared);
    if (!std::exchange(is_read, true)) read_given(message, Parts::kInline, request, prepared);
  };
  return in_turn(change, [&] {
    change.check();
    return to_bytes(apply(message, prepared));
  });
}

void VariableStore::State::update(Incoming& request, Outgoing& reply) {
  const auto message = from_bytes<UpdateRequest>(request.fields());
  const auto work = [&] {
    if (options.order != nullptr) return update_in_turn(message, request);
    auto prepared = look(message, request);
    read_given(message, Parts::kAll, request, prepared);
    return to_bytes(apply(message, prepared));
  };
  auto answer = from_bytes<UpdateReply>(once(message.sender, work));
  Variables wanted;
  std::size_t size = 0;
  for (const auto& operation : message.operations) {
    if (!operation.wants_value) continue;
    wanted.push_back(at(operation.name));
    count_reply(size, wanted.back()->bytes(), operation.name);
  }
  if (!wanted.empty()) {
    ReplyBytes bytes(size);
    for (const auto& variable : wanted) {
      answer.value_versions.push_back(*variable->read(0, {bytes.end(), variable->bytes()}));
      bytes.use(variable->bytes());
    }
    bytes.send(reply);
    reads.add(wanted.size());
  }
  reply.fields = to_bytes(answer);
}

std::string VariableStore::redo(const std::string& method, Incoming& request, bool is_partial) {
  auto& state = *state_;
  const auto how = is_partial ? State::Redo::kPartial : State::Redo::kWhole;
  const auto recorded = [&](const Sender& sender, const std::function<std::string()>& work) {
    try {
      auto answer = with_typed_errors(work);
      state.clients.record(sender, answer);
      return answer;
    } catch (const Error& error) {
      if (is_retryable(error.code())) throw;
      state.clients.record(sender, error);
      return std::string(name_of(error.code()));
    }
  };
  if (method == methods::kUpdate) {
    const auto message = from_bytes<UpdateRequest>(request.fields());
    return recorded(message.sender, [&] {
      auto prepared = state.look(message, request, how);
      state.read_given(message, State::Parts::kAll, request, prepared);
      return to_bytes(state.apply(message, prepared));
    });
  }
  if (method == methods::kCreate) {
    const auto message = from_bytes<CreateRequest>(request.fields());
    return recorded(message.sender, [&] { return to_bytes(state.create(message, request, how)); });
  }
  if (method == methods::kRemove) {
    const auto message = from_bytes<RemoveRequest>(request.fields());
    return recorded(message.sender, [&] { return state.remove(message, how), std::string(); });
  }
  throw Error(ErrorCode::kUnimplemented, str("a store does not know how to do '", method, "' again"));
}

}  // namespace lockstep::ps
