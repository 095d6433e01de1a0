#include "lockstep/train/model/hosted_weights.h"

#include <torch/torch.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/train/hosted_embedding.h"

namespace lockstep::internal {
namespace {

constexpr std::int64_t kPieceBytes = 16 << 20;

// A table's shape and kind of number, without its memory.
at::Tensor like(const Variable& table) { return at::empty({1}, table.scalar_type()).expand(table.sizes()); }

std::int64_t rows_of_a_piece(const at::Tensor& shape) {
  const auto bytes_of_row = std::max<std::int64_t>(1, shape[0].numel() * static_cast<std::int64_t>(shape.element_size()));
  return std::max<std::int64_t>(1, kPieceBytes / bytes_of_row);
}

void append_table(WritableFile& file, const Variable& table) {
  const auto shape = like(table);
  const auto step = rows_of_a_piece(shape);
  for (std::int64_t first = 0; first < shape.size(0); first += step) {
    const auto rows = table.rows(at::arange(first, std::min(first + step, shape.size(0)), at::kLong));
    file.append(bytes_of(on_host(rows)));
  }
}

}  // namespace

bool has_tables(const torch::nn::Module& module) {
  return std::ranges::any_of(module.modules(), [](const auto& one) {
    const auto* embedding = dynamic_cast<const HostedEmbeddingImpl*>(one.get());
    return embedding != nullptr && embedding->is_hosted();
  });
}

void save_with_tables(const std::string& path, const std::shared_ptr<ModuleReplicas>& module, const NamedVariables& tables,
                      const std::map<std::string, std::string>& metadata) {
  const c10::NoGradGuard no_grad;
  auto all = module_part(module)->save().tensors;
  for (const auto& [name, table] : tables) all.emplace_back(name, like(table));
  sort_by_element(all);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : all) entries.push_back(entry_for(name, tensor));
  const auto header = make_safetensors_header(entries, metadata);
  std::uint64_t bytes = header.size();
  for (const auto& entry : entries) bytes += entry.end - entry.begin;
  write_file_safely(real_files(), path, bytes, [&](WritableFile& file) {
    file.append(std::as_bytes(std::span(header)));
    for (const auto& [name, tensor] : all) {
      const auto table = std::ranges::find(tables, name, &std::pair<std::string, Variable>::first);
      if (table == tables.end()) file.append(bytes_of(on_host(tensor)));
      else append_table(file, table->second);
    }
  });
}

WeightsWithTables::WeightsWithTables(const std::string& what, const CheckpointPart& weights,
                                     std::shared_ptr<ModuleReplicas> module, NamedVariables tables)
    : module_(std::move(module)), tables_(std::move(tables)) {
  NamedTensors expected;
  for (const auto& [name, table] : tables_) expected.emplace_back(name, like(table));
  for (const auto& [name, tensor] : weights.tensors) {
    const bool is_table = std::ranges::find(tables_, name, &std::pair<std::string, Variable>::first) != tables_.end();
    (is_table ? of_tables_ : of_copy_).tensors.emplace_back(name, tensor);
  }
  auto problems = module_part(module_)->problems(of_copy_);
  for (auto& problem : compare_tensors(expected, of_tables_)) problems.push_back(std::move(problem));
  if (!problems.empty())
    throw Error(ErrorCode::kInvalidArgument,
                str(what, ": these are not weights of ", module_->name(), ": ", join("; ", problems), "; nothing was changed"));
}

void WeightsWithTables::load() {
  const c10::NoGradGuard no_grad;
  module_part(module_)->restore(of_copy_);
  // Sent from where they lie, in pieces.
  for (auto [name, table] : tables_) table.assign(of_tables_.find(name)->to(table.scalar_type()));
}

}  // namespace lockstep::internal
