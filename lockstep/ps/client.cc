#include "lockstep/ps/client.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/calls.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/store.h"
#include "lockstep/ps/tensor_bytes.h"

namespace lockstep::ps {
namespace {

std::int8_t dtype_of(const at::Tensor& tensor) { return static_cast<std::int8_t>(tensor.scalar_type()); }

// The tensor's own memory, where it can be sent from there.
at::Tensor dense(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU).contiguous(); }

std::size_t bytes_of(const std::vector<Piece>& pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.bytes.size();
  return bytes;
}

// `count` bytes of the pieces, from `first` on.
std::vector<Piece> cut(const std::vector<Piece>& pieces, std::size_t first, std::size_t count) {
  std::vector<Piece> out;
  for (const auto& piece : pieces) {
    const auto begin = std::min(first, piece.bytes.size());
    const auto length = std::min(count, piece.bytes.size() - begin);
    if (length > 0) out.push_back({piece.bytes.subspan(begin, length), piece.owner});
    first -= begin;
    count -= length;
  }
  return out;
}

// Where a reply's bytes go: into a tensor, or first beside it when its memory is not in one piece here.
class Target {
 public:
  explicit Target(const at::Tensor& into)
      : into_(into), memory_(is_plain(into) ? into : at::empty(into.sizes(), into.scalar_type())) {}

  std::span<std::byte> part(std::size_t first, std::size_t count) const {
    return {static_cast<std::byte*>(memory_.data_ptr()) + first, count};
  }
  std::size_t bytes() const { return memory_.nbytes(); }
  const at::Tensor& tensor() const { return into_; }
  void finish() const {
    if (memory_.is_same(into_)) return;
    const c10::NoGradGuard no_grad;
    at::Tensor(into_).copy_(memory_);
  }

 private:
  static bool is_plain(const at::Tensor& into) { return into.is_cpu() && into.is_contiguous(); }
  at::Tensor into_;
  at::Tensor memory_;
};

void require_ids(const std::string& name, const at::Tensor& ids, const at::Tensor& rows) {
  if (ids.defined() && ids.scalar_type() == at::kLong && ids.dim() == 1 && rows.dim() > 0 && rows.size(0) == ids.numel())
    return;
  throw Error(ErrorCode::kInvalidArgument, lockstep::str("variable '", name, "': rows ", rows.sizes(), " with ids ",
                                                         ids.defined() ? lockstep::str(ids.scalar_type(), " ", ids.sizes())
                                                                       : std::string("that are missing"),
                                                         "; each row needs one, of int64"));
}

void require_bytes(const std::string& name, const Incoming& reply, std::size_t wanted) {
  if (reply.left() != wanted)
    throw Error(ErrorCode::kInvalidArgument, str("variable '", name, "': ", reply.left(), " bytes came of it and others, and ",
                                                 wanted, " were wanted; the shapes differ"));
}

}  // namespace

struct ParameterClient::State {
  State(const std::vector<std::shared_ptr<CallTarget>>& servers, const ClientOptions& given)
      : options(given), call_options{given.one_try, given.in_flight} {
    require(!servers.empty(), "ParameterClient: there are no servers");
    require(options.piece_bytes > 0 && options.piece_bytes <= VariableStore::kMostReplyBytes && options.in_flight > 0,
            "ClientOptions: pieces must have bytes, at most as many as a reply may have, and some be under way");
    for (const auto& server : servers) links.push_back(std::make_unique<Link>(server));
  }

  Link& at(std::size_t server) const {
    if (server < links.size()) return *links[server];
    throw Error(ErrorCode::kInvalidArgument, str("server ", server, " of ", links.size()));
  }
  Deadline until(const MaybeDeadline& deadline) const { return deadline ? *deadline : Deadline::after(options.timeout); }
  void make(std::vector<ServerCall>& calls, const Deadline& deadline) const { make_calls(calls, call_options, deadline); }

  // A request that changes something, and what is sent before it.
  struct Change {
    Link* link;
    Link::Ticket ticket;
    const char* method = methods::kUpdate;
    const char* stage_method = methods::kStage;
    std::vector<Operation> operations = {};
    std::vector<std::pair<std::size_t, std::vector<Piece>>> staged = {};
    std::function<std::string(const Sender&)> fields = nullptr;
    std::vector<Piece> payload = {};
    std::function<void(Incoming&)> on_reply = nullptr;
  };
  // Calls that send `all`, a part of a request, before it.
  void stage(const Change& change, std::size_t part, const std::vector<Piece>& all, std::vector<ServerCall>& calls) const {
    const auto total = bytes_of(all);
    for (std::size_t first = 0; first < total; first += options.piece_bytes) {
      const StageRequest request{change.ticket.sender(), static_cast<std::uint32_t>(part), total, first};
      calls.push_back({change.link, change.stage_method, {to_bytes(request), cut(all, first, options.piece_bytes)}});
    }
  }
  // Does them all; again those whose parts were lost on their server. Throws the first error.
  void carry_out(const std::vector<Change>& changes, const Deadline& deadline) const;
  Change change_of(const New& variable, Link::Ticket ticket, CreateReply& answer) const;
  Change change_of(std::size_t server, Link::Ticket ticket, const std::vector<std::size_t>& indices,
                   const std::vector<Update>& updates, std::vector<std::uint64_t>& versions, std::vector<Read>& reads) const;

  // Const after construction.
  const ClientOptions options;
  const CallOptions call_options;
  std::vector<std::unique_ptr<Link>> links;
};

void ParameterClient::State::carry_out(const std::vector<Change>& changes, const Deadline& deadline) const {
  std::vector<const Change*> left;
  for (const auto& change : changes) left.push_back(&change);
  std::optional<TaskError> first_error;
  const auto note = [&](const TaskError& error) {
    if (!first_error) first_error.emplace(error);
  };
  while (!left.empty()) {
    std::vector<ServerCall> stages;
    std::vector<std::size_t> owners;
    for (std::size_t i = 0; i < left.size(); ++i) {
      for (const auto& [part, pieces] : left[i]->staged) stage(*left[i], part, pieces, stages);
      owners.resize(stages.size(), i);
    }
    make(stages, deadline);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (!stages[i].error) continue;
      note(*stages[i].error);
      left[owners[i]] = nullptr;
    }
    std::erase(left, nullptr);
    std::vector<ServerCall> calls;
    for (const auto* change : left)
      calls.push_back(
          {change->link, change->method, {change->fields(change->ticket.sender()), change->payload}, change->on_reply});
    make(calls, deadline);
    std::vector<const Change*> again;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i].error) continue;
      if (calls[i].error->code() == ErrorCode::kAborted && !deadline.has_passed()) again.push_back(left[i]);
      else note(*calls[i].error);
    }
    left = std::move(again);
  }
  if (first_error) throw_error(*first_error);
}

ParameterClient::ParameterClient(const std::vector<std::shared_ptr<CallTarget>>& servers, const ClientOptions& options)
    : state_(std::make_unique<State>(servers, options)) {}

namespace {

std::vector<std::shared_ptr<CallTarget>> targets_of(const std::vector<std::shared_ptr<RpcChannel>>& channels) {
  std::vector<std::shared_ptr<CallTarget>> targets;
  for (const auto& channel : channels) targets.push_back(target_of(channel));
  return targets;
}

}  // namespace

ParameterClient::ParameterClient(const std::vector<std::shared_ptr<RpcChannel>>& servers, const ClientOptions& options)
    : ParameterClient(targets_of(servers), options) {}
ParameterClient::~ParameterClient() = default;

std::size_t ParameterClient::size() const noexcept { return state_->links.size(); }
std::uint64_t ParameterClient::id_at(std::size_t server) const { return state_->at(server).client(); }

ParameterClient::State::Change ParameterClient::State::change_of(const New& variable, Link::Ticket ticket,
                                                                 CreateReply& answer) const {
  const auto& description = variable.description;
  Change change{&at(variable.server), std::move(ticket), methods::kCreate};
  if (description.initial.kind == Initial::Kind::kGiven) {
    if (!variable.value.defined() || dtype_of(variable.value) != description.dtype ||
        variable.value.sizes() != at::IntArrayRef(description.shape))
      throw Error(ErrorCode::kInvalidArgument,
                  str("variable '", description.name, "' needs a value of the shape and dtype that it is to have"));
    change.payload = {piece_of(dense(variable.value))};
  }
  const bool is_large = bytes_of(change.payload) > options.piece_bytes;
  if (is_large) change.staged.emplace_back(0, std::exchange(change.payload, {}));
  change.fields = [&description, is_large](const Sender& sender) {
    return to_bytes(CreateRequest{sender, description, is_large});
  };
  change.on_reply = [&answer](Incoming& reply) { answer = from_bytes<CreateReply>(reply.fields()); };
  return change;
}

std::vector<CreateReply> ParameterClient::create(const std::vector<New>& variables, const MaybeDeadline& deadline) {
  const auto until = state_->until(deadline);
  std::vector<CreateReply> replies(variables.size());
  for (std::size_t begin = 0; begin < variables.size(); begin += Link::kMostTaken) {
    std::map<std::size_t, std::vector<std::size_t>> by_server;
    for (std::size_t i = begin; i < std::min(variables.size(), begin + Link::kMostTaken); ++i)
      by_server[variables[i].server].push_back(i);
    std::vector<State::Change> changes;
    for (const auto& [server, indices] : by_server) {
      auto tickets = state_->at(server).take(indices.size(), until);
      for (std::size_t k = 0; k < indices.size(); ++k)
        changes.push_back(state_->change_of(variables[indices[k]], std::move(tickets[k]), replies[indices[k]]));
    }
    state_->carry_out(changes, until);
  }
  return replies;
}

void ParameterClient::remove(std::size_t server, const std::vector<std::string>& names, const MaybeDeadline& deadline) {
  auto& link = state_->at(server);
  std::vector<State::Change> changes;
  const auto until = state_->until(deadline);
  changes.push_back({&link, std::move(link.take(1, until)[0]), methods::kRemove});
  changes[0].fields = [&](const Sender& sender) { return to_bytes(RemoveRequest{sender, names}); };
  state_->carry_out(changes, until);
}

std::vector<ParameterClient::ReadResult> ParameterClient::read(const std::vector<Read>& variables,
                                                               const MaybeDeadline& deadline) {
  struct Part {
    std::size_t index;
    std::size_t first;
    std::size_t count;
  };
  struct Batch {
    ReadRequest request = {};
    std::vector<Part> parts = {};
    std::size_t bytes = 0;
  };
  std::vector<ReadResult> results(variables.size(), {~0ULL, false});
  std::vector<Target> targets;
  for (const auto& variable : variables) targets.emplace_back(variable.into);
  std::vector<ServerCall> calls;
  std::map<std::size_t, Batch> open;
  const auto close = [&](std::size_t server, Batch& batch) {
    const auto store = [&, parts = batch.parts](Incoming& reply) {
      const auto answer = from_bytes<ReadReply>(reply.fields());
      require(answer.versions.size() == parts.size() && answer.is_newer.size() == parts.size(), "a reply to another request");
      for (std::size_t i = 0; i < parts.size(); ++i) {
        auto& result = results[parts[i].index];
        result.version = std::min(result.version, answer.versions[i]);
        result.is_newer = result.is_newer || answer.is_newer[i];
        if (answer.is_newer[i]) reply.read(targets[parts[i].index].part(parts[i].first, parts[i].count));
      }
    };
    calls.push_back({&state_->at(server), methods::kRead, {to_bytes(batch.request)}, store});
    batch = {};
  };
  const auto most = state_->options.piece_bytes;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const auto& variable = variables[i];
    const auto as = std::pair(dtype_of(variable.into), variable.into.sizes().vec());
    std::size_t first = 0;
    do {  // once for a variable of no bytes, too
      const auto count = std::min(most, targets[i].bytes() - first);
      auto& batch = open[variable.server];
      if (batch.bytes + count > most) close(variable.server, batch);
      batch.request.readings.push_back(
          {variable.name, std::pair<std::uint64_t, std::uint64_t>(first, count), variable.newer_than, as});
      batch.parts.push_back({i, first, count});
      batch.bytes += count;
      first += count;
    } while (first < targets[i].bytes());
  }
  for (auto& [server, batch] : open)
    if (!batch.parts.empty()) close(server, batch);
  state_->make(calls, state_->until(deadline));
  throw_if_any_failed(calls);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i].is_newer) targets[i].finish();
  return results;
}

std::vector<std::uint64_t> ParameterClient::read_rows(const std::vector<ReadRows>& tables, const MaybeDeadline& deadline) {
  struct Batch {
    ReadRowsRequest request = {};
    std::vector<std::size_t> indices = {};  // of the tables
    std::vector<Piece> ids = {};
    std::vector<std::span<std::byte>> into = {};
    std::size_t bytes = 0;
  };
  std::vector<std::uint64_t> versions(tables.size(), ~0ULL);
  std::vector<Target> targets;
  std::vector<ServerCall> calls;
  std::map<std::size_t, Batch> open;
  const auto close = [&](std::size_t server, Batch& batch) {
    const auto store = [&, indices = batch.indices, into = batch.into, bytes = batch.bytes](Incoming& reply) {
      const auto answer = from_bytes<ReadRowsReply>(reply.fields());
      require(answer.versions.size() == indices.size(), "a reply to another request");
      require_bytes(tables[indices[0]].name, reply, bytes);
      for (const auto& part : into) reply.read(part);
      for (std::size_t i = 0; i < indices.size(); ++i)
        versions[indices[i]] = std::min(versions[indices[i]], answer.versions[i]);
    };
    calls.push_back({&state_->at(server), methods::kReadRows, {to_bytes(batch.request), batch.ids}, store});
    batch = {};
  };
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto& table = tables[i];
    require_ids(table.name, table.ids, table.into);
    targets.emplace_back(table.into);
    const auto count = static_cast<std::size_t>(table.ids.numel());
    if (count == 0) {
      versions[i] = 0;
      continue;
    }
    const auto ids = std::vector{piece_of(dense(table.ids))};
    const auto row_bytes = targets.back().bytes() / count;
    // As many rows as a piece has bytes for: of them, or of their ids.
    const auto most = std::max<std::size_t>(1, state_->options.piece_bytes / std::max(row_bytes, sizeof(std::int64_t)));
    for (std::size_t first = 0; first < count; first += most) {
      const auto rows = std::min(most, count - first);
      auto& batch = open[table.server];
      if (batch.bytes + rows * row_bytes > state_->options.piece_bytes && batch.bytes > 0) close(table.server, batch);
      batch.request.tables.emplace_back(table.name, rows);
      batch.indices.push_back(i);
      for (auto& piece : cut(ids, first * sizeof(std::int64_t), rows * sizeof(std::int64_t)))
        batch.ids.push_back(std::move(piece));
      batch.into.push_back(targets.back().part(first * row_bytes, rows * row_bytes));
      batch.bytes += rows * row_bytes;
    }
  }
  for (auto& [server, batch] : open)
    if (!batch.into.empty()) close(server, batch);
  state_->make(calls, state_->until(deadline));
  throw_if_any_failed(calls);
  for (const auto& target : targets) target.finish();
  return versions;
}

ParameterClient::State::Change ParameterClient::State::change_of(std::size_t server, Link::Ticket ticket,
                                                                 const std::vector<std::size_t>& indices,
                                                                 const std::vector<Update>& updates,
                                                                 std::vector<std::uint64_t>& versions,
                                                                 std::vector<Read>& reads) const {
  Change change{&at(server), std::move(ticket)};
  std::vector<Operation> operations;
  auto targets = std::make_shared<std::vector<Target>>();
  std::size_t inline_bytes = 0;
  std::size_t reply_bytes = 0;
  for (const auto index : indices) {
    const auto& update = updates[index];
    Operation operation{.name = update.name, .kind = update.kind, .number = update.number, .made_of = update.made_of};
    if (update.kind != Operation::Kind::kSetLearningRate) {
      operation.dtype = dtype_of(update.values);
      operation.shape = update.values.sizes().vec();
      std::vector<Piece> pieces;
      if (is_of_rows(update.kind)) {
        require_ids(update.name, update.ids, update.values);
        pieces.push_back(piece_of(dense(update.ids)));
      }
      pieces.push_back(piece_of(dense(update.values)));
      const auto bytes = bytes_of(pieces);
      operation.is_staged = bytes > 0 && inline_bytes + bytes > options.piece_bytes;
      if (operation.is_staged) {
        change.staged.emplace_back(operations.size(), std::move(pieces));
      } else {
        inline_bytes += bytes;
        change.payload.insert(change.payload.end(), pieces.begin(), pieces.end());
      }
    }
    if (update.new_value.defined()) {
      operation.wants_value = reply_bytes + update.new_value.nbytes() <= options.piece_bytes;
      if (operation.wants_value) targets->emplace_back(update.new_value), reply_bytes += update.new_value.nbytes();
      else reads.push_back({server, update.name, update.new_value});
    }
    operations.push_back(std::move(operation));
  }
  change.operations = std::move(operations);
  change.fields = [all = change.operations](const Sender& sender) { return to_bytes(UpdateRequest{sender, all}); };
  change.on_reply = [&versions, indices, targets, reply_bytes](Incoming& reply) {
    const auto answer = from_bytes<UpdateReply>(reply.fields());
    require(answer.versions.size() == indices.size(), "a reply to another request");
    for (std::size_t i = 0; i < indices.size(); ++i) versions[indices[i]] = answer.versions[i];
    require_bytes("with a new value", reply, reply_bytes);
    for (const auto& target : *targets) {
      reply.read(target.part(0, target.bytes()));
      target.finish();
    }
  };
  return change;
}

namespace {

std::map<std::size_t, std::vector<std::size_t>> by_server(const std::vector<ParameterClient::Update>& updates) {
  std::map<std::size_t, std::vector<std::size_t>> all;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].kind != Operation::Kind::kSetLearningRate && !updates[i].values.defined())
      throw Error(ErrorCode::kInvalidArgument, str("an update of variable '", updates[i].name, "' without values"));
    all[updates[i].server].push_back(i);
  }
  return all;
}

}  // namespace

std::vector<std::uint64_t> ParameterClient::update(const std::vector<Update>& updates, const MaybeDeadline& deadline) {
  const auto until = state_->until(deadline);
  std::vector<std::uint64_t> versions(updates.size());
  std::vector<Read> reads;
  std::vector<State::Change> changes;
  for (const auto& [server, indices] : by_server(updates))
    changes.push_back(
        state_->change_of(server, std::move(state_->at(server).take(1, until)[0]), indices, updates, versions, reads));
  state_->carry_out(changes, until);
  if (!reads.empty()) read(reads, until);
  return versions;
}

std::vector<std::string> ParameterClient::send(const std::vector<Update>& updates, const Sending& sending,
                                               const MaybeDeadline& deadline) {
  const auto until = state_->until(deadline);
  std::vector<std::uint64_t> versions(updates.size());
  std::vector<Read> reads;
  std::vector<std::string> replies(size());
  std::vector<State::Change> changes;
  auto indices = by_server(updates);
  if (!indices.empty()) state_->at(indices.rbegin()->first);
  for (std::size_t server = 0; server < size(); ++server) {
    auto change =
        state_->change_of(server, std::move(state_->at(server).take(1, until)[0]), indices[server], updates, versions, reads);
    change.method = sending.method;
    change.stage_method = sending.stage_method;
    change.fields = [&sending, all = change.operations](const Sender& sender) { return sending.fields(sender, all); };
    change.on_reply = [&reply = replies[server]](Incoming& message) { reply = message.fields(); };
    changes.push_back(std::move(change));
  }
  state_->carry_out(changes, until);
  return replies;
}

std::string ParameterClient::call(std::size_t server, const char* method, const std::string& fields,
                                  const MaybeDeadline& deadline) {
  std::string answer;
  std::vector<ServerCall> calls;
  calls.push_back({&state_->at(server), method, {fields}, [&](Incoming& reply) { answer = reply.fields(); }});
  state_->make(calls, state_->until(deadline));
  throw_if_any_failed(calls);
  return answer;
}

void ParameterClient::call_all(const char* method, const std::string& fields, const MaybeDeadline& deadline) {
  std::vector<ServerCall> calls;
  for (const auto& link : state_->links) calls.push_back({link.get(), method, {fields}});
  state_->make(calls, state_->until(deadline));
  throw_if_any_failed(calls);
}

std::vector<Described> ParameterClient::describe(std::size_t server, const MaybeDeadline& deadline) {
  return from_bytes<DescribeReply>(call(server, methods::kDescribe, to_bytes(std::string()), deadline)).variables;
}
StoreStatistics ParameterClient::statistics(std::size_t server, const MaybeDeadline& deadline) {
  return from_bytes<StoreStatistics>(call(server, methods::kStatistics, to_bytes(std::string()), deadline));
}
ClientState ParameterClient::client_state(std::size_t server, const MaybeDeadline& deadline) {
  return from_bytes<ClientState>(call(server, methods::kClientState, to_bytes(ClientStateRequest{id_at(server)}), deadline));
}

}  // namespace lockstep::ps
