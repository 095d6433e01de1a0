#include "lockstep/ps/store.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/store_state.h"

namespace lockstep::ps {
namespace {

std::vector<std::int64_t> read_ids(Incoming& request, std::uint64_t count) {
  if (count > request.left() / sizeof(std::int64_t))
    throw Error(ErrorCode::kInvalidArgument,
                str("a request for ", count, " rows with ", request.left(), " bytes of their numbers; each has 8"));
  std::vector<std::int64_t> ids(count);
  request.read(std::as_writable_bytes(std::span(ids)));
  return ids;
}

}  // namespace

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

std::string with_typed_errors(const std::function<std::string()>& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kUnavailable, "out of memory: the server has none for this request");
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInternal, error.what_without_backtrace());
  }
}

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
  out.staleness = staleness.counts();
  return out;
}

VariableStore::VariableStore(const StoreOptions& options) : state_(std::make_unique<State>(options)) {}
VariableStore::~VariableStore() = default;

std::shared_ptr<StoredVariable> VariableStore::find(const std::string& name) const { return state_->find(name); }
std::vector<std::shared_ptr<StoredVariable>> VariableStore::variables() const { return state_->all(); }
std::shared_ptr<StoredVariable> VariableStore::add(const Description& description) { return state_->add(description); }
ClientTable& VariableStore::clients() { return state_->clients; }
Uploads& VariableStore::uploads() { return state_->uploads; }
const StoreOptions& VariableStore::options() const noexcept { return state_->options; }
DescribeReply VariableStore::describe() const { return state_->describe(); }
StoreStatistics VariableStore::statistics() const { return state_->statistics(); }
std::uint64_t VariableStore::names_changed() const { return state_->names_changed; }
std::uint64_t VariableStore::operations() const {
  const std::shared_lock lock(state_->mu);
  std::uint64_t sum = 0;
  for (const auto& [name, variable] : state_->variables) sum += variable->version();
  return sum;
}
ClientState VariableStore::client_state(std::uint64_t client) const { return state_->clients.state(client); }

std::map<std::string, Method> VariableStore::methods() {
  const auto counted = [this](auto work, HandlerKind kind = HandlerKind::kMayWait) {
    return Method{[this, work](Incoming& request, Outgoing& reply) {
                    ++state_->requests;
                    const OnExit leave([this] { --state_->requests; });
                    with_typed_errors([&] { return work(*state_, request, reply), std::string(); });
                  },
                  kind};
  };
  namespace names = lockstep::ps::methods;
  return {
      {names::kCreate, counted([](State& state, Incoming& request, Outgoing& reply) {
         const auto message = from_bytes<CreateRequest>(request.fields());
         reply.fields = state.once(message.sender, [&] { return to_bytes(state.create(message, request)); });
       })},
      {names::kRemove, counted([](State& state, Incoming& request, Outgoing& reply) {
         const auto message = from_bytes<RemoveRequest>(request.fields());
         reply.fields = state.once(message.sender, [&] { return state.remove(message), std::string(); });
       })},
      {names::kStage, counted([](State& state, Incoming& request, Outgoing&) {
         const auto message = from_bytes<StageRequest>(request.fields());
         if (state.clients.is_new(message.sender)) state.stage(message, request);
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
