#include "lockstep/ps/per_worker_variable.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/variable/variable_host.h"

namespace lockstep {
namespace {

// As the coordinator sees it. A parameter server keeps the initial value, under the address.
class OnWorkers final : public RemoteVariable, public ps::Addressed {
 public:
  OnWorkers(std::shared_ptr<ps::ServerVariables> home, ps::VariableAddress address)
      : home_(std::move(home)), address_(std::move(address)) {}

  const ps::VariableAddress& address() const noexcept override { return address_; }

  at::Tensor read() const override { refuse(); }
  at::Tensor read_rows(const at::Tensor&) const override { refuse(); }
  void write(VariableWrite, const at::Tensor&) override { refuse(); }
  void write_rows(VariableWrite, const IndexedSlices&) override { refuse(); }
  std::vector<std::string> devices() const override { return home_->copies().devices; }

  std::vector<at::Tensor> read_all() const {
    auto& workers = *home_->copies().client;
    std::vector<at::Tensor> all;
    for (std::size_t worker = 0; worker < workers.size(); ++worker) {
      auto value = at::empty(address_.sizes, address_.dtype);
      try {
        workers.read({{worker, address_.parts[0].name, value}});
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNotFound) throw;
        value = initial();  // no closure has used it there yet
      }
      all.push_back(value);
    }
    return all;
  }

 private:
  at::Tensor initial() const {
    auto value = at::empty(address_.sizes, address_.dtype);
    home_->client().read({{address_.parts[0].server, address_.parts[0].name, value}});
    return value;
  }
  [[noreturn]] void refuse() const {
    throw Error(ErrorCode::kFailedPrecondition,
                str("variable '", address_.name,
                    "' has a copy on each worker and none on the coordinator; use it in a scheduled function, or ask for "
                    "read_all()"));
  }

  // Const after construction.
  const std::shared_ptr<ps::ServerVariables> home_;
  const ps::VariableAddress address_;
};

}  // namespace

Variable per_worker_variable(const at::Tensor& initial, const VariableOptions& options) {
  const auto replicas = internal::strategy_replicas(internal::current_mode());
  const auto home =
      replicas == nullptr ? nullptr : std::dynamic_pointer_cast<ps::ServerVariables>(replicas->options().variable_host);
  if (home == nullptr || !home->is_on_coordinator())
    throw Error(ErrorCode::kFailedPrecondition,
                str("per_worker_variable '", options.name,
                    "': make it on the coordinator, in the scope() of a ParameterServerStrategy"));
  require_dense(initial, lockstep::str("variable '", options.name, "'").c_str());
  const RemoteDescription description{options.name.empty() ? "Variable" : options.name, initial.sizes().vec(),
                                      initial.scalar_type(), options.trainable.value_or(true), options.aggregation};
  const auto whole = initial.detach().cpu().contiguous();
  auto address = home->create(description, {.part = [&](const auto&, const auto&) { return whole; }, .server = 0});
  address.is_per_worker = true;
  return internal::handle_of(std::make_shared<OnWorkers>(home, std::move(address)), description, replicas);
}

std::vector<at::Tensor> read_all(const Variable& variable) {
  if (const auto* const remote = dynamic_cast<const OnWorkers*>(variable.remote())) return remote->read_all();
  throw Error(ErrorCode::kInvalidArgument,
              str("read_all: variable '", variable.name(), "' has no copies on workers; make it with per_worker_variable()"));
}

}  // namespace lockstep
