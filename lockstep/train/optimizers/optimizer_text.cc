#include <torch/optim/optimizer.h>

#include <cmath>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/json.h"
#include "lockstep/train/optimizers/built_in.h"
#include "lockstep/train/schedules/schedules.h"

// OptimizerSpec as text:
//   {"kind":"sgd","options":{"momentum":0.9,"nesterov":false},"rules":{"learning_rate":0.1,"clipnorm":1.0, ...}}
// A learning rate is a number, or a schedule: {"schedule":"cosine_decay","initial_learning_rate":0.1, ...}. What is absent has
// its default.

namespace lockstep {
namespace {

using internal::OrderedJson;

// What each kind has of its own, by name; and schedules, and rules. `f` writes or reads.
template <typename F>
void list(SGDOptions& o, F& f) {
  f("momentum", o.momentum), f("nesterov", o.nesterov);
}
template <typename Options, typename F>
void list_betas(Options& o, F& f) {
  f("beta_1", o.beta_1), f("beta_2", o.beta_2), f("epsilon", o.epsilon);
}
template <typename F>
void list(AdamOptions& o, F& f) {
  list_betas(o, f), f("amsgrad", o.amsgrad);
}
template <typename F>
void list(AdamWOptions& o, F& f) {
  list_betas(o, f), f("amsgrad", o.amsgrad), f("weight_decay", o.weight_decay);
}
template <typename F>
void list(RMSpropOptions& o, F& f) {
  f("rho", o.rho), f("momentum", o.momentum), f("epsilon", o.epsilon), f("centered", o.centered);
}
template <typename F>
void list(AdagradOptions& o, F& f) {
  f("initial_accumulator_value", o.initial_accumulator_value), f("epsilon", o.epsilon);
}
template <typename F>
void list(AdadeltaOptions& o, F& f) {
  f("rho", o.rho), f("epsilon", o.epsilon);
}
template <typename F>
void list(AdamaxOptions& o, F& f) {
  list_betas(o, f);
}
template <typename F>
void list(NadamOptions& o, F& f) {
  list_betas(o, f);
}
template <typename F>
void list(FtrlOptions& o, F& f) {
  f("learning_rate_power", o.learning_rate_power), f("initial_accumulator_value", o.initial_accumulator_value);
  f("l1_regularization_strength", o.l1_regularization_strength);
  f("l2_regularization_strength", o.l2_regularization_strength);
  f("l2_shrinkage_regularization_strength", o.l2_shrinkage_regularization_strength), f("beta", o.beta);
}
template <typename F>
void list(LionOptions& o, F& f) {
  f("beta_1", o.beta_1), f("beta_2", o.beta_2);
}
template <typename F>
void list(schedules::ExponentialDecayOptions& o, F& f) {
  f("initial_learning_rate", o.initial_learning_rate), f("decay_steps", o.decay_steps);
  f("decay_rate", o.decay_rate), f("staircase", o.staircase);
}
template <typename F>
void list(schedules::PolynomialDecayOptions& o, F& f) {
  f("initial_learning_rate", o.initial_learning_rate), f("decay_steps", o.decay_steps);
  f("end_learning_rate", o.end_learning_rate), f("power", o.power), f("cycle", o.cycle);
}
template <typename F>
void list(schedules::CosineDecayOptions& o, F& f) {
  f("initial_learning_rate", o.initial_learning_rate), f("decay_steps", o.decay_steps), f("alpha", o.alpha);
  f("warmup_target", o.warmup_target), f("warmup_steps", o.warmup_steps);
}
template <typename F>
void list(schedules::CosineDecayRestartsOptions& o, F& f) {
  f("initial_learning_rate", o.initial_learning_rate), f("first_decay_steps", o.first_decay_steps);
  f("t_mul", o.t_mul), f("m_mul", o.m_mul), f("alpha", o.alpha);
}
template <typename F>
void list(schedules::PiecewiseConstantDecayOptions& o, F& f) {
  f("boundaries", o.boundaries), f("values", o.values);
}
template <typename F>
void list(schedules::WarmUpOptions& o, F& f) {
  f("rate", o.rate), f("steps", o.steps);
}
template <typename F>
void list(OptimizerRules& o, F& f) {
  f("learning_rate", o.learning_rate), f("weight_decay", o.weight_decay);
  f("clipnorm", o.clipnorm), f("clipvalue", o.clipvalue), f("global_clipnorm", o.global_clipnorm);
  f("use_ema", o.use_ema), f("ema_momentum", o.ema_momentum), f("ema_overwrite_frequency", o.ema_overwrite_frequency);
  f("gradient_accumulation_steps", o.gradient_accumulation_steps), f("name", o.name);
}

template <typename Options>
struct Kind {
  const char* name;
  OptimizerSpec (*make)(const Options& options);
};
constexpr std::tuple kKinds(Kind<SGDOptions>{"sgd", &SGD}, Kind<AdamOptions>{"adam", &Adam},
                            Kind<AdamWOptions>{"adamw", &AdamW}, Kind<RMSpropOptions>{"rmsprop", &RMSprop},
                            Kind<AdagradOptions>{"adagrad", &Adagrad}, Kind<AdadeltaOptions>{"adadelta", &Adadelta},
                            Kind<AdamaxOptions>{"adamax", &Adamax}, Kind<NadamOptions>{"nadam", &Nadam},
                            Kind<FtrlOptions>{"ftrl", &Ftrl}, Kind<LionOptions>{"lion", &Lion});

template <typename S>
struct ScheduleKind {
  const char* name;
  using Type = S;
};
constexpr std::tuple kSchedules(ScheduleKind<schedules::ExponentialDecay>{"exponential_decay"},
                                ScheduleKind<schedules::InverseTimeDecay>{"inverse_time_decay"},
                                ScheduleKind<schedules::PolynomialDecay>{"polynomial_decay"},
                                ScheduleKind<schedules::CosineDecay>{"cosine_decay"},
                                ScheduleKind<schedules::CosineDecayRestarts>{"cosine_decay_restarts"},
                                ScheduleKind<schedules::PiecewiseConstantDecay>{"piecewise_constant_decay"},
                                ScheduleKind<schedules::WarmUp>{"warm_up"});

// Calls `fn` with the entries of a table until one says true.
template <typename Table, typename F>
bool any_of(const Table& table, F fn) {
  return std::apply([&](const auto&... entry) { return (fn(entry) || ...); }, table);
}

struct Writer {
  OrderedJson& out;

  void operator()(const char* name, double value) {
    if (!std::isfinite(value))
      throw Error(ErrorCode::kInvalidArgument, str("an optimizer as text: ", name, " is ", value, "; it must be finite"));
    out[name] = value;
  }
  template <typename T>
  requires std::is_integral_v<T>
  void operator()(const char* name, T value) { out[name] = value; }
  void operator()(const char* name, const std::string& value) {
    if (!value.empty()) out[name] = value;
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  template <typename T>
  void operator()(const char* name, const std::vector<T>& values) {
    out[name] = values;
  }
  void operator()(const char* name, const LearningRate& rate) {
    if (!rate.is_schedule()) return (*this)(name, rate.at(0));
    auto& schedule = out[name];
    const bool is_known = any_of(kSchedules, [&](const auto& kind) {
      const auto* given = rate.schedule_as<typename std::decay_t<decltype(kind)>::Type>();
      if (given == nullptr) return false;
      schedule["schedule"] = kind.name;
      auto options = given->options();
      Writer writer{schedule};
      list(options, writer);
      return true;
    });
    if (!is_known)
      throw Error(
          ErrorCode::kUnimplemented,
          "a learning rate schedule of one's own cannot be sent to another task; use one of lockstep::schedules, or set "
          "the rate from the coordinator");
  }
};

// Takes what is there, by name, and notes the names, so that one that does not exist is found.
struct Reader {
  const OrderedJson& in;
  std::string what;
  std::vector<std::string> names = {};

  [[noreturn]] void refuse(const char* name, const char* wanted) const {
    throw Error(ErrorCode::kInvalidArgument, str("an optimizer as text: ", what, ": ", name, " must be ", wanted));
  }
  const OrderedJson* find(const char* name) {
    names.emplace_back(name);
    const auto found = in.find(name);
    return found == in.end() ? nullptr : &*found;
  }
  void operator()(const char* name, double& value) {
    if (const auto* given = find(name)) given->is_number() ? void(value = given->get<double>()) : refuse(name, "a number");
  }
  void operator()(const char* name, bool& value) {
    if (const auto* given = find(name)) given->is_boolean() ? void(value = given->get<bool>()) : refuse(name, "true or false");
  }
  void operator()(const char* name, std::int64_t& value) {
    if (const auto* given = find(name))
      given->is_number_integer() ? void(value = given->get<std::int64_t>()) : refuse(name, "a whole number");
  }
  void operator()(const char* name, std::string& value) {
    if (const auto* given = find(name)) given->is_string() ? void(value = given->get<std::string>()) : refuse(name, "a text");
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    value.reset();
    if (in.contains(name)) (*this)(name, value.emplace());
    else names.emplace_back(name);
  }
  template <typename T>
  void operator()(const char* name, std::vector<T>& values) {
    const auto* given = find(name);
    if (given == nullptr) return;
    if (!given->is_array()) refuse(name, "a list of numbers");
    values.clear();
    for (const auto& value : *given) {
      if (!(std::is_integral_v<T> ? value.is_number_integer() : value.is_number())) refuse(name, "a list of numbers");
      values.push_back(value.template get<T>());
    }
  }
  void operator()(const char* name, LearningRate& rate);

  void end() const {
    for (const auto& [name, value] : in.items())
      if (std::ranges::find(names, name) == names.end())
        throw Error(ErrorCode::kInvalidArgument, str("an optimizer as text: ", unknown_name("of " + what, name, names)));
  }
};

// The member of this name, which must be a structure.
const OrderedJson& structure_in(const OrderedJson& all, const char* name) {
  const auto found = all.find(name);
  if (found == all.end() || !found->is_object())
    throw Error(ErrorCode::kInvalidArgument, str("an optimizer as text: there is no \"", name, "\":{...}"));
  return *found;
}

void Reader::operator()(const char* name, LearningRate& rate) {
  const auto* given = find(name);
  if (given == nullptr) return;
  if (given->is_number()) return void(rate = given->get<double>());
  std::string wanted;
  Reader schedule{*given, "a schedule"};
  if (!given->is_object()) refuse(name, "a number or a schedule");
  schedule("schedule", wanted);
  const bool is_known = any_of(kSchedules, [&](const auto& kind) {
    if (wanted != kind.name) return false;
    using Schedule = typename std::decay_t<decltype(kind)>::Type;
    std::decay_t<decltype(std::declval<Schedule>().options())> options;
    list(options, schedule);
    schedule.end();
    rate = Schedule(options);
    return true;
  });
  if (!is_known) throw Error(ErrorCode::kInvalidArgument, str("an optimizer as text: there is no schedule '", wanted, "'"));
}

}  // namespace

std::string OptimizerSpec::to_text() const {
  OrderedJson all;
  const bool is_known = any_of(kKinds, [&]<typename Options>(const Kind<Options>& kind) {
    const auto* built_in = make_.target<BuiltIn<Options>>();
    if (built_in == nullptr) return false;
    all["kind"] = kind.name;
    auto options = built_in->options;
    Writer writer{all["options"] = OrderedJson::object()};
    list(options, writer);
    return true;
  });
  if (!is_known)
    throw Error(ErrorCode::kUnimplemented, str("optimizer '", name(),
                                               "' is one's own, and cannot be sent to another task as text; use one of "
                                               "lockstep/train/optimizers/optimizers.h"));
  auto rules = rules_;
  Writer writer{all["rules"] = OrderedJson::object()};
  list(rules, writer);
  return all.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OptimizerSpec OptimizerSpec::from_text(const std::string& text) {
  const auto all = internal::parse_json(text, "an optimizer as text");
  if (!all.is_object()) throw Error(ErrorCode::kInvalidArgument, "an optimizer as text: it is no JSON structure");
  std::string wanted;
  Reader top{all, "an optimizer", {"options", "rules"}};
  top("kind", wanted);
  top.end();
  std::optional<OptimizerSpec> made;
  any_of(kKinds, [&]<typename Options>(const Kind<Options>& kind) {
    if (wanted != kind.name) return false;
    Options options;
    Reader reader{structure_in(all, "options"), wanted};
    list(options, reader);
    reader.end();
    made = kind.make(options);
    return true;
  });
  if (!made) throw Error(ErrorCode::kInvalidArgument, str("an optimizer as text: there is no optimizer '", wanted, "'"));
  auto rules = made->rules();
  Reader reader{structure_in(all, "rules"), "an optimizer's rules"};
  list(rules, reader);
  reader.end();
  return made->with_rules(std::move(rules));
}

}  // namespace lockstep
