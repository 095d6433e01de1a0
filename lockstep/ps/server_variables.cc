#include "lockstep/ps/server_variables.h"

#include <ATen/ATen.h>

#include <atomic>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/row_split.h"
#include "lockstep/ps/worker_context.h"
#include "lockstep/variable/variable_state.h"

namespace lockstep::ps {
namespace {

using Updates = std::vector<ParameterClient::Update>;

// What CachedReads remembers: by the variable's name on the servers. A shard has one of its own.
thread_local std::unordered_map<std::string, at::Tensor>* t_cache = nullptr;

Operation::Kind kind_of(VariableWrite how, bool is_of_rows) {
  using Kind = Operation::Kind;
  switch (how) {
    case VariableWrite::kAssign: return is_of_rows ? Kind::kUpdateRows : Kind::kAssign;
    case VariableWrite::kAdd: return is_of_rows ? Kind::kAddRows : Kind::kAdd;
    case VariableWrite::kSub: return is_of_rows ? Kind::kSubRows : Kind::kSub;
    case VariableWrite::kMul: return Kind::kMulRows;
    case VariableWrite::kDiv: return Kind::kDivRows;
    case VariableWrite::kMin: return Kind::kMinRows;
    case VariableWrite::kMax: return Kind::kMaxRows;
  }
  throw Error(ErrorCode::kInternal, "an unknown kind of write");
}

RowSplit split_of(const VariableAddress& address) {
  std::vector<std::int64_t> rows;
  for (const auto& part : address.parts) rows.push_back(part.rows);
  return RowSplit(rows);
}

RemoteDescription described(const VariableAddress& address) {
  return {address.name, address.sizes, address.dtype, address.is_trainable, address.aggregation};
}

// A variable on one server, or in parts on several; or this worker's copy of one.
class OnServers : public RemoteVariable, public Addressed {
 public:
  OnServers(std::shared_ptr<ServerVariables> home, VariableAddress address, std::shared_ptr<ReplicaSet> replicas)
      : home_(std::move(home)),
        address_(std::move(address)),
        split_(split_of(address_)),
        replicas_(std::move(replicas)),
        versions_(address_.parts.size()) {}

  const VariableAddress& address() const noexcept override { return address_; }

  at::Tensor read() const override {
    if (const auto* const known = cached()) return known->clone();
    auto value = at::empty(address_.sizes, address_.dtype);
    const auto results = client().read(readings(value));
    for (std::size_t i = 0; i < results.size(); ++i) note_version(i, results[i].version);
    if (t_cache != nullptr) t_cache->emplace(stored_name(address_), value.clone());
    return value;
  }

  at::Tensor read_rows(const at::Tensor& ids) const override {
    const auto wanted = ids.to(at::kCPU, at::kLong).contiguous();
    if (const auto* const known = cached()) return known->index_select(0, wanted);
    auto sizes = address_.sizes;
    sizes[0] = wanted.numel();
    auto rows = at::empty(sizes, address_.dtype);
    const auto parts = split_.route({wanted.data_ptr<std::int64_t>(), static_cast<std::size_t>(wanted.numel())});
    std::vector<ParameterClient::ReadRows> readings;
    for (const auto& part : parts) {
      sizes[0] = static_cast<std::int64_t>(part.rows.size());
      const auto& place = address_.parts[part.shard];
      readings.push_back({place.server, place.name, at::tensor(part.rows, at::kLong), at::empty(sizes, address_.dtype)});
    }
    if (readings.size() == 1) readings[0].into = rows;
    const auto versions = client().read_rows(readings);
    for (std::size_t i = 0; i < versions.size(); ++i) note_version(parts[i].shard, versions[i]);
    for (std::size_t i = 0; readings.size() > 1 && i < readings.size(); ++i)
      rows.index_copy_(0, at::tensor(parts[i].positions, at::kLong), readings[i].into);
    return rows;
  }

  void write(VariableWrite how, const at::Tensor& value) override {
    client().update(updates(kind_of(how, false), value.contiguous()));
  }
  void write_rows(VariableWrite how, const IndexedSlices& rows) override {
    client().update(row_updates(kind_of(how, true), rows));
  }

  // Of all of it into `whole`, which is contiguous.
  std::vector<ParameterClient::Read> readings(const at::Tensor& whole) const {
    std::vector<ParameterClient::Read> all;
    for (std::size_t i = 0; i < address_.parts.size(); ++i)
      all.push_back({address_.parts[i].server, address_.parts[i].name, part_of(whole, i)});
    return all;
  }

  Updates updates(Operation::Kind kind, const at::Tensor& value) const {
    Updates all;
    for (std::size_t i = 0; i < address_.parts.size(); ++i)
      all.push_back(
          {.server = address_.parts[i].server, .name = address_.parts[i].name, .kind = kind, .values = part_of(value, i)});
    if (kind == Operation::Kind::kGradient)
      for (std::size_t i = 0; i < all.size(); ++i) all[i].made_of = version(i);
    return all;
  }

  Updates row_updates(Operation::Kind kind, const IndexedSlices& rows) const {
    const auto ids = rows.indices.to(at::kCPU, at::kLong).contiguous();
    const auto values = rows.values.to(at::kCPU, address_.dtype).contiguous();
    Updates all;
    const auto add = [&](std::size_t shard, const at::Tensor& part_values, const at::Tensor& part_ids) {
      const auto& place = address_.parts[shard];
      all.push_back({place.server, place.name, kind, part_values, part_ids});
      if (kind == Operation::Kind::kGradientRows) all.back().made_of = version(shard);
    };
    if (address_.parts.size() == 1) add(0, values, ids);
    else
      for (const auto& part : split_.route({ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())}))
        add(part.shard, values.index_select(0, at::tensor(part.positions, at::kLong)), at::tensor(part.rows, at::kLong));
    return all;
  }

  // The version of a part's values that were read here last: what gradients are made of.
  void note_version(std::size_t part, std::uint64_t version) const { versions_[part] = version + 1; }
  std::optional<std::uint64_t> version(std::size_t part) const {
    const auto noted = versions_[part].load();
    return noted == 0 ? std::nullopt : std::optional(noted - 1);
  }

  std::vector<std::string> devices() const override {
    std::vector<std::string> names;
    if (address_.is_per_worker) return home_->copies().devices;
    for (const auto& part : address_.parts) names.push_back(str("/job:ps/replica:0/task:", part.server, "/device:CPU:0"));
    return names;
  }

  std::vector<Variable> shards() const override {
    std::vector<Variable> all;
    if (address_.parts.size() < 2) return all;
    for (const auto& part : address_.parts) {
      auto one = address_;
      one.name = part.name;
      one.sizes[0] = part.rows;
      one.parts = {part};
      all.push_back(home_->find(one, replicas_));
    }
    return all;
  }

 private:
  // Null: nobody asked for it, or it was not read yet.
  const at::Tensor* cached() const {
    if (t_cache == nullptr) return nullptr;
    const auto found = t_cache->find(stored_name(address_));
    return found == t_cache->end() ? nullptr : &found->second;
  }

  ParameterClient& client() const { return address_.is_per_worker ? *home_->copies().client : home_->client(); }

  // The rows of `whole` that part i has; contiguous as `whole` is.
  at::Tensor part_of(const at::Tensor& whole, std::size_t i) const {
    return address_.parts.size() == 1 ? whole : whole.narrow(0, split_.begin(i), split_.size(i));
  }

  // Const after construction.
  const std::shared_ptr<ServerVariables> home_;
  const VariableAddress address_;
  const RowSplit split_;
  const std::shared_ptr<ReplicaSet> replicas_;

  // Own synchronisation.
  mutable std::vector<std::atomic<std::uint64_t>> versions_;  // by part, and one more; 0: none was read
};

const OnServers* on_servers(const Variable& variable) { return dynamic_cast<const OnServers*>(variable.remote()); }

const OnServers& require_on_servers(const Variable& variable) {
  if (const auto* const remote = on_servers(variable)) return *remote;
  throw Error(ErrorCode::kInvalidArgument, str("variable '", variable.name(),
                                               "' does not live on a parameter server; make it in the scope() of a "
                                               "ParameterServerStrategy"));
}

}  // namespace

ServerVariables::ServerVariables(std::shared_ptr<ParameterClient> client, Partitioner partitioner, std::string prefix)
    : client_(std::move(client)), partitioner_(std::move(partitioner)), prefix_(std::move(prefix)) {}

std::string ServerVariables::unused_name(const std::string& name) {
  const auto count = names_[name]++;
  return count == 0 ? name : unused_name(str(name, "_", count));
}

VariableAddress ServerVariables::create(const RemoteDescription& description, const Creation& creation) {
  const auto shards = creation.server ? 1 : count_shards(partitioner_, description.sizes, description.dtype);
  VariableAddress address{description.name,         description.sizes,       description.dtype,
                          description.is_trainable, description.aggregation, {}};
  {
    const std::lock_guard lock(mu_);
    const auto name = unused_name(prefix_ + description.name);
    const bool has_rows = !description.sizes.empty();
    const auto split =
        shards == 1 ? RowSplit({has_rows ? description.sizes[0] : 1}) : RowSplit::div(description.sizes[0], shards);
    for (std::size_t i = 0; i < split.shards(); ++i)
      address.parts.push_back(
          {shards == 1 ? name : str(name, "/part_", i),
           creation.server ? *creation.server : next_server_++ % static_cast<std::uint32_t>(client_->size()), split.size(i)});
  }
  std::int64_t first_row = 0;
  for (const auto& part : address.parts) {
    Description one{part.name,         static_cast<std::int8_t>(description.dtype),
                    description.sizes, description.sizes,
                    first_row,         description.is_trainable,
                    creation.rule,     creation.initial.value_or(Initial{})};
    if (!one.shape.empty()) one.shape[0] = part.rows;
    std::vector<std::int64_t> offset(one.shape.size());
    if (!offset.empty()) offset[0] = first_row;
    client_->create({{part.server, one, creation.initial ? at::Tensor() : creation.part(one.shape, offset).contiguous()}});
    first_row += part.rows;
  }
  return address;
}

std::shared_ptr<RemoteVariable> ServerVariables::create(const RemoteDescription& description, const PartInitializer& initial,
                                                        const Variable* beside) {
  Creation creation{.part = initial};
  if (beside != nullptr) {
    const auto* const other = address_of(*beside);
    require(other != nullptr, "colocate_vars_with: the variable does not live on a parameter server");
    creation.server = other->parts[0].server;
  }
  return std::make_shared<OnServers>(shared_from_this(), create(description, creation), replicas());
}

// A copy begins with what the parameter server keeps for it.
void ServerVariables::begin_copy(const VariableAddress& address) {
  const auto& part = address.parts[0];
  {
    const std::lock_guard lock(mu_);
    if (begun_.contains(part.name)) return;
  }
  const auto value = at::empty(address.sizes, address.dtype);
  client_->read({{part.server, part.name, value}});
  Description one{part.name, static_cast<std::int8_t>(address.dtype), address.sizes, address.sizes};
  one.is_trainable = address.is_trainable;
  copies_.client->create({{0, one, value}});
  const std::lock_guard lock(mu_);
  begun_.insert(part.name);
}

Variable ServerVariables::find(const VariableAddress& given, std::shared_ptr<ReplicaSet> replicas) {
  auto address = given;
  if (address.is_per_worker) {
    begin_copy(address);
    address.parts[0].server = 0;
  }
  return internal::handle_of(std::make_shared<OnServers>(shared_from_this(), address, replicas), described(address), replicas);
}

std::string stored_name(const VariableAddress& address) {
  const auto& first = address.parts[0].name;
  return address.parts.size() == 1 ? first : first.substr(0, first.rfind("/part_"));
}

const VariableAddress* address_of(const Variable& variable) {
  const auto* const remote = dynamic_cast<const Addressed*>(variable.remote());
  return remote == nullptr ? nullptr : &remote->address();
}

Updates ServerVariables::updates_of(const Tensors& gradients, const Tensors& values) const {
  Updates all;
  const auto add = [&](Updates mine) {
    all.insert(all.end(), std::make_move_iterator(mine.begin()), std::make_move_iterator(mine.end()));
  };
  for (const auto& [variable, gradient] : gradients) {
    const auto& remote = require_on_servers(variable);
    if (gradient.is_sparse())
      add(remote.row_updates(Operation::Kind::kGradientRows, {gradient._values(), gradient._indices()[0]}));
    else add(remote.updates(Operation::Kind::kGradient, gradient.to(at::kCPU, variable.scalar_type()).contiguous()));
  }
  for (const auto& [variable, value] : values)
    add(require_on_servers(variable).updates(Operation::Kind::kAssign,
                                             value.to(at::kCPU, variable.scalar_type()).contiguous()));
  return all;
}

void ServerVariables::push(const Tensors& gradients, const Tensors& values) {
  const auto all = updates_of(gradients, values);
  if (!all.empty()) client_->update(all);
}

void ServerVariables::set_learning_rate(const std::vector<Variable>& variables, double rate) {
  Updates all;
  for (const auto& variable : variables)
    for (const auto& part : require_on_servers(variable).address().parts) {
      ParameterClient::Update update{part.server, part.name, Operation::Kind::kSetLearningRate};
      update.number = rate;
      all.push_back(std::move(update));
    }
  if (!all.empty()) client_->update(all);
}

void ServerVariables::pull(const Tensors& values) const {
  std::vector<ParameterClient::Read> all;
  std::vector<std::pair<const OnServers*, std::size_t>> parts;
  for (const auto& [variable, into] : values) {
    const auto& remote = require_on_servers(variable);
    for (auto& one : remote.readings(into)) {
      parts.emplace_back(&remote, !parts.empty() && parts.back().first == &remote ? parts.back().second + 1 : 0);
      all.push_back(std::move(one));
    }
  }
  if (all.empty()) return;
  const auto results = client_->read(all);
  for (std::size_t i = 0; i < results.size(); ++i) parts[i].first->note_version(parts[i].second, results[i].version);
}

void ValueCodec<Variable>::encode(const Variable& variable, Encoder& encoder) {
  const auto* const address = address_of(variable);
  if (address == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                str("variable '", variable.name(),
                    "' is an argument of a closure and lives in this process alone; make it in the scope() of the "
                    "ParameterServerStrategy, or give its value"));
  encoder.put(to_bytes(*address));
}

Variable ValueCodec<Variable>::decode(Decoder& decoder) {
  const auto address = from_bytes<VariableAddress>(decoder.get<std::string>());
  const auto home = decoder.worker().find<ServerVariables>();
  if (home == nullptr || address.parts.empty())
    throw Error(ErrorCode::kFailedPrecondition, str("variable '", address.name, "': this worker knows no parameter servers"));
  return home->find(address, home->replicas());
}

CachedReads::CachedReads() {
  if (t_cache != nullptr)
    throw Error(ErrorCode::kInvalidArgument, "reads of variables are cached already; CachedReads cannot be nested");
  t_cache = new std::unordered_map<std::string, at::Tensor>();  // NOLINT: of the thread, until the destructor
}
CachedReads::~CachedReads() { delete std::exchange(t_cache, nullptr); }

}  // namespace lockstep::ps
