#include "lockstep/data/autoshard.h"

#include "lockstep/base/error.h"
#include "lockstep/data/rebatch_plan.h"
#include "lockstep/data/steps.h"
#include "tests/oracle_runner/files.h"
#include "tests/oracle_runner/pipeline.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// What each worker reads, and what its replicas get of it.

namespace lockstep::oracle {
namespace {

using data::Dataset;
using data::Element;
using data::internal::ReplicaShare;
using data::internal::SplitRule;

Dataset dataset_of(const Case& one) {
  write_files(one.input);
  return build_pipeline(one.input.at("pipeline")).with_options({to_policy(one.input.at("policy"))});
}

// The elements, and the error that ended them.
Json read_worker(const Dataset& dataset, std::int64_t workers, std::int64_t worker) {
  Json answer = {{"elements", Json::array()}};
  try {
    auto iterator = data::auto_shard(dataset, workers, worker).make_iterator();
    for (Element element; iterator.next(element);) answer["elements"].push_back(to_json(element));
  } catch (const Error& error) {
    answer["error"] = {{"code", name_of(error.code())}, {"message", error.what()}};
  }
  return answer;
}

Json answer_workers(const Case& one) {
  const auto dataset = dataset_of(one);
  const auto workers = one.input.at("num_workers").get<std::int64_t>();
  if (one.input.contains("index")) {
    data::auto_shard(dataset, workers, one.input["index"]);
    return Json::object();
  }
  Json all = Json::array();
  for (std::int64_t worker = 0; worker < workers; ++worker) all.push_back(read_worker(dataset, workers, worker));
  return {{"workers", std::move(all)}};
}

// Steps, each with the parts of one worker's replicas; without those that were only filled up.
std::vector<std::vector<Element>> steps_of(const Dataset& whole, int workers, int worker, int each, SplitRule& rule) {
  using namespace data::internal;
  auto dataset = whole;
  const auto policy = whole.options().auto_shard_policy;
  if (policy == AutoShardPolicy::kFile || policy == AutoShardPolicy::kAuto)
    if (auto files = shard_files(whole.node(), workers, worker))
      dataset = Dataset(std::move(files)).with_options({AutoShardPolicy::kFile});
  const ReplicaShare share{workers * each, worker * each, each};
  rule = choose_split(dataset, share.total);
  const auto stream =
      rule == SplitRule::kRebatch ? open_dealt({rebatched(dataset, share)}, each) : open_split(dataset, share, rule);
  std::vector<std::vector<Element>> steps;
  for (Step step; stream->next(step);) {
    step.parts.resize(step.parts.size() - static_cast<std::size_t>(step.missing));
    steps.push_back(std::move(step.parts));
  }
  return steps;
}

Json answer_replicas(const Case& one) {
  const auto dataset = dataset_of(one);
  const auto workers = one.input.at("num_workers").get<int>();
  const auto each = one.input.at("replicas_per_worker").get<int>();
  Json streams = Json::array();
  Json steps = Json::array();
  auto rule = SplitRule::kWhole;
  for (int worker = 0; worker < workers; ++worker) {
    Json replicas(static_cast<std::size_t>(each), Json::array());
    std::size_t count = 0;
    for (const auto& parts : steps_of(dataset, workers, worker, each, rule)) {
      if (steps.size() <= count) steps.push_back(Json::array());
      for (std::size_t r = 0; r < parts.size(); ++r) {
        replicas[r].push_back(to_json(parts[r]));
        steps[count].push_back(to_json(parts[r]));
      }
      ++count;
    }
    streams.push_back({{"replicas", std::move(replicas)}});
  }
  if (rule == SplitRule::kBalanced) return {{"steps", std::move(steps)}};
  return {{"workers", std::move(streams)}};
}

Json answer_sizes(const Case& one) {
  Json rows = Json::array();
  for (const auto& row : one.asked().at("rows"))  // the questions are the first four numbers of each row
    rows.push_back({row[0], row[1], row[2], row[3], batch_sizes_for_worker(row[0], row[1], row[2], row[3])});
  return {{"rows", std::move(rows)}};
}

bool reads_files(const Json& operation) { return operation.contains("names") && operation.at("op") != "files"; }
bool is_memory(const Json& operation) {
  const auto op = operation.at("op");
  return op == "range" || op == "from_tensors" || op == "from_tensor_slices" || op == "from_generator";
}
bool is_zip(const Json& operation) { return operation.at("op") == "zip"; }

}  // namespace

Json answer_autoshard(const Case& one) {
  if (one.input.contains("table")) return answer_sizes(one);
  return get_or<std::string>(one.input, "api", "") == "multi_worker" ? answer_replicas(one) : answer_workers(one);
}

std::optional<Difference> difference_in_autoshard(const Case& one) {
  if (!one.balanced.is_null())
    return Difference{"A4: every batch is split alone, into parts that differ by at most one row",
                      {{{"expect", {{"steps", one.balanced}}}}}};
  const auto& pipeline = get_or<Json>(one.input, "pipeline", Json::array());
  const bool is_mixed =
      any_operation(pipeline, is_zip) && any_operation(pipeline, reads_files) && any_operation(pipeline, is_memory);
  if (!is_mixed || one.input.at("policy") != "AUTO") return std::nullopt;
  auto by_data = one;
  by_data.input["policy"] = "DATA";
  return Difference{"A8: a zip of files and other data is divided by data", {{{"expect", answer_workers(by_data)}}}};
}

}  // namespace lockstep::oracle
