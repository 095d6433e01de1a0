#include "lockstep/replica/generator.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <mutex>

#include "lockstep/base/mix.h"

namespace lockstep::internal {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local at::Generator* t_generator = nullptr;

// Fills an absent `generator` argument and calls the operation below our key.
void with_replica_generator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  c10::Device device(c10::kCPU);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = (*stack)[first + i];
    if (value.isTensor() && value.toTensor().defined()) device = value.toTensor().device();
    if (value.isDevice()) device = value.toDevice();
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& value = (*stack)[first + i];
    if (arguments[i].name() == "generator" && value.isNone() && t_generator != nullptr &&
        t_generator->device().type() == device.type())
      value = c10::IValue(*t_generator);
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  op.callBoxed(stack);
}

// Operations with a `generator` argument, in every LibTorch we build with (those a version lacks are left out).
constexpr std::array kOperations = {
    "bernoulli",
    "bernoulli.out",
    "bernoulli.p",
    "bernoulli_.Tensor",
    "bernoulli_.float",
    "bernoulli.Tensor",
    "binomial",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "multinomial",
    "multinomial.out",
    "normal_",
    "normal.Tensor_float",
    "normal.Tensor_float_out",
    "normal.float_Tensor",
    "normal.float_Tensor_out",
    "normal.Tensor_Tensor",
    "normal.Tensor_Tensor_out",
    "normal.float_float",
    "normal.float_float_out",
    "normal_functional",
    "poisson",
    "rand.generator",
    "rand.generator_out",
    "randint.generator",
    "randint.generator_out",
    "randint.low_generator",
    "randint.low_generator_out",
    "randn.generator",
    "randn.generator_out",
    "random_.from",
    "random_.to",
    "random_",
    "randperm.generator",
    "randperm.generator_out",
    "rrelu",
    "rrelu_",
    "rrelu_with_noise",
    "rrelu_with_noise.out",
    "rrelu_with_noise_",
    "uniform_",
    "_standard_gamma",
    "_sample_dirichlet",
};

bool takes_generator(const char* qualified) {
  std::string name = std::string("aten::") + qualified;
  std::string overload;
  if (const auto dot = name.find('.'); dot != std::string::npos) {
    overload = name.substr(dot + 1);
    name.resize(dot);
  }
  const auto found = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!found) return false;
  const auto& arguments = found->schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& a) { return a.name() == "generator"; });
}

void register_kernels() {
  static auto* fallback = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFallthrough());
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  for (const char* operation : kOperations)
    if (takes_generator(operation)) aten->impl(operation, torch::CppFunction::makeFromBoxedFunction<&with_replica_generator>());
}

}  // namespace

GeneratorScope::GeneratorScope(at::Generator* generator) : previous_(t_generator), key_(kKey) { t_generator = generator; }
GeneratorScope::~GeneratorScope() { t_generator = previous_; }

void seed_generator(at::Generator& generator, std::uint64_t seed, int replica) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(mix(seed, static_cast<std::uint64_t>(replica)));
}

at::Generator make_generator(c10::Device device, std::uint64_t seed, int replica) {
  static std::once_flag once;
  std::call_once(once, register_kernels);
  auto generator = at::globalContext().defaultGenerator(device).clone();
  seed_generator(generator, seed, replica);
  return generator;
}

}  // namespace lockstep::internal
