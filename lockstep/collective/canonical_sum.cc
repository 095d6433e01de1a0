#include "lockstep/collective/canonical_sum.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "lockstep/collective/chunk.h"

namespace lockstep {
namespace {

// A block of all operands stays in the first-level cache while the tree above it is folded.
constexpr std::int64_t kBlock = 1024;
// Very long arrays go in pieces, so that what was received needs no more memory than this.
constexpr std::size_t kPieceBytes = 256 << 20;

struct Kernel {
  SumType type;
  std::int64_t per_element;
};

std::optional<Kernel> kernel_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float: return Kernel{SumType::kFloat, 1};
    case c10::ScalarType::Double: return Kernel{SumType::kDouble, 1};
    case c10::ScalarType::Long: return Kernel{SumType::kInt64, 1};
    case c10::ScalarType::Int: return Kernel{SumType::kInt32, 1};
    case c10::ScalarType::ComplexFloat: return Kernel{SumType::kFloat, 2};
    case c10::ScalarType::ComplexDouble: return Kernel{SumType::kDouble, 2};
    default: return std::nullopt;
  }
}

void add_blocks(const SumPlan& plan, const Kernel& kernel, std::int64_t count, std::span<const void* const> inputs,
                std::span<void* const> outputs) {
  const auto element = size_of(kernel.type);
  const auto row_bytes = static_cast<std::size_t>(kBlock) * element;
  std::vector<std::byte> scratch(plan.adds.size() * row_bytes);
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const auto size = std::min(kBlock, count - at);
    const auto offset = static_cast<std::size_t>(at) * element;
    const auto operand = [&](std::size_t i) -> const void* {
      return i < plan.inputs ? static_cast<const std::byte*>(inputs[i]) + offset
                             : scratch.data() + (i - plan.inputs) * row_bytes;
    };
    for (std::size_t i = 0; i < plan.adds.size(); ++i)
      add_arrays(kernel.type, scratch.data() + i * row_bytes, operand(plan.adds[i].left), operand(plan.adds[i].right), size);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      auto* const to = static_cast<std::byte*>(outputs[k]) + offset;
      if (operand(plan.operands[k]) != to)
        std::memmove(to, operand(plan.operands[k]), static_cast<std::size_t>(size) * element);
    }
  }
}

// Dtypes that have no loop of their own: LibTorch's.
void add_tensors(const SumPlan& plan, const SumShape& shape, std::span<const void* const> inputs,
                 std::span<void* const> outputs) {
  const auto tensor_at = [&](const void* data) { return at::from_blob(const_cast<void*>(data), {shape.count}, shape.dtype); };
  std::vector<at::Tensor> operands;
  for (const void* input : inputs) operands.push_back(tensor_at(input));
  for (const auto& [left, right] : plan.adds) operands.push_back(operands[left] + operands[right]);
  for (std::size_t k = 0; k < outputs.size(); ++k) tensor_at(outputs[k]).copy_(operands[plan.operands[k]].clone());
}

std::byte* bytes_at(void* data, std::size_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* bytes_at(const void* data, std::size_t offset) { return static_cast<const std::byte*>(data) + offset; }

}  // namespace

std::size_t SumShape::element_bytes() const { return c10::elementSize(dtype); }

void carry_out(const SumPlan& plan, const SumShape& shape, std::span<const void* const> inputs,
               std::span<void* const> outputs) {
  if (shape.count == 0) return;
  if (const auto kernel = kernel_of(shape.dtype)) add_blocks(plan, *kernel, shape.count * kernel->per_element, inputs, outputs);
  else add_tensors(plan, shape, inputs, outputs);
}

CanonicalSum::CanonicalSum(Transport& transport, const std::vector<std::vector<SumNode>>& brings, int total)
    : transport_(transport) {
  std::vector<SumNode> all;
  for (const auto& nodes : brings) {
    counts_.push_back(nodes.size());
    all.insert(all.end(), nodes.begin(), nodes.end());
  }
  plan_ = plan_sums(all, total);
}

void CanonicalSum::reduce(const SumShape& shape, std::span<const void* const> mine, std::span<void* const> results) {
  const auto element = shape.element_bytes();
  const auto step = static_cast<std::int64_t>(kPieceBytes / element);
  std::vector<const void*> from(mine.size());
  std::vector<void*> to(results.size());
  for (std::int64_t at = 0; at < shape.count; at += step) {
    const auto offset = static_cast<std::size_t>(at) * element;
    for (std::size_t i = 0; i < mine.size(); ++i) from[i] = bytes_at(mine[i], offset);
    for (std::size_t k = 0; k < results.size(); ++k) to[k] = bytes_at(results[k], offset);
    reduce_block({shape.dtype, std::min(step, shape.count - at)}, from, to);
  }
}

void CanonicalSum::reduce_block(const SumShape& block, std::span<const void* const> mine, std::span<void* const> results) {
  const auto size = static_cast<std::size_t>(transport_.size());
  const auto rank = static_cast<std::size_t>(transport_.rank());
  const auto element = block.element_bytes();
  const auto chunk = [&](std::size_t r) {  // in bytes: where rank r's begins, and its length
    const auto [begin, end] =
        chunk_of(block.count, static_cast<std::int64_t>(element), static_cast<int>(r), static_cast<int>(size));
    return std::pair(static_cast<std::size_t>(begin) * element, static_cast<std::size_t>(end - begin) * element);
  };
  const auto [my_offset, my_bytes] = chunk(rank);

  std::vector<ConstBytes> send(size);
  if (mine.size() == 1) {
    for (std::size_t r = 0; r < size; ++r) send[r] = {bytes_at(mine[0], chunk(r).first), chunk(r).second};
  } else {
    outgoing_.resize(mine.size() * block.bytes());
    std::size_t offset = 0;
    for (std::size_t r = 0; r < size; ++r) {
      const auto [begin, bytes] = chunk(r);
      send[r] = {outgoing_.data() + offset, bytes * mine.size()};
      for (const void* array : mine) {
        std::memcpy(outgoing_.data() + offset, bytes_at(array, begin), bytes);
        offset += bytes;
      }
    }
  }
  incoming_.resize(plan_.inputs * my_bytes);
  std::vector<Bytes> receive(size);
  std::vector<const void*> inputs;
  std::size_t at = 0;
  for (std::size_t r = 0; r < size; ++r) {
    receive[r] = r == rank ? Bytes() : Bytes(incoming_.data() + at, counts_[r] * my_bytes);
    for (std::size_t i = 0; i < counts_[r]; ++i)
      inputs.push_back(r == rank ? static_cast<const void*>(bytes_at(mine[i], my_offset))
                                 : incoming_.data() + at + i * my_bytes);
    if (r != rank) at += counts_[r] * my_bytes;
  }
  transport_.all_to_all(send, receive);

  std::vector<void*> outputs;
  for (void* result : results) outputs.push_back(bytes_at(result, my_offset));
  carry_out(plan_, {block.dtype, static_cast<std::int64_t>(my_bytes / element)}, inputs, outputs);
  for (void* result : results) {
    std::vector<Bytes> parts;
    for (std::size_t r = 0; r < size; ++r) parts.emplace_back(bytes_at(result, chunk(r).first), chunk(r).second);
    transport_.all_gather(parts);
  }
}

}  // namespace lockstep
