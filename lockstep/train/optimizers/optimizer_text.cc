#include <torch/optim/optimizer.h>

#include "lockstep/train/optimizers/built_in.h"
#include "lockstep/train/options_text.h"
#include "lockstep/train/schedules/schedules.h"

// OptimizerSpec as text:
//   {"kind":"sgd","options":{"momentum":0.9,"nesterov":false},"rules":{"learning_rate":0.1,"clipnorm":1.0, ...}}
// A learning rate is a number, or a schedule: {"schedule":"cosine_decay","initial_learning_rate":0.1, ...}. What is absent has
// its default.

namespace lockstep {
namespace {

using internal::any_of_table;
using internal::OrderedJson;
using internal::structure_in;

constexpr const char* kWhat = "an optimizer";

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

struct Writer : internal::OptionsWriter {
  explicit Writer(OrderedJson& out) : OptionsWriter{out, kWhat} {}

  using OptionsWriter::operator();
  void operator()(const char* name, const std::string& value) {
    if (!value.empty()) OptionsWriter::operator()(name, value);
  }
  void operator()(const char* name, const LearningRate& rate) {
    if (!rate.is_schedule()) return (*this)(name, rate.at(0));
    auto& schedule = out[name];
    const bool is_known = any_of_table(kSchedules, [&](const auto& kind) {
      const auto* given = rate.schedule_as<typename std::decay_t<decltype(kind)>::Type>();
      if (given == nullptr) return false;
      schedule["schedule"] = kind.name;
      auto options = given->options();
      Writer writer(schedule);
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

struct Reader : internal::OptionsReader {
  Reader(const OrderedJson& in, std::string part, std::vector<std::string> names = {})
      : OptionsReader{in, kWhat, std::move(part), std::move(names)} {}

  using OptionsReader::operator();
  void operator()(const char* name, LearningRate& rate) {
    const auto* given = find(name);
    if (given == nullptr) return;
    if (given->is_number()) return void(rate = given->get<double>());
    std::string wanted;
    Reader schedule(*given, "a schedule");
    if (!given->is_object()) refuse(name, "a number or a schedule");
    schedule("schedule", wanted);
    const bool is_known = any_of_table(kSchedules, [&](const auto& kind) {
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
};

}  // namespace

std::string OptimizerSpec::to_text() const {
  OrderedJson all;
  const bool is_known = any_of_table(kKinds, [&]<typename Options>(const Kind<Options>& kind) {
    const auto* built_in = make_.target<BuiltIn<Options>>();
    if (built_in == nullptr) return false;
    all["kind"] = kind.name;
    auto options = built_in->options;
    Writer writer(all["options"] = OrderedJson::object());
    list(options, writer);
    return true;
  });
  if (!is_known)
    throw Error(ErrorCode::kUnimplemented, str("optimizer '", name(),
                                               "' is one's own, and cannot be sent to another task as text; use one of "
                                               "lockstep/train/optimizers/optimizers.h"));
  auto rules = rules_;
  Writer writer(all["rules"] = OrderedJson::object());
  list(rules, writer);
  return internal::to_text(all);
}

OptimizerSpec OptimizerSpec::from_text(const std::string& text) {
  const auto all = internal::parse_structure(text, kWhat);
  std::string wanted;
  Reader top(all, "an optimizer", {"options", "rules"});
  top("kind", wanted);
  top.end();
  std::optional<OptimizerSpec> made;
  any_of_table(kKinds, [&]<typename Options>(const Kind<Options>& kind) {
    if (wanted != kind.name) return false;
    Options options;
    Reader reader(structure_in(all, "options", kWhat), wanted);
    list(options, reader);
    reader.end();
    made = kind.make(options);
    return true;
  });
  if (!made) throw Error(ErrorCode::kInvalidArgument, str("an optimizer as text: there is no optimizer '", wanted, "'"));
  auto rules = made->rules();
  Reader reader(structure_in(all, "rules", kWhat), "an optimizer's rules");
  list(rules, reader);
  reader.end();
  return made->with_rules(std::move(rules));
}

}  // namespace lockstep
