#include "lockstep/ps/server_variables.h"

#include <ATen/ATen.h>

#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/row_split.h"
#include "lockstep/ps/worker_context.h"
#include "lockstep/variable/variable_state.h"

namespace lockstep::ps {
namespace {

// What CachedReads remembers: by the name of a variable's first part.
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
  return {address.name, address.sizes, address.dtype, address.is_trainable};
}

// A variable on one server, or in parts on several.
class OnServers : public RemoteVariable {
 public:
  OnServers(std::shared_ptr<ServerVariables> home, VariableAddress address, std::shared_ptr<ReplicaSet> replicas)
      : home_(std::move(home)), address_(std::move(address)), replicas_(std::move(replicas)) {}

  const VariableAddress& address() const noexcept { return address_; }

  at::Tensor read() const override {
    if (t_cache != nullptr)
      if (const auto found = t_cache->find(address_.parts[0].name); found != t_cache->end()) return found->second.clone();
    auto value = at::empty(address_.sizes, address_.dtype);
    home_->client().read(readings_of(address_, value));
    if (t_cache != nullptr) t_cache->emplace(address_.parts[0].name, value.clone());
    return value;
  }

  at::Tensor read_rows(const at::Tensor& ids) const override { return home_->client().read_rows(address_, ids); }

  void write(VariableWrite how, const at::Tensor& value) override {
    home_->client().update(updates_of(address_, kind_of(how, false), value.contiguous()));
  }

  void write_rows(VariableWrite how, const IndexedSlices& rows) override {
    home_->client().update(row_updates_of(address_, kind_of(how, true), rows));
  }

  std::vector<std::string> devices() const override {
    std::vector<std::string> names;
    for (const auto& part : address_.parts) names.push_back(str("/job:ps/replica:0/task:", part.server, "/device:CPU:0"));
    return names;
  }

  std::vector<Variable> shards() const override {
    std::vector<Variable> all;
    if (address_.parts.size() < 2) return all;
    for (const auto& part : address_.parts) {
      VariableAddress one{part.name, address_.sizes, address_.dtype, address_.is_trainable, {part}};
      one.sizes[0] = part.rows;
      all.push_back(home_->find(one, replicas_));
    }
    return all;
  }

 private:
  // Const after construction.
  const std::shared_ptr<ServerVariables> home_;
  const VariableAddress address_;
  const std::shared_ptr<ReplicaSet> replicas_;
};

}  // namespace
}  // namespace lockstep::ps
