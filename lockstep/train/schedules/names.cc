#include "lockstep/train/schedules/names.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/train/schedules/schedules.h"

namespace lockstep::schedules {
namespace {

// Takes arguments by name, and notes the names, so that one that does not exist is found.
class Reader {
 public:
  Reader(std::string name, const Arguments& arguments) : name_(std::move(name)), arguments_(arguments) {}

  // What Keras demands, or has a value of its own for.
  template <typename T>
  void needed(const char* name, T& value) {
    if (!arguments_.contains(name)) missing_.push_back(str("'", name, "'"));
    optional(name, value);
  }
  template <typename T>
  void optional(const char* name, T& value) {
    names_.emplace_back(name);
    const auto found = arguments_.find(name);
    if (found != arguments_.end()) take(name, found->second, value);
  }
  // When all were asked for: first what does not exist, which is probably what is missing.
  void finish() const {
    for (const auto& [name, argument] : arguments_)
      if (std::ranges::find(names_, name) == names_.end())
        throw Error(ErrorCode::kInvalidArgument, unknown_name(str("an argument of ", name_), name, names_));
    if (!missing_.empty())
      throw Error(ErrorCode::kInvalidArgument, str(name_, ": missing ", join(" and ", missing_), "; there is no default"));
  }

 private:
  double number(const char* name, const Argument& given) const {
    if (!given.is_list() && std::isfinite(given.values()[0])) return given.values()[0];
    throw Error(ErrorCode::kInvalidArgument, str(name_, ": '", name, "' must be a finite number, and is ",
                                                 given.is_list() ? "a list" : str(given.values()[0])));
  }
  std::int64_t whole(const char* name, double value) const {
    constexpr double kMost = 9007199254740992.0;  // 2^53: a double counts so far
    if (value == std::floor(value) && std::abs(value) <= kMost) return static_cast<std::int64_t>(value);
    throw Error(ErrorCode::kInvalidArgument, str(name_, ": '", name, "' counts steps, and ", value, " is not a whole number"));
  }
  void take(const char* name, const Argument& given, double& value) const { value = number(name, given); }
  void take(const char* name, const Argument& given, bool& value) const { value = number(name, given) != 0; }
  void take(const char* name, const Argument& given, std::optional<double>& value) const { value = number(name, given); }
  void take(const char* name, const Argument& given, std::int64_t& value) const { value = whole(name, number(name, given)); }
  void take(const char*, const Argument& given, std::vector<double>& values) const { values = given.values(); }
  void take(const char* name, const Argument& given, std::vector<std::int64_t>& values) const {
    for (const double value : given.values()) values.push_back(whole(name, value));
  }

  const std::string name_;
  const Arguments& arguments_;
  std::vector<std::string> names_, missing_;
};

ExponentialDecayOptions decay(Reader& read) {
  ExponentialDecayOptions options;
  read.needed("initial_learning_rate", options.initial_learning_rate);
  read.needed("decay_steps", options.decay_steps);
  read.needed("decay_rate", options.decay_rate);
  read.optional("staircase", options.staircase);
  read.finish();
  return options;
}

PolynomialDecayOptions polynomial(Reader& read) {
  PolynomialDecayOptions options;
  read.needed("initial_learning_rate", options.initial_learning_rate);
  read.needed("decay_steps", options.decay_steps);
  read.optional("end_learning_rate", options.end_learning_rate);
  read.optional("power", options.power);
  read.optional("cycle", options.cycle);
  read.finish();
  return options;
}

CosineDecayOptions cosine(Reader& read) {
  CosineDecayOptions options;
  read.needed("initial_learning_rate", options.initial_learning_rate);
  read.needed("decay_steps", options.decay_steps);
  read.optional("alpha", options.alpha);
  read.optional("warmup_target", options.warmup_target);
  read.optional("warmup_steps", options.warmup_steps);
  read.finish();
  return options;
}

CosineDecayRestartsOptions restarts(Reader& read) {
  CosineDecayRestartsOptions options;
  read.needed("initial_learning_rate", options.initial_learning_rate);
  read.needed("first_decay_steps", options.first_decay_steps);
  read.optional("t_mul", options.t_mul);
  read.optional("m_mul", options.m_mul);
  read.optional("alpha", options.alpha);
  read.finish();
  return options;
}

PiecewiseConstantDecayOptions pieces(Reader& read) {
  PiecewiseConstantDecayOptions options;
  read.needed("boundaries", options.boundaries);
  read.needed("values", options.values);
  read.finish();
  return options;
}

WarmUpOptions warm(Reader& read) {
  WarmUpOptions options;
  double rate = 0;
  read.needed("rate", rate);
  read.needed("steps", options.steps);
  options.rate = rate;
  read.finish();
  return options;
}

using Make = LearningRate (*)(Reader&);

const std::map<std::string, Make>& makers() {
  static const auto made = [] {
    std::map<std::string, Make> table;
    const auto enter = [&](Make make, std::initializer_list<const char*> names) {
      for (const char* name : names) table.emplace(name, make);
    };
    enter([](Reader& read) -> LearningRate { return ExponentialDecay(decay(read)); },
          {"exponential_decay", "ExponentialDecay"});
    enter([](Reader& read) -> LearningRate { return InverseTimeDecay(decay(read)); },
          {"inverse_time_decay", "InverseTimeDecay"});
    enter([](Reader& read) -> LearningRate { return PolynomialDecay(polynomial(read)); },
          {"polynomial_decay", "PolynomialDecay"});
    enter([](Reader& read) -> LearningRate { return CosineDecay(cosine(read)); }, {"cosine_decay", "CosineDecay"});
    enter([](Reader& read) -> LearningRate { return CosineDecayRestarts(restarts(read)); },
          {"cosine_decay_restarts", "CosineDecayRestarts"});
    enter([](Reader& read) -> LearningRate { return PiecewiseConstantDecay(pieces(read)); },
          {"piecewise_constant_decay", "PiecewiseConstantDecay"});
    enter([](Reader& read) -> LearningRate { return WarmUp(warm(read)); }, {"warm_up", "WarmUp"});
    return table;
  }();
  return made;
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

LearningRate schedule_by_name(const std::string& name, const Arguments& arguments) {
  const auto found = makers().find(name);
  if (found == makers().end()) throw Error(ErrorCode::kInvalidArgument, unknown_name("a schedule", name, schedule_names()));
  Reader read(name, arguments);
  return found->second(read);
}

}  // namespace lockstep::schedules
