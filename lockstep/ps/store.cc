#include "lockstep/ps/store.h"

#include <ATen/ATen.h>

#include <shared_mutex>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/client_table.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/initial_value.h"
#include "lockstep/ps/memory.h"
#include "lockstep/ps/rate_counter.h"
#include "lockstep/ps/uploads.h"

namespace lockstep::ps {
namespace {

using Variables = std::vector<std::shared_ptr<StoredVariable>>;

constexpr std::chrono::seconds kRepeatWaits{60};  // for the first of the same requests

std::span<std::byte> bytes_in(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// The bytes of a reply, which is sent from here.
class ReplyBytes {
 public:
  explicit ReplyBytes(std::size_t most) : bytes_(std::make_shared_for_overwrite<std::byte[]>(most)) {}  // NOLINT: an array

  std::byte* end() const { return bytes_.get() + used_; }
  void use(std::size_t count) { used_ += count; }
  void send(Outgoing& reply) const { reply.payload.push_back({{bytes_.get(), used_}, bytes_}); }

 private:
  std::shared_ptr<std::byte[]> bytes_;  // NOLINT: an array
  std::size_t used_ = 0;
};

// Adds up what a reply would have.
void count_reply(std::size_t& total, std::size_t bytes, const std::string& name) {
  if (bytes > VariableStore::kMostReplyBytes - total)
    throw Error(ErrorCode::kInvalidArgument,
                str("variable '", name, "': ", bytes, " bytes, and ", total, " before them in the same reply; at most ",
                    VariableStore::kMostReplyBytes, " are sent at a time, read it in pieces"));
  total += bytes;
}

void require_payload(const Incoming& request, std::size_t wanted) {
  if (request.left() == wanted) return;
  throw Error(ErrorCode::kInvalidArgument,
              str("a request with ", request.left(), " bytes of values that should have ", wanted));
}

std::vector<std::int64_t> read_ids(Incoming& request, std::uint64_t count) {
  if (count > request.left() / sizeof(std::int64_t)) require_payload(request, count * sizeof(std::int64_t));
  std::vector<std::int64_t> ids(count);
  request.read(std::as_writable_bytes(std::span(ids)));
  return ids;
}

// Other exceptions than ours: no memory for something small, or LibTorch's.
template <typename Fn>
auto with_typed_errors(Fn&& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kUnavailable, "out of memory: the server has none for this request");
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInternal, error.what_without_backtrace());
  }
}

}  // namespace

struct VariableStore::State {
  explicit State(const StoreOptions& given)
      : options(given), memory(given.most_bytes), uploads(memory), clients(given.most_clients) {}

  // An update that was found to be possible.
  struct Prepared {
    Variables variables;
    std::vector<Given> given;
  };

  std::shared_ptr<StoredVariable> at(const std::string& name) const;
  std::shared_ptr<StoredVariable> find(const std::string& name) const;
  CreateReply create(const CreateRequest& request, Incoming& payload);
  std::unique_ptr<UpdateRule> make_rule(const Description& description, const at::Tensor& value);
  std::shared_ptr<StoredVariable> add(const Description& description);
  // Whether it is new; otherwise the one that was there.
  std::pair<std::shared_ptr<StoredVariable>, bool> keep(const Description& description, const at::Tensor& value,
                                                        std::vector<Memory::Reservation> reserved);
  CreateReply is_there(const StoredVariable& old, const Description& wanted) const;
  void remove(const RemoveRequest& request);
  Prepared prepare(const UpdateRequest& request, Incoming& payload);
  Given give(const UpdateRequest& request, std::size_t index, Incoming& payload);
  UpdateReply apply(const UpdateRequest& request, const Prepared& prepared);
  void update(Incoming& request, Outgoing& reply);
  void read(Incoming& request, Outgoing& reply);
  void read_rows(Incoming& request, Outgoing& reply);
  DescribeReply describe() const;
  StoreStatistics statistics() const;
  Variables all() const;

  // Const after construction.
  const StoreOptions options;

  // Own synchronisation. The memory outlives what counts in it.
  Memory memory;
  Uploads uploads;
  ClientTable clients;
  RateCounter updates;
  RateCounter reads;
  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> bytes{0};

  mutable std::shared_mutex mu;
  // Guarded by mu.
  std::map<std::string, std::shared_ptr<StoredVariable>> variables;
};

std::shared_ptr<StoredVariable> VariableStore::State::find(const std::string& name) const {
  const std::shared_lock lock(mu);
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second;
}

std::shared_ptr<StoredVariable> VariableStore::State::at(const std::string& name) const {
  if (auto found = find(name)) return found;
  constexpr std::size_t kCompared = 1'000;  // names, and as many letters of one
  std::vector<std::string> names;
  std::size_t count = 0;
  {
    const std::shared_lock lock(mu);
    count = variables.size();
    for (const auto& [known, variable] : variables)
      if (names.size() < kCompared) names.push_back(known);
  }
  const auto shown = name.substr(0, kCompared);
  const auto nearest = nearest_name(shown, names);
  throw Error(ErrorCode::kNotFound, str("variable '", shown, "' is not among the ", count, " of this server",
                                        nearest.empty() ? "" : str("; did you mean '", nearest, "'?")));
}

Variables VariableStore::State::all() const {
  const std::shared_lock lock(mu);
  Variables out;
  for (const auto& [name, variable] : variables) out.push_back(variable);
  return out;
}

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

CreateReply VariableStore::State::create(const CreateRequest& request, Incoming& payload) {
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
  if (is_staged) {
    auto whole = uploads.take(request.sender, 0, size);
    value = whole.bytes.view(static_cast<at::ScalarType>(description.dtype)).view(description.shape);
    reserved.push_back(std::move(whole.reserved));
  } else {
    reserved.push_back(memory.reserve(size, text));
    value = allocate(description.shape, description.dtype, text);
    if (is_given) payload.read(bytes_in(value));
    else fill_initial(value, description);
  }
  const auto [there, is_new] = keep(description, value, std::move(reserved));
  return is_new ? CreateReply{true, 0} : is_there(*there, description);
}

std::pair<std::shared_ptr<StoredVariable>, bool> VariableStore::State::keep(const Description& description,
                                                                            const at::Tensor& value,
                                                                            std::vector<Memory::Reservation> reserved) {
  auto rule = make_rule(description, value);
  if (rule != nullptr)
    reserved.push_back(memory.reserve(rule->state_bytes(), str("variable '", description.name, "''s optimizer")));
  auto made = std::make_shared<StoredVariable>(description, value, std::move(rule), std::move(reserved));
  const std::unique_lock lock(mu);
  const auto [place, is_new] = variables.emplace(description.name, std::move(made));
  if (is_new) bytes += place->second->bytes();
  return {place->second, is_new};
}

std::shared_ptr<StoredVariable> VariableStore::State::add(const Description& description) {
  require_possible(description);
  const auto text = str("variable '", description.name, "'");
  std::vector<Memory::Reservation> reserved;
  reserved.push_back(memory.reserve(bytes_of(description.dtype, description.shape, text), text));
  const auto [there, is_new] = keep(description, allocate(description.shape, description.dtype, text), std::move(reserved));
  if (!is_new) throw Error(ErrorCode::kFailedPrecondition, str(text, " is there already"));
  return there;
}

std::unique_ptr<UpdateRule> VariableStore::State::make_rule(const Description& description, const at::Tensor& value) {
  if (description.rule.empty()) return nullptr;
  const auto text = str("variable '", description.name, "'");
  if (options.rules == nullptr)
    throw Error(ErrorCode::kUnimplemented,
                str(text, ": this server knows no optimizers, and cannot have '", description.rule, "'"));
  memory.require(value.nbytes(), text + "'s optimizer");  // some have a state from the beginning
  try {
    return options.rules(description.rule, value);
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kUnavailable, str("out of memory: ", text, "'s optimizer: ", error.what_without_backtrace()));
  }
}

void VariableStore::State::remove(const RemoveRequest& request) {
  for (const auto& name : request.names) at(name);
  const std::unique_lock lock(mu);
  for (const auto& name : request.names) {
    const auto found = variables.find(name);
    if (found == variables.end()) continue;
    bytes -= found->second->bytes();
    variables.erase(found);
  }
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
  } else {
    given.values = allocate(operation.shape, operation.dtype, text);
    if (id_bytes > 0) {
      given.ids = allocate({operation.shape[0]}, static_cast<std::int8_t>(at::kLong), text);
      payload.read(bytes_in(given.ids));
    }
    payload.read(bytes_in(given.values));
  }
  if (is_of_rows(operation.kind) && !given.ids.defined()) given.ids = at::empty({0}, at::kLong);
  return given;
}

VariableStore::State::Prepared VariableStore::State::prepare(const UpdateRequest& request, Incoming& payload) {
  if (request.operations.size() > kMostOperations)
    throw Error(ErrorCode::kInvalidArgument,
                str("a request with ", request.operations.size(), " operations; at most ", kMostOperations, " come at a time"));
  Prepared prepared;
  std::size_t wanted = 0;
  std::size_t sent_back = 0;
  std::size_t room = 0;
  for (const auto& operation : request.operations) {
    prepared.variables.push_back(at(operation.name));
    const auto& variable = *prepared.variables.back();
    variable.require_fits(operation);
    if (operation.wants_value) count_reply(sent_back, variable.bytes(), variable.name());
    if (operation.kind == Operation::Kind::kSetLearningRate) continue;
    const auto value_bytes = bytes_of(operation.dtype, operation.shape, variable.name());
    room = std::max(room, variable.room_for(operation));
    if (operation.is_staged) continue;
    std::size_t id_bytes = 0;
    if (is_of_rows(operation.kind) &&
        __builtin_mul_overflow(static_cast<std::size_t>(operation.shape[0]), sizeof(std::int64_t), &id_bytes))
      require_payload(payload, std::numeric_limits<std::size_t>::max());
    if (__builtin_add_overflow(wanted, value_bytes, &wanted) || __builtin_add_overflow(wanted, id_bytes, &wanted))
      require_payload(payload, std::numeric_limits<std::size_t>::max());
  }
  require_payload(payload, wanted);
  memory.require(wanted + room, "an update");
  for (std::size_t i = 0; i < request.operations.size(); ++i) {
    prepared.given.push_back(give(request, i, payload));
    prepared.variables[i]->require_fits(request.operations[i], prepared.given.back());
  }
  return prepared;
}

UpdateReply VariableStore::State::apply(const UpdateRequest& request, const Prepared& prepared) {
  UpdateReply reply;
  reply.versions.reserve(request.operations.size());
  for (std::size_t i = 0; i < request.operations.size(); ++i) {
    try {
      reply.versions.push_back(prepared.variables[i]->apply(request.operations[i], prepared.given[i]));
    } catch (const std::exception& error) {  // kInternal: what was done before must not be done again
      throw Error(ErrorCode::kInternal, str("operation ", i, " of ", request.operations.size(), ", on variable '",
                                            request.operations[i].name, "', failed; those before it are done: ", error.what()));
    }
  }
  updates.add(request.operations.size());
  if (options.done != nullptr) *options.done += request.operations.size();
  return reply;
}

void VariableStore::State::update(Incoming& request, Outgoing& reply) {
  const auto message = from_bytes<UpdateRequest>(request.fields());
  const auto work = [&] { return with_typed_errors([&] { return to_bytes(apply(message, prepare(message, request))); }); };
  auto answer = from_bytes<UpdateReply>(clients.once(message.sender, work, Deadline::after(kRepeatWaits)));
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

void VariableStore::State::read(Incoming& request, Outgoing& reply) {
  const auto message = from_bytes<ReadRequest>(request.fields());
  Variables wanted;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  std::size_t size = 0;
  for (const auto& reading : message.readings) {
    wanted.push_back(at(reading.name));
    const auto& description = wanted.back()->description();
    if (reading.as && *reading.as != std::pair(description.dtype, description.shape))
      throw Error(ErrorCode::kInvalidArgument,
                  str("variable '", reading.name, "' is ", shown_shape(description.dtype, description.shape),
                      ", and is read as ", shown_shape(reading.as->first, reading.as->second)));
    const auto all = wanted.back()->bytes();
    const auto [first, count] = reading.range.value_or(std::pair<std::uint64_t, std::uint64_t>(0, all));
    if (first > all || count > all - first)
      throw Error(ErrorCode::kOutOfRange,
                  str("variable '", reading.name, "': ", count, " bytes from ", first, " on; it has ", all));
    count_reply(size, count, reading.name);
    ranges.emplace_back(first, count);
  }
  ReadReply answer;
  ReplyBytes bytes(size);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto [first, count] = ranges[i];
    const auto version = wanted[i]->read(first, {bytes.end(), count}, message.readings[i].newer_than);
    if (version) bytes.use(count);
    answer.versions.push_back(version.value_or(message.readings[i].newer_than.value_or(0)));
    answer.is_newer.push_back(version.has_value());
  }
  bytes.send(reply);
  reply.fields = to_bytes(answer);
  reads.add(wanted.size());
}

void VariableStore::State::read_rows(Incoming& request, Outgoing& reply) {
  const auto message = from_bytes<ReadRowsRequest>(request.fields());
  Variables wanted;
  std::vector<std::vector<std::int64_t>> ids;
  std::size_t size = 0;
  for (const auto& [name, count] : message.tables) {
    wanted.push_back(at(name));
    ids.push_back(read_ids(request, count));
    wanted.back()->require_rows(ids.back());
    const auto row_bytes = wanted.back()->row_bytes();
    count_reply(size, row_bytes == 0 || count <= kMostReplyBytes / row_bytes ? count * row_bytes : kMostReplyBytes + 1, name);
  }
  require_payload(request, 0);
  ReadRowsReply answer;
  ReplyBytes bytes(size);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    answer.versions.push_back(wanted[i]->read_rows(ids[i], bytes.end()));
    bytes.use(ids[i].size() * wanted[i]->row_bytes());
  }
  bytes.send(reply);
  reply.fields = to_bytes(answer);
  reads.add(wanted.size());
}

DescribeReply VariableStore::State::describe() const {
  DescribeReply reply;
  for (const auto& variable : all()) {
    Described described{variable->description(), variable->bytes()};
    variable->look([&](const at::Tensor&, const UpdateRule* rule, std::uint64_t version) {
      described.version = version;
      if (rule != nullptr) described.state_bytes = rule->state_bytes();
    });
    reply.variables.push_back(std::move(described));
  }
  return reply;
}

StoreStatistics VariableStore::State::statistics() const {
  StoreStatistics out;
  {
    const std::shared_lock lock(mu);
    out.variables = variables.size();
  }
  out.bytes = bytes;
  out.staged_bytes = uploads.bytes();
  out.updates = updates.total();
  out.reads = reads.total();
  out.updates_per_second = updates.per_second();
  out.requests = requests;
  out.clients = clients.size();
  return out;
}

VariableStore::VariableStore(const StoreOptions& options) : state_(std::make_unique<State>(options)) {}
VariableStore::~VariableStore() = default;

std::shared_ptr<StoredVariable> VariableStore::find(const std::string& name) const { return state_->find(name); }
std::vector<std::shared_ptr<StoredVariable>> VariableStore::variables() const { return state_->all(); }
StoreStatistics VariableStore::statistics() const { return state_->statistics(); }
ClientState VariableStore::client_state(std::uint64_t client) const { return state_->clients.state(client); }
std::shared_ptr<StoredVariable> VariableStore::add(const Description& description) { return state_->add(description); }
ClientTable& VariableStore::clients() { return state_->clients; }
const StoreOptions& VariableStore::options() const noexcept { return state_->options; }

std::map<std::string, Method> VariableStore::methods() {
  const auto counted = [this](auto work, HandlerKind kind = HandlerKind::kMayWait) {
    return Method{[this, work](Incoming& request, Outgoing& reply) {
                    ++state_->requests;
                    const OnExit leave([this] { --state_->requests; });
                    with_typed_errors([&] { work(*state_, request, reply); });
                  },
                  kind};
  };
  const auto once = [](State& state, const Sender& sender, const std::function<std::string()>& work) {
    return state.clients.once(
        sender, [&] { return with_typed_errors(work); }, Deadline::after(kRepeatWaits));
  };
  namespace names = lockstep::ps::methods;
  return {
      {names::kCreate, counted([once](State& state, Incoming& request, Outgoing& reply) {
         const auto message = from_bytes<CreateRequest>(request.fields());
         reply.fields = once(state, message.sender, [&] { return to_bytes(state.create(message, request)); });
       })},
      {names::kRemove, counted([once](State& state, Incoming& request, Outgoing& reply) {
         const auto message = from_bytes<RemoveRequest>(request.fields());
         reply.fields = once(state, message.sender, [&] { return state.remove(message), std::string(); });
       })},
      {names::kStage, counted([](State& state, Incoming& request, Outgoing&) {
         const auto message = from_bytes<StageRequest>(request.fields());
         if (state.clients.is_new(message.sender)) state.uploads.stage(message, request);
       })},
      {names::kUpdate, counted([](State& state, Incoming& request, Outgoing& reply) { state.update(request, reply); })},
      {names::kRead, counted([](State& state, Incoming& request, Outgoing& reply) { state.read(request, reply); })},
      {names::kReadRows, counted([](State& state, Incoming& request, Outgoing& reply) { state.read_rows(request, reply); })},
      {names::kDescribe, counted([](State& state, Incoming&, Outgoing& reply) { reply.fields = to_bytes(state.describe()); })},
      {names::kStatistics,
       counted([](State& state, Incoming&, Outgoing& reply) { reply.fields = to_bytes(state.statistics()); },
               HandlerKind::kQuick)},
      {names::kClientState, counted(
                                [](State& state, Incoming& request, Outgoing& reply) {
                                  const auto message = from_bytes<ClientStateRequest>(request.fields());
                                  reply.fields = to_bytes(state.clients.state(message.client));
                                },
                                HandlerKind::kQuick)},
  };
}

}  // namespace lockstep::ps
