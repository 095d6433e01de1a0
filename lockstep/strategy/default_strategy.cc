#include "lockstep/strategy/default_strategy.h"

#include <ATen/ATen.h>

namespace lockstep {
namespace {

class DefaultStrategy final : public Strategy {
 public:
  DefaultStrategy() : Strategy(internal::default_replicas()) { internal::set_default_strategy(this); }
  std::string name() const override { return "the default strategy"; }
};

// Made when the library is loaded, so that the default replica's context always finds its strategy.
[[maybe_unused]] const Strategy* const g_made_at_start = &default_strategy();

}  // namespace

Strategy& default_strategy() {
  static auto* instance = new DefaultStrategy;
  return *instance;
}

}  // namespace lockstep
