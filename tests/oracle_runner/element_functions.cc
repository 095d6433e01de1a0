#include <algorithm>
#include <map>

#include "tests/oracle_runner/files.h"
#include "tests/oracle_runner/pipeline.h"

namespace lockstep::oracle {
namespace {

using data::Dataset;
using data::Element;

using MapFn = Element (*)(const Element&);
using Condition = bool (*)(std::int64_t);
using DatasetFn = Dataset (*)(const Element&);
using StateFn = Element (*)(const Element& state, const Element& element);

std::int64_t number(const Element& element) { return element[0].item<std::int64_t>(); }

Element to_string(const Element& element) {
  const auto flat = element[0].to(at::kLong).contiguous().view(-1);
  data::Bytes bytes;
  bytes.sizes = element[0].sizes().vec();
  for (std::int64_t i = 0; i < flat.numel(); ++i) bytes.values.push_back(std::to_string(flat[i].item<std::int64_t>()));
  return Element(std::vector<data::Component>{{"", std::move(bytes)}});
}

Element concat_a(const Element& element) {
  auto bytes = element.components().at(0).bytes();
  for (auto& text : bytes.values) text += "a";
  return Element(std::vector<data::Component>{{"", std::move(bytes)}});
}

Element to_dict(const Element& element) {
  const auto& x = element[0];
  using data::NamedTensor;
  return Element({NamedTensor("a", x), NamedTensor("b.c", x * 2), NamedTensor("b.d", at::stack({x, -x}, -1))});
}

Element fill(const Element& element, std::vector<std::int64_t> more) {
  const auto x = element[0].item<std::int64_t>();
  more.insert(more.begin(), x);
  return Element(at::full(more, x, at::kLong));
}

Element row_of_3(const Element& element) {
  const auto& x = element[0];
  return Element(at::stack({x, x + 1, x + 2}, -1));
}

const std::map<std::string, MapFn> kMaps = {
    {"add_1", [](const Element& e) { return Element(e[0] + 1); }},
    {"times_2", [](const Element& e) { return Element(e[0] * 2); }},
    {"square", [](const Element& e) { return Element(e[0] * e[0]); }},
    {"negate", [](const Element& e) { return Element(-e[0]); }},
    {"half", [](const Element& e) { return Element(e[0].to(at::kFloat) / 2); }},
    {"mod_3", [](const Element& e) { return Element(at::remainder(e[0], 3)); }},
    {"pair_with_neg",
     [](const Element& e) {
       return Element({at::Tensor(e[0]), -e[0]});
     }},
    {"to_dict", to_dict},
    {"fill_x", [](const Element& e) { return fill(e, {}); }},
    {"fill_matrix", [](const Element& e) { return fill(e, {2}); }},
    {"row_of_3", row_of_3},
    {"to_string", to_string},
    {"concat_a", concat_a},
};

const std::map<std::string, Condition> kConditions = {
    {"is_even", [](std::int64_t x) { return x % 2 == 0; }},
    {"is_odd", [](std::int64_t x) { return x % 2 != 0; }},
    {"less_than_5", [](std::int64_t x) { return x < 5; }},
    {"never", [](std::int64_t) { return false; }},
};

const std::map<std::string, DatasetFn> kDatasets = {
    {"range_x", [](const Element& e) { return Dataset::range(number(e)); }},
    {"repeat_x", [](const Element& e) { return Dataset::from_tensors(e[0]).repeat(number(e)); }},
    {"three_of_x", [](const Element& e) { return Dataset::from_tensors(e[0]).repeat(3); }},
    {"irregular", [](const Element& e) { return Dataset::range(10 * number(e), 11 * number(e) + 1).batch(2); }},
    {"batch_of_x",
     [](const Element& e) {
       return Dataset::range(10 * number(e), 11 * number(e)).batch(std::max<std::int64_t>(number(e), 1));
     }},
    {"read_tfrecord", [](const Element& e) { return Dataset::tf_record({file_of(e.text())}); }},
    {"read_text", [](const Element& e) { return Dataset::text_lines({file_of(e.text())}); }},
    {"read_fixed_4", [](const Element& e) { return Dataset::fixed_length_records({file_of(e.text())}, {.record = 4}); }},
};

const std::map<std::string, StateFn> kStates = {
    {"running_sum", [](const Element& state, const Element& e) { return Element(state[0] + e[0]); }},
    {"add", [](const Element& state, const Element& e) { return Element(state[0] + e[0]); }},
    {"count", [](const Element& state, const Element&) { return Element(state[0] + 1); }},
};

template <typename Map>
void require_name(const Map& functions, const std::string& name) {
  if (!functions.contains(name)) throw NotApplicable("needs the pipeline function " + name);
}

}  // namespace

Element map_element(const std::string& name, const Element& element) { return kMaps.at(name)(element); }
bool holds_for(const std::string& name, const Element& element) {
  return kConditions.at(name)(element[0].item<std::int64_t>());
}
Dataset dataset_from(const std::string& name, const Element& element) { return kDatasets.at(name)(element); }
Element next_state(const std::string& name, const Element& state, const Element& element) {
  return kStates.at(name)(state, element);
}

void require_map_function(const std::string& name) { require_name(kMaps, name); }
void require_condition(const std::string& name) { require_name(kConditions, name); }
void require_dataset_function(const std::string& name) { require_name(kDatasets, name); }
void require_state_function(const std::string& name) { require_name(kStates, name); }

}  // namespace lockstep::oracle
