#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace lockstep::internal {

// Note [replica generators]
// LibTorch's default CPU generator is one per process, so dropout in two replica threads would draw from it in a racy
// order. While a GeneratorScope is alive, operations on its thread that take a generator and were given none (dropout,
// rand, normal_, ...) use the scope's one. A dispatch key of LibTorch that is reserved for such interception is included
// for the thread; it falls through for every operation but those, so that nothing else pays for it.
class GeneratorScope {
 public:
  // `generator` must outlive the scope and serve the device that the thread computes on.
  explicit GeneratorScope(at::Generator* generator);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  at::Generator* previous_;
  c10::impl::IncludeDispatchKeyGuard key_;
};

// A generator of its own for a replica on `device`: equal (seed, replica) give equal draws.
at::Generator make_generator(c10::Device device, std::uint64_t seed, int replica);
void seed_generator(at::Generator& generator, std::uint64_t seed, int replica);

}  // namespace lockstep::internal
