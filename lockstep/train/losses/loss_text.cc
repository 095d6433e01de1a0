#include "lockstep/train/losses/loss_text.h"

#include "lockstep/train/functions_by_type.h"
#include "lockstep/train/losses/losses.h"
#include "lockstep/train/options_text.h"

namespace lockstep::losses {
namespace {

using lockstep::internal::any_of_table;
using lockstep::internal::OptionsReader;
using lockstep::internal::OptionsWriter;
using lockstep::internal::OrderedJson;

constexpr const char* kWhat = "a loss";

// What each kind has of its own, by name. `f` writes or reads.
template <typename F>
void list(LossOptions&, F&) {}
template <typename F>
void list(HuberOptions& o, F& f) {
  f("delta", o.delta);
}
template <typename F>
void list(CosineSimilarityOptions& o, F& f) {
  f("axis", o.axis);
}
template <typename F>
void list(BinaryCrossentropyOptions& o, F& f) {
  f("from_logits", o.from_logits), f("label_smoothing", o.label_smoothing), f("axis", o.axis);
}
template <typename F>
void list(BinaryFocalCrossentropyOptions& o, F& f) {
  f("apply_class_balancing", o.apply_class_balancing), f("alpha", o.alpha), f("gamma", o.gamma);
  f("from_logits", o.from_logits), f("label_smoothing", o.label_smoothing), f("axis", o.axis);
}
template <typename F>
void list(CategoricalCrossentropyOptions& o, F& f) {
  f("from_logits", o.from_logits), f("label_smoothing", o.label_smoothing), f("axis", o.axis);
}
template <typename F>
void list(CategoricalFocalCrossentropyOptions& o, F& f) {
  f("alpha", o.alpha), f("gamma", o.gamma);
  f("from_logits", o.from_logits), f("label_smoothing", o.label_smoothing), f("axis", o.axis);
}
template <typename F>
void list(SparseCategoricalCrossentropyOptions& o, F& f) {
  f("from_logits", o.from_logits), f("ignore_class", o.ignore_class), f("axis", o.axis);
}
template <typename F>
void list(CategoricalGeneralizedCrossEntropyOptions& o, F& f) {
  f("q", o.q);
}
template <typename F>
void list(DiceOptions& o, F& f) {
  f("axis", o.axis);
}
template <typename F>
void list(TverskyOptions& o, F& f) {
  f("alpha", o.alpha), f("beta", o.beta), f("axis", o.axis);
}

template <typename Options>
struct Kind {
  const char* name;
  Loss (*make)(const Options& options);
};
constexpr std::tuple kKinds(
    Kind<LossOptions>{"mean_squared_error", &mean_squared_error},
    Kind<LossOptions>{"mean_absolute_error", &mean_absolute_error},
    Kind<LossOptions>{"mean_absolute_percentage_error", &mean_absolute_percentage_error},
    Kind<LossOptions>{"mean_squared_logarithmic_error", &mean_squared_logarithmic_error},
    Kind<LossOptions>{"log_cosh", &log_cosh}, Kind<HuberOptions>{"huber", &huber},
    Kind<CosineSimilarityOptions>{"cosine_similarity", &cosine_similarity}, Kind<LossOptions>{"hinge", &hinge},
    Kind<LossOptions>{"squared_hinge", &squared_hinge}, Kind<LossOptions>{"categorical_hinge", &categorical_hinge},
    Kind<LossOptions>{"kl_divergence", &kl_divergence}, Kind<LossOptions>{"poisson", &poisson},
    Kind<BinaryCrossentropyOptions>{"binary_crossentropy", &binary_crossentropy},
    Kind<BinaryFocalCrossentropyOptions>{"binary_focal_crossentropy", &binary_focal_crossentropy},
    Kind<CategoricalCrossentropyOptions>{"categorical_crossentropy", &categorical_crossentropy},
    Kind<CategoricalFocalCrossentropyOptions>{"categorical_focal_crossentropy", &categorical_focal_crossentropy},
    Kind<SparseCategoricalCrossentropyOptions>{"sparse_categorical_crossentropy", &sparse_categorical_crossentropy},
    Kind<CategoricalGeneralizedCrossEntropyOptions>{"categorical_generalized_cross_entropy",
                                                    &categorical_generalized_cross_entropy},
    Kind<DiceOptions>{"dice", &dice}, Kind<TverskyOptions>{"tversky", &tversky});

lockstep::internal::FunctionsByType<ExampleFunction>& functions() {
  static lockstep::internal::FunctionsByType<ExampleFunction> all("loss or metric function");
  return all;
}

Reduction reduction_by_name(const std::string& name) {
  for (const auto reduction :
       {Reduction::kSumOverBatchSize, Reduction::kSum, Reduction::kMean, Reduction::kMeanWithSampleWeight, Reduction::kNone})
    if (name == str(reduction)) return reduction;
  throw Error(ErrorCode::kInvalidArgument, str("a loss as text: there is no reduction '", name, "'"));
}

Loss built_in(const std::string& kind, const OrderedJson& options) {
  std::optional<Loss> made;
  any_of_table(kKinds, [&]<typename Options>(const Kind<Options>& known) {
    if (kind != known.name) return false;
    Options own;
    OptionsReader reader{options, kWhat, kind};
    list(own, reader);
    reader.end();
    made = known.make(own);
    return true;
  });
  if (!made) throw Error(ErrorCode::kInvalidArgument, str("a loss as text: there is no loss '", kind, "'"));
  return *made;
}

}  // namespace

std::string register_function(const std::type_info& type, ExampleFunction function) {
  return functions().add(type, std::move(function));
}

ExampleFunction function_by_name(const std::string& name) { return functions().find(name); }

template <typename Options>
Loss::Description loss_text(const char* kind, const Options& options) {
  return [kind, options] {
    OrderedJson all;
    all["loss"] = kind;
    auto own = options;
    OptionsWriter writer{all["options"] = OrderedJson::object(), kWhat};
    list(own, writer);
    return lockstep::internal::to_text(all);
  };
}
template Loss::Description loss_text(const char*, const LossOptions&);
template Loss::Description loss_text(const char*, const HuberOptions&);
template Loss::Description loss_text(const char*, const CosineSimilarityOptions&);
template Loss::Description loss_text(const char*, const BinaryCrossentropyOptions&);
template Loss::Description loss_text(const char*, const BinaryFocalCrossentropyOptions&);
template Loss::Description loss_text(const char*, const CategoricalCrossentropyOptions&);
template Loss::Description loss_text(const char*, const CategoricalFocalCrossentropyOptions&);
template Loss::Description loss_text(const char*, const SparseCategoricalCrossentropyOptions&);
template Loss::Description loss_text(const char*, const CategoricalGeneralizedCrossEntropyOptions&);
template Loss::Description loss_text(const char*, const DiceOptions&);
template Loss::Description loss_text(const char*, const TverskyOptions&);

std::string text_with(const std::string& structure, const char* name, const std::string& value) {
  auto all = lockstep::internal::parse_structure(structure, kWhat);
  all[name] = value;
  return lockstep::internal::to_text(all);
}

Loss Loss::named(const std::string& function, const Loss& loss) {
  return loss.described([function, name = loss.name()] {
    OrderedJson all;
    all["function"] = function;
    all["name"] = name;
    return lockstep::internal::to_text(all);
  });
}

Loss Loss::from_text(const std::string& text) {
  const auto all = lockstep::internal::parse_structure(text, kWhat);
  OptionsReader reader{all, kWhat, "a loss", {"options"}};
  std::string kind, function, name, reduction = str(Reduction::kSumOverBatchSize);
  reader("loss", kind), reader("function", function), reader("name", name), reader("reduction", reduction);
  reader.end();
  const auto made = function.empty() ? built_in(kind, lockstep::internal::structure_in(all, "options", kWhat))
                                     : named(function, Loss(name, function_by_name(function)));
  return made.with_reduction(reduction_by_name(reduction));
}

}  // namespace lockstep::losses
