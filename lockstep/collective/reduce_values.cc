#include "lockstep/collective/reduce_values.h"

#include <ATen/ATen.h>

#include <array>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"

namespace lockstep {
namespace {

std::optional<SumType> sum_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return SumType::kFloat;
    case at::kDouble: return SumType::kDouble;
    case at::kLong: return SumType::kInt64;
    case at::kInt: return SumType::kInt32;
    default: return std::nullopt;
  }
}

bool all_on_cpu(std::span<const at::Tensor> tensors) {
  return std::ranges::all_of(tensors, [](const at::Tensor& t) { return t.is_cpu(); });
}

// Raw addresses of up to a handful of tensors without touching the heap.
struct Addresses {
  explicit Addresses(std::span<const at::Tensor> tensors) {
    void** to = few.data();
    if (tensors.size() > few.size()) {
      many.resize(tensors.size());
      to = many.data();
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) to[i] = tensors[i].data_ptr();
    all = {to, tensors.size()};
  }

  std::array<void*, 8> few;
  std::vector<void*> many;
  std::span<void* const> all;
};

// A part of a dense tensor as a flat tensor over the same memory, whatever its strides.
at::Tensor flat_part(const at::Tensor& tensor, SumRange range) {
  return at::empty({0}, tensor.options())
      .set_(tensor.storage(), tensor.storage_offset() + range.begin, {range.end - range.begin}, {1});
}

std::string shape_text(const at::Tensor& value) { return lockstep::str(value.sizes(), " ", value.scalar_type()); }

}  // namespace

std::optional<Error> unequal_values_error(std::span<const at::Tensor> values, const char* what) {
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i].sizes() == values[0].sizes() && values[i].scalar_type() == values[0].scalar_type()) continue;
    return Error(ErrorCode::kInvalidArgument, lockstep::str(what, ": replica 0 gave ", shape_text(values[0]), " and replica ",
                                                            i, " gave ", shape_text(values[i]),
                                                            "; all replicas must give the same shape and dtype (for batches of "
                                                            "different length reduce with an axis)"));
  }
  return std::nullopt;
}

void require_equal_values(std::span<const at::Tensor> values, const char* what) {
  if (const auto error = unequal_values_error(values, what)) throw *error;
}

void tree_sum_tensors(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs, SumRange range) {
  if (range.end <= range.begin) return;
  const auto type = sum_type(inputs[0].scalar_type());
  if (type && all_on_cpu(inputs) && all_on_cpu(outputs)) {
    const Addresses from(inputs);
    const Addresses to(outputs);
    tree_sum(*type, {const_cast<const void* const*>(from.all.data()), from.all.size()}, to.all, range);
    return;
  }
  std::vector<at::Tensor> parts;
  for (const auto& input : inputs) parts.push_back(flat_part(input, range).to(inputs[0].device()));
  auto sum = tree_fold(std::move(parts), [](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  if (range.divisor != 1 && (sum.is_floating_point() || sum.is_complex())) sum = sum / range.divisor;
  for (auto& output : outputs) flat_part(output, range).copy_(sum);
}

at::Tensor sum_values(std::span<const at::Tensor> values) {
  if (values.empty())
    throw Error(ErrorCode::kInvalidArgument, "reduce: there is no value to reduce; give one for each replica");
  for (const auto& value : values) require_dense(value, "reduce");
  require_equal_values(values, "reduce");
  if (values.size() == 1) return values[0];
  std::vector<at::Tensor> inputs;
  for (const auto& value : values) inputs.push_back(in_memory(value.detach()));
  std::array<at::Tensor, 1> sum = {at::empty_like(inputs[0])};
  tree_sum_tensors(inputs, sum, {0, sum[0].numel()});
  return sum[0];
}

at::Tensor without_overflow(const at::Tensor& value) {
  return value.defined() && at::isIntegralType(value.scalar_type(), /*includeBool=*/true) ? value.to(at::kLong) : value;
}

at::Tensor mean_of_sum(const at::Tensor& sum, std::int64_t count) {
  return at::isIntegralType(sum.scalar_type(), /*includeBool=*/true) ? sum.to(at::kDouble) / static_cast<double>(count)
                                                                     : sum / count;
}

at::Tensor reduce_values(ReduceOp op, std::span<const at::Tensor> values) {
  if (op == ReduceOp::kSum) return sum_values(values);
  std::vector<at::Tensor> wide;
  for (const auto& value : values) wide.push_back(without_overflow(value));
  return mean_of_sum(sum_values(wide), static_cast<std::int64_t>(values.size()));
}

at::Tensor concatenate_values(std::span<const at::Tensor> values, std::int64_t axis) {
  if (values.empty()) throw Error(ErrorCode::kInvalidArgument, "gather: there is no value; give one for each replica");
  for (const auto& value : values) require_dense(value, "gather");
  const auto rank = values[0].dim();
  if (axis < 0 || axis >= rank)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("gather: axis ", axis, " does not exist in a value of shape ",
                                                           values[0].sizes(), "; it must be in [0, ", rank, ")"));
  for (std::size_t i = 1; i < values.size(); ++i) {
    bool fits = values[i].dim() == rank && values[i].scalar_type() == values[0].scalar_type();
    for (std::int64_t d = 0; fits && d < rank; ++d) fits = d == axis || values[i].size(d) == values[0].size(d);
    if (!fits)
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("gather: replica 0 gave ", shape_text(values[0]), " and replica ", i, " gave ",
                                shape_text(values[i]), "; sizes may differ in dimension ", axis, " only"));
  }
  std::vector<at::Tensor> parts;
  for (const auto& value : values) parts.push_back(value.to(values[0].device()));
  return at::cat(parts, axis);
}

}  // namespace lockstep
