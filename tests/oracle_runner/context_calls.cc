#include "tests/oracle_runner/context_calls.h"

#include <map>

#include "lockstep/replica/mode.h"
#include "lockstep/strategy/default_strategy.h"
#include "lockstep/train/loss.h"
#include "tests/oracle_runner/values.h"

namespace lockstep::oracle {
namespace {

const char* const kDone = "ok";

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }

Variable make_variable_in(Strategy& strategy) {
  const auto scope = strategy.scope();
  return Variable(1.0);
}

data::Dataset batches() { return data::Dataset::range(24).batch(12); }

PerReplica<at::Tensor> make_replica_ids(int replicas) {
  std::vector<at::Tensor> ids;
  for (int replica = 0; replica < replicas; ++replica) ids.push_back(scalar(replica));
  return PerReplica<at::Tensor>(std::move(ids));
}

Json facts_in_scope(Strategy& strategy) {
  const auto scope = strategy.scope();
  return facts();
}

Json set_and_clear(Strategy& strategy) {
  experimental_set_strategy(&strategy);
  experimental_set_strategy(nullptr);
  return kDone;
}

Json gather_ones(Setup& setup) {
  const std::vector<at::Tensor> ones(setup.replica_ids.size(), at::ones({1}));
  return to_json(setup.strategy.gather(PerReplica<at::Tensor>(ones), 0));
}

Json update(Setup& setup) {
  setup.strategy.extended().update(setup.variable, [](at::Tensor& component) {
    const at::NoGradGuard no_grad;
    component.add_(1);
  });
  return kDone;
}

Json merge(Setup&) {
  replica_context().merge_call([](Strategy&) {});
  return kDone;
}

Json distribute_values(Setup& setup) {
  setup.strategy.experimental_distribute_values_from_function([](const ValueContext& context) { return context; });
  return kDone;
}

Json refuse_arguments(Setup&) { throw NotApplicable("refused at compile time: arguments of run() that are not a list"); }

// fn, for calls of which only the success is asked.
template <typename F>
Call done(F fn) {
  return [fn](Setup& setup) -> Json {
    fn(setup);
    return kDone;
  };
}

const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call> all = {
      {"run", [](Setup& s) { return to_json(run_facts(s.strategy)); }},
      {"scope", [](Setup& s) { return facts_in_scope(s.strategy); }},
      {"other_scope", [](Setup& s) { return facts_in_scope(s.other); }},
      {"default_scope", [](Setup&) { return facts_in_scope(default_strategy()); }},
      {"other_run", done([](Setup& s) { run_facts(s.other); })},
      {"run_args_not_tuple", refuse_arguments},
      {"set_strategy", [](Setup& s) { return set_and_clear(s.strategy); }},
      {"reduce", [](Setup& s) { return to_json(s.strategy.reduce("SUM", s.replica_ids)); }},
      {"reduce_to", done([](Setup& s) { s.strategy.extended().reduce_to("SUM", s.replica_ids, s.replica_ids); })},
      {"gather", gather_ones},
      {"local_results", [](Setup& s) { return Json(s.strategy.experimental_local_results(s.replica_ids).size()); }},
      {"tensor_of_per_replica", [](Setup& s) { return to_json(s.replica_ids.local()); }},
      {"update", update},
      {"colocate_vars_with", done([](Setup& s) { (void)s.strategy.extended().colocate_vars_with(s.variable); })},
      {"create_variable", done([](Setup&) { Variable(1.0); })},
      {"distribute_dataset", done([](Setup& s) { s.strategy.experimental_distribute_dataset(batches()); })},
      {"distribute_values", distribute_values},
      {"next_on_iterator", done([](Setup& s) { s.iterator.next(); })},
      {"all_reduce", [](Setup&) { return to_json(replica_context().all_reduce("SUM", scalar(1))); }},
      {"merge_call", merge},
      {"compute_average_loss",
       [](Setup&) {
         return to_json(compute_average_loss(at::tensor({1.0F, 2.0F})));
       }},
      {"scale_regularization_loss", [](Setup&) { return to_json(scale_regularization_loss(scalar(6))); }},
  };
  return all;
}

// Whether the default strategy hands out a dataset's own elements.
bool hands_out_unchanged(const data::Dataset& dataset) {
  auto distributed = default_strategy().experimental_distribute_dataset(dataset).make_iterator();
  for (const auto& element : dataset) {
    const auto batch = distributed.next();
    if (!batch || batch->size() != 1 || to_json((*batch)[0]) != to_json(element)) return false;
  }
  return !distributed.next();
}

Json values_of(const PerReplica<ValueContext>& contexts) {
  Json list = Json::array();
  for (const auto& context : contexts) list.push_back({context.replica_id_in_sync_group, context.num_replicas_in_sync});
  return list;
}

using DefaultCall = std::function<Json(Strategy&, const at::Tensor&)>;

const std::map<std::string, DefaultCall>& default_calls() {
  static const std::map<std::string, DefaultCall> all = {
      {"run", [](Strategy& s, const at::Tensor& v) { return to_json(s.run([](const at::Tensor& x) { return x + 1; }, v)); }},
      {"run_facts", [](Strategy& s, const at::Tensor&) { return to_json(run_facts(s)); }},
      {"reduce_sum", [](Strategy& s, const at::Tensor& v) { return to_json(s.reduce("SUM", v)); }},
      {"reduce_sum_axis_0", [](Strategy& s, const at::Tensor& v) { return to_json(s.reduce("SUM", v, 0)); }},
      {"reduce_mean_axis_0", [](Strategy& s, const at::Tensor& v) { return to_json(s.reduce("MEAN", v, 0)); }},
      {"gather", [](Strategy& s, const at::Tensor& v) { return to_json(s.gather(v, 0)); }},
      {"local_results", [](Strategy& s, const at::Tensor& v) { return list_to_json(s.experimental_local_results(v)); }},
      {"all_reduce", [](Strategy&, const at::Tensor& v) { return to_json(replica_context().all_reduce("SUM", v)); }},
      {"all_gather", [](Strategy&, const at::Tensor& v) { return to_json(replica_context().all_gather(v, 0)); }},
      {"merge_call",
       [](Strategy&, const at::Tensor& v) {
         const auto twice = [](Strategy&, const PerReplica<at::Tensor>& x) { return x[0] * 2; };
         return to_json(replica_context().merge_call(twice, v));
       }},
      {"merge_call_facts",
       [](Strategy&, const at::Tensor&) { return replica_context().merge_call([](Strategy&) { return facts(); }); }},
      {"distribute_dataset_is_same", [](Strategy&, const at::Tensor&) { return Json(hands_out_unchanged(batches())); }},
      {"values_from_function",
       [](Strategy& s, const at::Tensor&) {
         return values_of(s.experimental_distribute_values_from_function([](const ValueContext& c) { return c; }));
       }},
      {"worker_devices", [](Strategy& s, const at::Tensor&) { return Json(s.extended().worker_devices()); }},
  };
  return all;
}

}  // namespace

Setup::Setup(int replicas)
    : strategy(mirrored(replicas)),
      other(mirrored(replicas == 2 ? 3 : 2)),
      variable(make_variable_in(strategy)),
      dataset(strategy.experimental_distribute_dataset(batches())),
      iterator(dataset.make_iterator()),
      replica_ids(make_replica_ids(replicas)) {}

Json facts() {
  const ReplicaContext* context = get_replica_context();
  Json all = {{"has_strategy", has_strategy()},
              {"in_cross_replica_context", in_cross_replica_context()},
              {"strategy", &get_strategy() == &default_strategy() ? "default" : get_strategy().name()},
              {"num_replicas_in_sync", get_strategy().num_replicas_in_sync()},
              {"replica_context", context != nullptr},
              {"in_update", internal::current_update_replica() >= 0}};
  if (context == nullptr) return all;
  all["replica_id_in_sync_group"] = context->replica_id_in_sync_group();
  all["replica_context_num_replicas"] = context->num_replicas_in_sync();
  return all;
}

PerReplica<Json> run_facts(Strategy& strategy) {
  return strategy.run([] { return facts(); });
}

Call find_call(const std::string& name) {
  const auto found = calls().find(name);
  if (found == calls().end()) throw NotApplicable("needs the call " + name);
  return found->second;
}

Json call_default_strategy(const std::string& name, const Json& value) {
  if (name == "second_instance") throw NotApplicable("refused at compile time: making a second default strategy");
  const auto found = default_calls().find(name);
  if (found == default_calls().end()) throw NotApplicable("needs the call " + name + " of the default strategy");
  return found->second(default_strategy(), to_tensor(value));
}

}  // namespace lockstep::oracle
