#include "lockstep/train/losses/names.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/train/losses/losses.h"

namespace lockstep::losses {
namespace {

using Make = Loss (*)();

const std::map<std::string, Make>& makers() {
  static const auto made = [] {
    std::map<std::string, Make> table;
    const auto enter = [&](Make make, std::initializer_list<const char*> names) {
      for (const char* name : names) table.emplace(name, make);
    };
    enter([] { return mean_squared_error(); }, {"mean_squared_error", "MeanSquaredError", "mse", "MSE"});
    enter([] { return mean_absolute_error(); }, {"mean_absolute_error", "MeanAbsoluteError", "mae", "MAE"});
    enter([] { return mean_absolute_percentage_error(); },
          {"mean_absolute_percentage_error", "MeanAbsolutePercentageError", "mape", "MAPE"});
    enter([] { return mean_squared_logarithmic_error(); },
          {"mean_squared_logarithmic_error", "MeanSquaredLogarithmicError", "msle", "MSLE"});
    enter([] { return log_cosh(); }, {"log_cosh", "LogCosh", "logcosh"});
    enter([] { return huber(); }, {"huber", "Huber"});
    enter([] { return cosine_similarity(); }, {"cosine_similarity", "CosineSimilarity"});
    enter([] { return hinge(); }, {"hinge", "Hinge"});
    enter([] { return squared_hinge(); }, {"squared_hinge", "SquaredHinge"});
    enter([] { return categorical_hinge(); }, {"categorical_hinge", "CategoricalHinge"});
    enter([] { return kl_divergence(); }, {"kl_divergence", "KLDivergence", "kld", "KLD"});
    enter([] { return poisson(); }, {"poisson", "Poisson"});
    enter([] { return binary_crossentropy(); }, {"binary_crossentropy", "BinaryCrossentropy", "bce", "BCE"});
    enter([] { return binary_focal_crossentropy(); }, {"binary_focal_crossentropy", "BinaryFocalCrossentropy"});
    enter([] { return categorical_crossentropy(); }, {"categorical_crossentropy", "CategoricalCrossentropy"});
    enter([] { return categorical_focal_crossentropy(); }, {"categorical_focal_crossentropy", "CategoricalFocalCrossentropy"});
    enter([] { return sparse_categorical_crossentropy(); },
          {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"});
    enter([] { return categorical_generalized_cross_entropy(); },
          {"categorical_generalized_cross_entropy", "CategoricalGeneralizedCrossEntropy"});
    enter([] { return dice(); }, {"dice", "Dice"});
    enter([] { return tversky(); }, {"tversky", "Tversky"});
    return table;
  }();
  return made;
}

}  // namespace

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

Loss loss_by_name(const std::string& name) {
  const auto found = makers().find(name);
  if (found == makers().end()) throw Error(ErrorCode::kInvalidArgument, unknown_name("a loss", name, loss_names()));
  return found->second();
}

}  // namespace lockstep::losses
