#include "lockstep/ps/sharded_variable.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Of a shard on another machine too, without asking it.
const at::Tensor& form_of(const Variable& shard) { return shard.components()[0]; }

ps::RowSplit split_of(const std::vector<Variable>& variables, const std::string& name) {
  if (variables.empty())
    throw Error(ErrorCode::kInvalidArgument, str("ShardedVariable '", name, "': there are no variables; give one at least"));
  const auto& first = form_of(variables[0]);
  std::vector<std::int64_t> rows;
  for (const auto& variable : variables) {
    const auto& form = form_of(variable);
    if (form.scalar_type() != first.scalar_type())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("ShardedVariable '", name, "': variable '", variable.name(), "' has dtype ", form.scalar_type(),
                                " and '", variables[0].name(), "' has ", first.scalar_type(), "; all must have one dtype"));
    if (form.dim() == 0 || first.dim() == 0 || form.sizes().slice(1) != first.sizes().slice(1))
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("ShardedVariable '", name, "': variable '", variable.name(), "' has shape ", form.sizes(),
                                " and '", variables[0].name(), "' has ", first.sizes(),
                                "; they need a first dimension, and must be equal after it"));
    rows.push_back(form.size(0));
  }
  return ps::RowSplit(rows);
}

at::Tensor tensor_of(const std::vector<std::int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

// One after the other, where the first is.
at::Tensor concatenate(std::vector<at::Tensor> pieces) {
  for (auto& piece : pieces) piece = piece.to(pieces[0].device());
  return at::cat(pieces, 0);
}

// Host memory that holds a list of rows.
at::Tensor to_rows(const std::string& what, const at::Tensor& indices) {
  if (!indices.defined() || indices.dim() != 1 || (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt))
    throw Error(ErrorCode::kInvalidArgument, what + ": the indices must be a tensor of one dimension, of int32 or int64");
  return indices.to(at::kCPU, at::kLong).contiguous();
}

std::vector<ps::RowSplit::Part> route(const ps::RowSplit& split, const std::string& what, const at::Tensor& rows) {
  try {
    return split.route({rows.data_ptr<std::int64_t>(), static_cast<std::size_t>(rows.numel())});
  } catch (const Error& error) {
    throw Error(error.code(), what + ": " + error.message());
  }
}

}  // namespace

ShardedVariable::ShardedVariable(std::vector<Variable> variables, std::string name)
    : variables_(std::move(variables)),
      name_(std::move(name)),
      split_(split_of(variables_, name_)),
      sizes_(form_of(variables_[0]).sizes().vec()) {
  sizes_[0] = split_.rows();
}

at::ScalarType ShardedVariable::scalar_type() const { return form_of(variables_[0]).scalar_type(); }

at::Tensor ShardedVariable::value() const {
  std::vector<at::Tensor> pieces;
  for (const auto& variable : variables_) pieces.push_back(variable.value());
  return concatenate(std::move(pieces));
}

void ShardedVariable::require_sizes(const char* what, const at::Tensor& value) const {
  if (!value.defined() || value.sizes() != sizes())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(what, " to ShardedVariable '", name_, "' of shape ", sizes(), ": the value has shape ",
                              value.defined() ? lockstep::str(value.sizes()) : "none", "; they must be equal"));
}

void ShardedVariable::require_div(const char* what) const {
  if (split_.is_div()) return;
  throw Error(ErrorCode::kUnimplemented,
              str(what, ": the ", split_.rows(), " rows of ShardedVariable '", name_, "' are not divided evenly over its ",
                  split_.shards(), " shards, larger ones first; make its variables so (RowSplit::div)"));
}

ShardedVariable& ShardedVariable::write(const char* what, Write how, const at::Tensor& value) {
  require_sizes(what, value);
  for (std::size_t shard = 0; shard < variables_.size(); ++shard)
    (variables_[shard].*how)(value.narrow(0, split_.begin(shard), split_.size(shard)));
  return *this;
}

ShardedVariable& ShardedVariable::assign(const at::Tensor& value) { return write("assign", &Variable::assign, value); }
ShardedVariable& ShardedVariable::assign_add(const at::Tensor& value) {
  return write("assign_add", &Variable::assign_add, value);
}
ShardedVariable& ShardedVariable::assign_sub(const at::Tensor& value) {
  return write("assign_sub", &Variable::assign_sub, value);
}

ShardedVariable& ShardedVariable::scatter(const char* what, Scatter how, const IndexedSlices& slices) {
  require_div(what);
  const auto text = str(what, " of ShardedVariable '", name_, "'");
  const auto rows = to_rows(text, slices.indices);
  slices.validate();
  const auto parts = route(split_, text, rows);
  for (const auto& part : parts) {
    const auto values = slices.values.index_select(0, tensor_of(part.positions).to(slices.values.device()));
    (variables_[part.shard].*how)({values, tensor_of(part.rows)});
  }
  return *this;
}

ShardedVariable& ShardedVariable::scatter_add(const IndexedSlices& slices) {
  return scatter("scatter_add", &Variable::scatter_add, slices);
}
ShardedVariable& ShardedVariable::scatter_sub(const IndexedSlices& slices) {
  return scatter("scatter_sub", &Variable::scatter_sub, slices);
}
ShardedVariable& ShardedVariable::scatter_mul(const IndexedSlices& slices) {
  return scatter("scatter_mul", &Variable::scatter_mul, slices);
}
ShardedVariable& ShardedVariable::scatter_div(const IndexedSlices& slices) {
  return scatter("scatter_div", &Variable::scatter_div, slices);
}
ShardedVariable& ShardedVariable::scatter_min(const IndexedSlices& slices) {
  return scatter("scatter_min", &Variable::scatter_min, slices);
}
ShardedVariable& ShardedVariable::scatter_max(const IndexedSlices& slices) {
  return scatter("scatter_max", &Variable::scatter_max, slices);
}
ShardedVariable& ShardedVariable::scatter_update(const IndexedSlices& slices) {
  return scatter("scatter_update", &Variable::scatter_update, slices);
}

// In the order of the parts.
at::Tensor ShardedVariable::read_parts(const std::vector<ps::RowSplit::Part>& parts) const {
  if (parts.empty()) return variables_[0].rows(tensor_of({}));  // it knows the device
  std::vector<at::Tensor> pieces;
  for (const auto& part : parts) pieces.push_back(variables_[part.shard].rows(tensor_of(part.rows)));
  return pieces.size() == 1 ? pieces[0] : concatenate(std::move(pieces));
}

at::Tensor ShardedVariable::sparse_read(const at::Tensor& indices) const {
  require_div("sparse_read");
  const auto text = str("sparse_read of ShardedVariable '", name_, "'");
  return read_parts(route(split_, text, to_rows(text, indices)));
}

at::Tensor ShardedVariable::gather_rows(const at::Tensor& indices) const {
  const auto text = str("a read of rows of ShardedVariable '", name_, "'");
  const auto parts = route(split_, text, to_rows(text, indices));
  const auto rows = read_parts(parts);
  if (parts.size() <= 1) return rows;  // in order
  std::vector<std::int64_t> places(static_cast<std::size_t>(indices.numel()));
  std::int64_t place = 0;
  for (const auto& part : parts)
    for (const auto position : part.positions) places[static_cast<std::size_t>(position)] = place++;
  return rows.index_select(0, tensor_of(places).to(rows.device()));
}

at::Tensor ShardedVariable::saved_value() const {
  std::vector<at::Tensor> pieces;
  for (const auto& variable : variables_) pieces.push_back(variable.saved_value());
  return concatenate(std::move(pieces));
}

void ShardedVariable::restore(const at::Tensor& value) {
  require_sizes("restore", value);
  for (std::size_t shard = 0; shard < variables_.size(); ++shard)
    variables_[shard].restore(value.narrow(0, split_.begin(shard), split_.size(shard)));
}

}  // namespace lockstep
