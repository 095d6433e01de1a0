#include "lockstep/serve/store_files.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/ps/client_table.h"

namespace lockstep::internal {
namespace {

using ps::StoredVariable;
using Variables = std::vector<std::shared_ptr<StoredVariable>>;
using Numbers = std::vector<std::pair<std::string, double>>;

Variables chosen(const ps::VariableStore& store, const std::vector<std::string>& names) {
  auto all = store.variables();
  const std::set<std::string> wanted(names.begin(), names.end());
  std::erase_if(all, [&](const auto& one) { return !wanted.empty() && !wanted.contains(whole_name(one->description())); });
  return all;
}

std::int64_t rows_in(const ps::Description& description) { return description.shape.empty() ? 1 : description.shape[0]; }

// A file whose pieces are the tensors' own memory, which `kept` keeps.
CheckpointImage::File file_of(const std::string& name, NamedTensors tensors, const std::map<std::string, std::string>& metadata,
                              std::vector<at::Tensor>& kept) {
  sort_by_element(tensors);
  CheckpointImage::File file{name, "", {}};
  std::vector<SafetensorsEntry> entries;
  for (const auto& [tensor_name, tensor] : tensors) {
    entries.push_back(entry_for(tensor_name, tensor));
    kept.push_back(on_host(tensor));
    file.pieces.push_back(internal::bytes_of(kept.back()));
  }
  file.header = make_safetensors_header(entries, metadata);
  return file;
}

// The rule's tensors and numbers before its first update, for a variable of one row.
ps::RuleState initial_state(const ps::RuleFactory& rules, const ps::Description& description) {
  auto shape = description.shape;
  if (!shape.empty()) shape[0] = 1;
  auto value = at::zeros(shape, static_cast<at::ScalarType>(description.dtype));
  const auto rule = rules(description.rule, value);
  if (shape.empty()) {
    rule->apply(value, at::zeros_like(value));
  } else {
    auto none = shape;
    none[0] = 0;
    rule->apply_rows(value, at::empty({0}, at::kLong), at::empty(none, value.options()));
  }
  return rule->state();
}

double number_of(const Numbers& numbers, const std::string& name) {
  const auto found = std::ranges::find(numbers, name, &std::pair<std::string, double>::first);
  return found == numbers.end() ? 0 : found->second;
}

std::set<std::string> names_of(const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  return names;
}

const at::Tensor* find(const NamedTensors& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &std::pair<std::string, at::Tensor>::first);
  return found == tensors.end() ? nullptr : &found->second;
}

// One tensor of the state for rows [first, first + count): a view where one part has it all. Rows of parts that were never
// updated get what `initial` has.
at::Tensor state_rows(const SavedVariables::Whole& whole, const ps::Description& description, const std::string& name,
                      const at::Tensor& initial) {
  at::Tensor joined;
  for_each_slice(whole, description.first_row, rows_in(description),
                 [&](const SavedVariables::Slice& slice, std::int64_t from, std::int64_t to, std::int64_t rows) {
                   const auto* const theirs = find(slice.state, name);
                   if (theirs != nullptr && rows == rows_in(description)) {
                     joined = rows_of(*theirs, from, rows);
                     return;
                   }
                   if (!joined.defined()) joined = at::empty(description.shape, initial.options());
                   auto into = rows_of(joined, to, rows);
                   if (theirs != nullptr) into.copy_(rows_of(*theirs, from, rows));
                   else into.copy_(initial.expand_as(into));
                 });
  return joined.defined() ? joined : at::empty(description.shape, initial.options());
}

void fill_rule(const ps::RuleFactory& rules, const ps::Description& description, const SavedVariables::Whole& whole,
               ps::UpdateRule& rule) {
  const SavedVariables::Slice* furthest = nullptr;
  std::set<std::string> names;
  for_each_slice(whole, description.first_row, rows_in(description),
                 [&](const SavedVariables::Slice& slice, std::int64_t, std::int64_t, std::int64_t) {
                   const auto steps = number_of(slice.saved.numbers, "steps");
                   if (furthest == nullptr || steps > number_of(furthest->saved.numbers, "steps")) furthest = &slice;
                   names.merge(names_of(slice.state));
                 });
  if (furthest == nullptr || furthest->saved.description.rule.empty()) return;
  ps::RuleState state{{}, furthest->saved.numbers};
  if (!names.empty())
    for (const auto& [name, row] : initial_state(rules, description).tensors)
      state.tensors.emplace_back(name, state_rows(whole, description, name, row));
  rule.load_state(state);
}

bool are_alike(at::ScalarType a, at::ScalarType b) { return a == b || (at::isFloatingType(a) && at::isFloatingType(b)); }

// What keeps a variable from being filled from `whole`; empty: nothing does.
std::string problem_of(const ps::RuleFactory& rules, const ps::Description& description, const SavedVariables::Whole& whole) {
  const auto name = whole_name(description);
  if (whole.shape != description.whole_shape)
    return str(name, ": has shape [", join(", ", whole.shape), "], and [", join(", ", description.whole_shape), "] is needed");
  const auto wanted = static_cast<at::ScalarType>(description.dtype);
  for (const auto& slice : whole.slices) {
    if (!are_alike(slice.value.scalar_type(), wanted))
      return lockstep::str(name, ": is ", slice.value.scalar_type(), ", and ", wanted, " is needed");
    if (description.rule.empty() || slice.saved.description.rule.empty() || slice.state.empty()) continue;
    const auto expected = names_of(initial_state(rules, description).tensors);
    if (names_of(slice.state) != expected || slice.state[0].second.scalar_type() != wanted)
      return lockstep::str(name, ": was trained by ", slice.saved.description.rule, " as ", slice.state[0].second.scalar_type(),
                           ", and is ", wanted, " with the optimizer ", description.rule);
  }
  return "";
}

}  // namespace

std::vector<Manifest::File> write_store(ps::VariableStore& store, FileLayer& files, const StoreTarget& target) {
  if (!is_folder(target.folder))
    throw Error(ErrorCode::kFailedPrecondition,
                str("the folder '", target.folder,
                    "' is not seen here; checkpoints of parameter servers need one that all tasks share"));
  std::vector<CheckpointFile> written;
  store.clients().while_quiet([&] {
    NamedTensors values;
    NamedTensors states;
    std::vector<SavedPart> parts;
    for (const auto& variable : chosen(store, target.names))
      variable->look([&](const at::Tensor& value, const ps::UpdateRule* rule, std::uint64_t version) {
        const auto state = rule == nullptr ? ps::RuleState() : rule->state();
        values.emplace_back(variable->name(), value);
        for (const auto& [name, tensor] : state.tensors) states.emplace_back(str(name, "/", variable->name()), tensor);
        parts.push_back({variable->description(), version, state.numbers});
      });
    if (target.beside != nullptr)
      for (auto& named : target.beside()) states.push_back(std::move(named));
    std::vector<at::Tensor> kept;
    const auto put = [&](const char* prefix, NamedTensors tensors, const std::map<std::string, std::string>& metadata) {
      written.push_back(write_checkpoint_file(
          files, target.folder, file_of(str(prefix, target.suffix, ".safetensors"), std::move(tensors), metadata, kept)));
    };
    put(kWeightsPrefix, std::move(values), {{"format", "pt"}, {kVariablesKey, describe_parts(parts)}});
    if (!states.empty()) put(kStatePrefix, std::move(states), {{"format", "pt"}});
  });
  std::vector<Manifest::File> facts;
  for (auto& one : written) {
    one.file->sync();
    facts.push_back(one.facts);
  }
  return facts;
}

std::uint64_t fill_variable(const ps::RuleFactory& rules, const ps::Description& description,
                            const SavedVariables::Whole& whole, std::pair<at::Tensor*, ps::UpdateRule*> into) {
  const c10::NoGradGuard no_grad;
  std::uint64_t version = 0;
  for_each_slice(whole, description.first_row, rows_in(description),
                 [&](const SavedVariables::Slice& slice, std::int64_t from, std::int64_t to, std::int64_t rows) {
                   rows_of(*into.first, to, rows).copy_(rows_of(slice.value, from, rows));
                   version = std::max(version, slice.saved.version);
                 });
  if (into.second != nullptr) fill_rule(rules, description, whole, *into.second);
  return version;
}

ps::RestoreFilesReply compare_store(const ps::VariableStore& store, const SavedVariables& saved,
                                    const std::vector<std::string>& names) {
  ps::RestoreFilesReply reply;
  std::set<std::string> found;
  for (const auto& variable : chosen(store, names)) {
    const auto& description = variable->description();
    const auto name = whole_name(description);
    const auto* const whole = saved.find(name);
    const auto problem = whole == nullptr ? str(name, ": missing") : problem_of(store.options().rules, description, *whole);
    if (!problem.empty()) reply.problems.push_back(problem);
    found.insert(name);
  }
  reply.found.assign(found.begin(), found.end());
  return reply;
}

void restore_store(ps::VariableStore& store, const SavedVariables& saved, const std::vector<std::string>& names) {
  store.clients().while_quiet([&] {
    for (const auto& variable : chosen(store, names)) {
      const auto* const whole = saved.find(whole_name(variable->description()));
      if (whole == nullptr) continue;
      store.change(variable, [&](at::Tensor& value, ps::UpdateRule* rule, std::uint64_t version) {
        return std::max(version, fill_variable(store.options().rules, variable->description(), *whole, {&value, rule})) + 1;
      });
    }
  });
}

}  // namespace lockstep::internal
