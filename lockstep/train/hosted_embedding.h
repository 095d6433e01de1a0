#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/ps/store_messages.h"
#include "lockstep/variable/variable.h"

namespace lockstep {

struct HostedEmbeddingOptions {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // Rows begin as normal numbers of this standard deviation, made on the servers.
  double standard_deviation = 1;
  std::uint64_t seed = 0;
};

// A table of rows, used like torch::nn::Embedding, that may be larger than the memory of any one task: in a hosted module it is
// on the parameter servers, divided as the strategy's partitioner says, and a worker gets the rows of its batch and sends back
// their gradients. In any other module it is a parameter "weight" with sparse gradients.
class HostedEmbeddingImpl : public torch::nn::Module {
 public:
  // Throws kInvalidArgument unless there are rows and columns.
  explicit HostedEmbeddingImpl(const HostedEmbeddingOptions& options);
  HostedEmbeddingImpl(std::int64_t rows, std::int64_t columns)
      : HostedEmbeddingImpl(HostedEmbeddingOptions{.rows = rows, .columns = columns}) {}

  // ids of any shape; the result has one dimension more. Throws kInvalidArgument for ids that are no whole numbers, kOutOfRange
  // for one that is no row.
  at::Tensor forward(const at::Tensor& ids);

  const HostedEmbeddingOptions& options() const noexcept { return options_; }
  bool is_hosted() const noexcept { return is_hosted_; }

  // For who hosts it. `keeps_uses`: somebody takes the gradients; otherwise uses are not remembered for it.
  void set_table(const Variable& table, bool keeps_uses) {
    table_ = table;
    keeps_uses_ = keeps_uses;
  }
  const std::optional<Variable>& table() const noexcept { return table_; }
  // The gradients of the rows that were used since the last call, by table row.
  std::vector<std::pair<Variable, at::Tensor>> take_gradients();

 private:
  struct Used {
    at::Tensor ids;   // unique
    at::Tensor rows;  // a leaf
  };

  // Const after construction.
  const HostedEmbeddingOptions options_;
  const bool is_hosted_;
  at::Tensor weight_;  // when it is not hosted

  // Used by one thread at a time.
  std::optional<Variable> table_;
  bool keeps_uses_ = false;
  std::vector<Used> used_;
};
TORCH_MODULE(HostedEmbedding);

namespace internal {

// While one is alive on a thread, embeddings that are made there take no memory.
class HostingScope {
 public:
  HostingScope();
  ~HostingScope();
  HostingScope(const HostingScope&) = delete;
  HostingScope& operator=(const HostingScope&) = delete;
};

}  // namespace internal
}  // namespace lockstep
