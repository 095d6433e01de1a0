#include "lockstep/train/hosted_embedding.h"

#include <torch/torch.h>

#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/base/mix.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

thread_local int t_hosting = 0;

struct Unique {
  at::Tensor ids;     // each once, in the order in which they came first
  at::Tensor places;  // of every given one, among them
};

// at::_unique2 makes hash tables with a node for each id: 4 % of a recommender's step, and their allocations. This one is an
// array.
Unique unique_of(const at::Tensor& given) {
  const auto count = given.numel();
  const auto* const ids = given.data_ptr<std::int64_t>();
  const auto places = at::empty_like(given);
  auto* const place = places.data_ptr<std::int64_t>();
  std::vector<std::int64_t> each;
  const auto mask = std::bit_ceil(static_cast<std::size_t>(count) * 2 + 1) - 1;  // half of it stays empty
  std::vector<std::int64_t> slots(mask + 1, -1);                                 // places in `each`
  for (std::int64_t i = 0; i < count; ++i) {
    auto slot = mix(0, static_cast<std::uint64_t>(ids[i])) & mask;
    while (slots[slot] >= 0 && each[static_cast<std::size_t>(slots[slot])] != ids[i]) slot = (slot + 1) & mask;
    if (slots[slot] < 0) {
      slots[slot] = static_cast<std::int64_t>(each.size());
      each.push_back(ids[i]);
    }
    place[i] = slots[slot];
  }
  return {at::tensor(each, at::kLong), places};
}

}  // namespace

internal::HostingScope::HostingScope() { ++t_hosting; }
internal::HostingScope::~HostingScope() { --t_hosting; }

HostedEmbeddingImpl::HostedEmbeddingImpl(const HostedEmbeddingOptions& options) : options_(options), is_hosted_(t_hosting > 0) {
  if (options.rows < 1 || options.columns < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("HostedEmbedding: ", options.rows, " rows and ", options.columns, " columns; both must be at least 1"));
  if (!is_hosted_)
    weight_ = register_parameter("weight", torch::randn({options.rows, options.columns}) * options.standard_deviation);
}

at::Tensor HostedEmbeddingImpl::forward(const at::Tensor& ids) {
  if (!is_hosted_) return torch::embedding(weight_, ids, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true);
  if (!table_)
    throw Error(ErrorCode::kFailedPrecondition,
                "HostedEmbedding: this copy of a hosted module is bound to no servers; use it in a closure, as Hosted<Net>&");
  if (!at::isIntegralType(ids.scalar_type(), /*includeBool=*/false))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("HostedEmbedding: ids of dtype ", ids.scalar_type(), "; they must be whole numbers"));
  const auto [unique, places] = unique_of(ids.to(torch::kCPU, torch::kLong).contiguous());
  Used used{unique, table_->rows(unique).to(ids.device())};
  if (torch::GradMode::is_enabled() && is_training()) used.rows.requires_grad_();
  // Sparse: what comes back is each use by itself, in order, as of a table in one process.
  const auto result = torch::embedding(used.rows, places.to(ids.device()), -1, false, true);
  if (used.rows.requires_grad() && keeps_uses_) used_.push_back(std::move(used));
  return result;
}

std::vector<std::pair<Variable, at::Tensor>> HostedEmbeddingImpl::take_gradients() {
  // One gradient, as of a table in one process that was used several times: backward() adds up the last use first.
  torch::Tensor sum;
  auto used = std::exchange(used_, {});
  std::reverse(used.begin(), used.end());
  for (const auto& [ids, rows] : used) {
    const auto& gradient = rows.grad();
    if (!gradient.defined()) continue;
    const auto by_row = ids.index_select(0, gradient._indices()[0].cpu());
    const auto one =
        torch::_sparse_coo_tensor_unsafe(by_row.unsqueeze(0), gradient._values().cpu(), {options_.rows, options_.columns});
    sum = sum.defined() ? sum + one : one;
  }
  if (!sum.defined()) return {};
  return {{*table_, sum}};
}

}  // namespace lockstep
