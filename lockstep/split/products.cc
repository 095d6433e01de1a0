#include <ATen/ATen.h>

#include <functional>

#include "lockstep/split/rules.h"
#include "lockstep/split/sums.h"

namespace lockstep::split {
namespace {

using Dimension = std::size_t;

// A product of matrices, of which one factor is cut: its tiles are multiplied one after the other, and what belongs to the same
// part of the result is added up.
struct Product {
  at::Tensor cut;                   // the factor
  Dimension inner = 0;              // its dimension that is summed over
  std::vector<std::int64_t> sizes;  // of the result: those of `cut` with another size at `inner`
  // A tile of it, which stands for `region`, with what belongs to it of the other factor, on that device.
  std::function<at::Tensor(const at::Tensor& tile, const Region& region, int device)> multiply;
};

at::Tensor compute(const Product& product) {
  const auto& value = *find_value(product.cut);
  auto sums = sums_of_tiles(value, {static_cast<std::int64_t>(product.inner)}, [&](std::size_t k) {
    return product.multiply(value.parts[k], value.tiling.tile(k), value.devices[k]);
  });
  sums.tiling = value.tiling.without_cuts(product.inner, product.sizes[product.inner]);
  return make_tensor(std::move(sums));
}

// Those of a batch of matrices, where `other` has them, too: the last dimensions are the matrices'.
Region batch_of(const at::Tensor& other, const Region& region) {
  Region its;
  const auto offset = static_cast<std::int64_t>(region.size()) - other.dim();
  for (std::int64_t d = 0; d + 2 < other.dim(); ++d)
    its.push_back(other.size(d) == 1 ? Range{0, 1} : region[static_cast<Dimension>(d + offset)]);
  return its;
}

// a @ b, with a cut. b has no more dimensions, and no batch that a lacks.
at::Tensor by_tiles_of_first(const at::Tensor& a, const at::Tensor& b) {
  const auto& home = *find_value(a)->home;
  Product product{a, static_cast<Dimension>(a.dim() - 1), a.sizes().vec(), nullptr};
  product.sizes.back() = b.size(-1);
  product.multiply = [&](const at::Tensor& tile, const Region& region, int device) {
    auto its = batch_of(b, region);
    its.push_back(region.back());
    its.push_back({0, b.size(-1)});
    return at::matmul(tile, fetch(b, its, home, device));
  };
  return compute(product);
}

at::Tensor by_tiles_of_second(const at::Tensor& a, const at::Tensor& b) {
  const auto& home = *find_value(b)->home;
  Product product{b, static_cast<Dimension>(b.dim() - 2), b.sizes().vec(), nullptr};
  product.sizes[product.inner] = a.size(-2);
  product.multiply = [&](const at::Tensor& tile, const Region& region, int device) {
    auto its = batch_of(a, region);
    its.push_back({0, a.size(-2)});
    its.push_back(region[region.size() - 2]);
    return at::matmul(fetch(a, its, home, device), tile);
  };
  return compute(product);
}

// Whether every batch dimension of `other` is one of `cut`'s, or has one element.
bool has_batches_of(const at::Tensor& cut, const at::Tensor& other) {
  if (other.dim() > cut.dim()) return false;
  for (std::int64_t d = 3; d <= other.dim(); ++d)
    if (other.size(-d) != 1 && other.size(-d) != cut.size(-d)) return false;
  return true;
}

bool is_tiled(const at::Tensor& tensor) {
  const auto* const value = find_value(tensor);
  return value != nullptr && !value->is_replicated;
}

bool is_tiled_further(const at::Tensor& a, const at::Tensor& b) {
  return !is_tiled(b) || find_value(a)->parts.size() >= find_value(b)->parts.size();
}

// Undefined: it has to be done whole.
at::Tensor product_of(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() < 2 || b.dim() < 2 || a.size(-1) != b.size(-2)) return {};
  if (is_tiled(a) && is_tiled_further(a, b) && has_batches_of(a, b)) return by_tiles_of_first(a, b);
  if (is_tiled(b) && has_batches_of(b, a)) return by_tiles_of_second(a, b);
  return {};
}

}  // namespace

void multiply(Call& call) {
  if (call.tensors().size() != 2) return;  // one more gets the result
  const auto dims = call.name() == "aten::mm" ? 2 : call.name() == "aten::bmm" ? 3 : 0;
  if (dims != 0 && (call.tensor(0).dim() != dims || call.tensor(1).dim() != dims)) return;
  if (dims == 3 && call.tensor(0).size(0) != call.tensor(1).size(0)) return;
  if (const auto product = product_of(call.tensor(0), call.tensor(1)); product.defined()) call.give(product);
}

// x @ w^T + b: by tiles of x, else by tiles of w.
void linear(Call& call) {
  const auto x = call.tensor(0);
  const auto weight = call.tensor(1);
  const auto bias = call.tensor(2);
  if (x.dim() < 2 || weight.dim() != 2 || x.size(-1) != weight.size(1)) return;
  if (bias.defined() && (bias.dim() > 1 || bias.scalar_type() != x.scalar_type())) return;
  const bool is_of_rows =
      is_tiled(x) && is_tiled_further(x, weight) && !find_value(x)->tiling.is_cut(static_cast<Dimension>(x.dim() - 1));
  if (!is_of_rows) {
    const auto product = product_of(x, at::t(weight));
    if (!product.defined()) return;
    return call.give(bias.defined() ? at::add(product, bias.to(product.scalar_type())) : product);
  }
  const auto& value = *find_value(x);
  SplitValue result{value.home, false,
                    false,      value.tiling.without_cuts(static_cast<Dimension>(x.dim() - 1), weight.size(0)),
                    {},         value.devices};
  for (std::size_t k = 0; k < value.parts.size(); ++k) {
    const auto all_of = [&](const at::Tensor& tensor) {
      return tensor.defined() ? fetch(tensor, whole_region(tensor.sizes().vec()), *value.home, value.devices[k]) : tensor;
    };
    result.parts.push_back(at::linear(value.parts[k], all_of(weight), all_of(bias)));
  }
  call.give(make_tensor(std::move(result)));
}

void add_multiplied(Call& call) {
  if (call.tensors().size() != 3) return;
  const auto is_one = [&](const char* name) {
    const auto at = call.find(name);
    if (!at) return false;
    const auto number = call.arg(*at).toScalar();
    return !number.isComplex() && number.toDouble() == 1;
  };
  if (!is_one("beta") || !is_one("alpha")) return;
  const auto added = call.tensor(0);
  if (added.dim() > 1 || added.scalar_type() != call.tensor(1).scalar_type()) return;
  if (call.tensor(1).dim() != 2 || call.tensor(2).dim() != 2) return;
  if (const auto product = product_of(call.tensor(1), call.tensor(2)); product.defined())
    call.give(at::add(product, added.to(product.scalar_type())));
}

}  // namespace lockstep::split
