#include "lockstep/data/rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/row_stack.h"

namespace lockstep::data::internal {
namespace {

std::int64_t product(const std::vector<std::int64_t>& sizes, std::size_t from) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(from), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Bytes narrow_bytes(const Bytes& bytes, std::int64_t start, std::int64_t length) {
  require_whole(bytes, "byte strings");
  const auto stride = product(bytes.sizes, 1);
  Bytes part{{bytes.values.begin() + start * stride, bytes.values.begin() + (start + length) * stride}, bytes.sizes};
  part.sizes[0] = length;
  return part;
}

std::vector<std::int64_t> longest_sizes(const std::vector<Element>& elements, std::size_t position) {
  auto longest = elements[0].components()[position].sizes();
  for (const auto& element : elements) {
    const auto sizes = element.components()[position].sizes();
    if (sizes.size() != longest.size())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("padded_batch: the elements differ in rank in ", name_component(elements[0], position), ": ",
                                name_sizes(longest), " and ", name_sizes(sizes), "; all must have as many dimensions"));
    for (std::size_t d = 0; d < sizes.size(); ++d) longest[d] = std::max(longest[d], sizes[d]);
  }
  return longest;
}

// The longest of the batch where `wanted` does not say.
std::vector<std::int64_t> padded_sizes(const std::vector<Element>& elements, std::size_t position,
                                       const std::vector<std::int64_t>& wanted) {
  auto sizes = longest_sizes(elements, position);
  if (wanted.empty() && !sizes.empty()) return sizes;
  if (wanted.size() != sizes.size())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("padded_batch: ", name_component(elements[0], position), " has ", sizes.size(),
                              " dimensions, and the shape to fill up to has ", wanted.size()));
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (wanted[d] < 0) continue;
    if (sizes[d] > wanted[d])
      throw Error(ErrorCode::kDataLoss,
                  lockstep::str("padded_batch: an element of ", name_component(elements[0], position), " has size ", sizes[d],
                                " in dimension ", d, ", and the shape to fill up to ", wanted[d]));
    sizes[d] = wanted[d];
  }
  return sizes;
}

Component stack_padded_component(std::vector<Element>& elements, std::size_t position, const std::vector<std::int64_t>& wanted,
                                 double value) {
  const auto& first = elements[0].components()[position];
  const auto sizes = padded_sizes(elements, position, wanted);
  const bool needs_padding =
      std::ranges::any_of(elements, [&](const Element& element) { return element.components()[position].sizes() != sizes; });
  if (!needs_padding) {
    ColumnStack stack(static_cast<std::int64_t>(elements.size()));
    for (auto& element : elements) stack.add(element.components()[position]);
    return std::move(stack).take();
  }
  if (first.is_bytes())
    throw Error(ErrorCode::kUnimplemented,
                "padded_batch: byte strings of different shapes cannot be padded; give them one shape with map()");
  auto padded = at::full(with_rows(static_cast<std::int64_t>(elements.size()), sizes), value, first.tensor().options());
  for (std::size_t row = 0; row < elements.size(); ++row) {
    const auto& from = elements[row].components()[position].tensor();
    auto to = padded.select(0, static_cast<std::int64_t>(row));
    for (std::int64_t d = 0; d < from.dim(); ++d) to = to.narrow(d, 0, from.size(d));
    to.copy_(from);
  }
  return {first.name, padded};
}

Component join_component(const std::vector<Element>& batches, std::size_t position) {
  const auto& first = batches[0].components()[position];
  auto expected = first.sizes();
  std::int64_t rows = 0;
  for (const auto& batch : batches) {
    auto sizes = batch.components()[position].sizes();
    rows += sizes[0];
    sizes[0] = expected[0];
    if (sizes != expected)
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("rows of different shape cannot be joined into one batch: ",
                                name_component(batches[0], position), " is ", name_sizes(first.sizes()), " and then ",
                                name_sizes(batch.components()[position].sizes()), "; only the number of rows may differ"));
  }
  if (first.is_bytes()) {
    expected[0] = rows;
    Bytes joined{{}, expected};
    for (const auto& batch : batches) {
      const auto& values = batch.components()[position].bytes().values;
      joined.values.insert(joined.values.end(), values.begin(), values.end());
    }
    return {first.name, std::move(joined)};
  }
  std::vector<at::Tensor> tensors;
  for (const auto& batch : batches) tensors.push_back(batch.components()[position].tensor());
  return {first.name, at::cat(tensors)};
}

template <typename Elements, typename Combine>
Element combine(Elements& elements, const char* what, Combine combine_component) {
  for (std::size_t i = 1; i < elements.size(); ++i) require_same_structure(elements[0], elements[i], what);
  std::vector<Component> components;
  for (std::size_t c = 0; c < elements[0].size(); ++c) components.push_back(combine_component(elements, c));
  return Element(std::move(components));
}

}  // namespace

void require_same_structure(const Element& first, const Element& other, const char* what) {
  if (first.size() != other.size())
    throw Error(ErrorCode::kInvalidArgument, lockstep::str(what, ": elements with ", first.size(), " and with ", other.size(),
                                                           " components; all elements must have the same components"));
  for (std::size_t c = 0; c < first.size(); ++c) {
    const auto& a = first.components()[c];
    const auto& b = other.components()[c];
    const bool is_same_kind =
        a.is_bytes() == b.is_bytes() && (a.is_bytes() || a.tensor().scalar_type() == b.tensor().scalar_type());
    if (a.name == b.name && is_same_kind) continue;
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(what, ": the elements differ in ", name_component(first, c), ": ", name_dtype(a), " '", a.name,
                              "' and ", name_dtype(b), " '", b.name, "'; all elements must have the same components"));
  }
}

std::int64_t count_rows(const Element& batch) {
  if (batch.empty())
    throw Error(ErrorCode::kInvalidArgument, "an element without components cannot be split; give it at least one tensor");
  std::int64_t rows = 0;
  for (std::size_t c = 0; c < batch.size(); ++c) {
    const auto sizes = batch.components()[c].sizes();
    if (sizes.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str(name_component(batch, c),
                                " of the dataset's elements has no first dimension, so that it cannot "
                                "be divided into rows; call batch() on the dataset first"));
    if (c == 0) rows = sizes[0];
    if (sizes[0] != rows)
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("the components of a batch differ in their number of rows: ", name_component(batch, 0), " has ",
                                rows, ", ", name_component(batch, c), " has ", sizes[0],
                                "; all must have equally many (the first dimension is the batch)"));
  }
  return rows;
}

Element narrow_rows(const Element& batch, std::int64_t start, std::int64_t length) {
  std::vector<Component> components;
  components.reserve(batch.size());
  for (const auto& component : batch.components()) {
    if (component.is_bytes()) components.push_back({component.name, narrow_bytes(component.bytes(), start, length)});
    else components.push_back({component.name, component.tensor().narrow(0, start, length)});
  }
  return Element(std::move(components));
}

std::vector<Element> split_rows(const Element& batch, const std::vector<std::int64_t>& sizes) {
  std::vector<Element> parts;
  parts.reserve(sizes.size());
  std::int64_t start = 0;
  for (const auto size : sizes) {
    parts.push_back(narrow_rows(batch, start, size));
    start += size;
  }
  return parts;
}

Element join_rows(const std::vector<Element>& batches) {
  if (batches.size() == 1) return batches[0];
  return combine(batches, "joining batches", join_component);
}

Element only_row(Element batch) {
  for (auto& component : batch.components()) {
    if (component.is_bytes()) std::get<Bytes>(component.value).sizes.erase(std::get<Bytes>(component.value).sizes.begin());
    else component.value = component.tensor().squeeze(0);
  }
  return batch;
}

Element row_of(const Element& batch, std::int64_t row) { return only_row(narrow_rows(batch, row, 1)); }

Element stack_padded_rows(std::vector<Element>& elements, const std::vector<std::vector<std::int64_t>>& shapes, double value) {
  return combine(elements, "padded_batch", [&](std::vector<Element>& all, std::size_t c) {
    return stack_padded_component(all, c, c < shapes.size() ? shapes[c] : std::vector<std::int64_t>(), value);
  });
}

std::vector<std::int64_t> with_rows(std::int64_t rows, at::IntArrayRef row_sizes) {
  std::vector<std::int64_t> sizes = {rows};
  sizes.insert(sizes.end(), row_sizes.begin(), row_sizes.end());
  return sizes;
}

std::int64_t count_batches(std::int64_t elements, std::int64_t size, bool drop_remainder) {
  if (elements < 0) return elements;
  return elements / size + (drop_remainder || elements % size == 0 ? 0 : 1);
}

void RowShape::learn(const Element& element) {
  if (!is_known() || sizes_.size() != element.size()) {
    like_ = element;
    sizes_.clear();
    for (const auto& component : element.components()) sizes_.push_back(component.sizes());
    // Only names and dtypes are kept: not the memory.
    for (auto& component : like_.components())
      if (!component.is_bytes()) component.value = at::empty({0}, component.tensor().options());
      else component.value = Bytes{};
    return;
  }
  for (std::size_t c = 0; c < sizes_.size(); ++c) {
    const auto sizes = element.components()[c].sizes();
    for (std::size_t d = 1; d < sizes_[c].size(); ++d)
      if (d >= sizes.size() || sizes[d] != sizes_[c][d]) sizes_[c][d] = 0;
  }
}

Element RowShape::empty() const {
  Element result = like_;
  for (std::size_t c = 0; c < sizes_.size(); ++c) {
    auto sizes = sizes_[c];
    if (sizes.empty()) sizes.push_back(0);
    sizes[0] = 0;
    auto& component = result.components()[c];
    if (component.is_bytes()) component.value = Bytes{{}, sizes};
    else component.value = at::empty(sizes, component.tensor().options());
  }
  return result;
}

}  // namespace lockstep::data::internal
