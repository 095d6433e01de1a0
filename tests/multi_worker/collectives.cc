#include "tests/multi_worker/collectives.h"

#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iostream>
#include <utility>

#include "tests/multi_worker/scenarios.h"

namespace lockstep::testing {
namespace {

using Part = void (*)(MultiWorkerMirroredStrategy&, Report&);

const std::vector<std::pair<std::string, Part>>& all_parts() {
  static const std::vector<std::pair<std::string, Part>> parts = {{"all_reduce", report_all_reduce},
                                                                  {"structures", report_structures},
                                                                  {"all_gather", report_all_gather},
                                                                  {"gradients", report_gradients},
                                                                  {"across", report_across},
                                                                  {"contexts", report_contexts},
                                                                  {"variables", report_variables},
                                                                  {"on_read", report_on_read},
                                                                  {"scatters", report_scatters},
                                                                  {"inputs", report_inputs},
                                                                  {"own_inputs", report_own_inputs},
                                                                  {"training", report_training},
                                                                  {"odd_training", report_odd_training},
                                                                  {"fitting", report_fitting},
                                                                  {"unused", report_unused}};
  return parts;
}

torch::Tensor wide(const torch::Tensor& value) {
  if (value.is_complex()) return value.to(torch::kComplexDouble);
  return at::isFloatingType(value.scalar_type()) ? value.to(torch::kDouble) : value.to(torch::kLong);
}

torch::Tensor wide_sum(int replicas, const std::function<torch::Tensor(int)>& value) {
  auto sum = wide(value(0));
  for (int r = 1; r < replicas; ++r) sum = sum + wide(value(r));
  return sum;
}

}  // namespace

torch::Tensor value_of(int replica, torch::ScalarType type, at::IntArrayRef sizes) {
  // The golden ratio's multiples, without their whole parts, are spread evenly and look like noise.
  const auto noise = [&](double factor) {
    const auto count = torch::arange(1, c10::multiply_integers(sizes) + 1, torch::kDouble);
    return (count * (0.6180339887498949 + 0.0713 * replica + factor)).frac().view(sizes);
  };
  if (type == torch::kBool) return noise(0) < 0.3;
  if (at::isIntegralType(type, /*includeBool=*/false))
    return (noise(0) * 20).floor().to(type) * (type == torch::kUInt8 ? 1 : -1);
  if (at::isComplexType(type)) return torch::complex(noise(0) * 4 - 2, noise(0.1) * 4 - 2).to(type);
  return (noise(0) * 4 - 2).to(type);
}

torch::Tensor sum_of(int replicas, const std::function<torch::Tensor(int)>& value) {
  return wide_sum(replicas, value).to(value(0).scalar_type());
}

torch::Tensor mean_of(int replicas, const std::function<torch::Tensor(int)>& value) {
  const auto type = value(0).scalar_type();
  const auto is_integral = at::isIntegralType(type, /*includeBool=*/true);
  return (wide_sum(replicas, value) / static_cast<double>(replicas)).to(is_integral ? torch::kDouble : type);
}

// part=NAME: only that one. Every worker has a random state of its own, on purpose: worker 0's counts.
void collectives(const Parameters& parameters) {
  torch::manual_seed(static_cast<std::uint64_t>(parameters.number("seed", 1)));
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  Report report(strategy);
  const auto wanted = parameters.text("part", "");
  for (const auto& [name, part] : all_parts()) {
    if (!wanted.empty() && wanted != name) continue;
    torch::manual_seed(static_cast<std::uint64_t>(10 + strategy.worker_rank()));
    report.begin(name);
    part(strategy, report);
  }
  std::cout << "wrong " << report.wrong() << std::endl;
}

}  // namespace lockstep::testing
