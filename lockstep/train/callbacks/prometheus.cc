#include "lockstep/train/callbacks/prometheus.h"

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/observe/metrics_endpoint.h"

namespace lockstep {
namespace {

constexpr auto kSteps = "lockstep_steps_total";

}  // namespace

Prometheus::Prometheus(const PrometheusOptions& options) : options_(options) {
  constexpr int kHighestPort = 65535;
  if (options.port < 0 || options.port > kHighestPort)
    throw Error(ErrorCode::kInvalidArgument,
                str("Prometheus: the port is ", options.port, "; it must be 1 to ", kHighestPort, ", or 0 for a free one"));
  require(!options.host.empty(), "Prometheus: the host has no name; \"0.0.0.0\" listens everywhere");
}

void Prometheus::on_train_begin(Training& training) {
  endpoint_.reset();
  registry_ = std::make_shared<MetricsRegistry>();
  if (!training.is_chief()) return;
  try {
    endpoint_ = std::make_shared<MetricsEndpoint>(str(options_.host, ":", options_.port), registry_);
  } catch (const Error& error) {
    return training.fail(error);  // of all workers
  }
  log_info(str("Prometheus: http://", options_.host, ":", port(), "/metrics"));
}

void Prometheus::on_epoch_begin(Training& training) {
  shown_at_ = Clock::now();
  shown_examples_ = training.examples();
}

void Prometheus::on_train_batch_end(Training& training) {
  if (endpoint_ == nullptr) return;
  registry_->counter(kSteps, "Training steps of this process").add();
  if (Clock::now() - shown_at_ < options_.every) return;
  show_progress(training);
  show_values(training.logs());
}

void Prometheus::on_epoch_end(Training& training, Logs& logs) {
  if (endpoint_ == nullptr) return;
  show_progress(training);
  show_values(logs);
}

void Prometheus::on_train_end(Training&) { endpoint_.reset(); }

int Prometheus::port() const noexcept { return endpoint_ == nullptr ? 0 : endpoint_->port(); }

// Labels, not names of their own: a program may call its metrics anything.
void Prometheus::show_values(const Logs& logs) {
  for (const auto& [name, value] : logs)
    registry_->gauge("lockstep_value", "Loss and metrics, by name", {{"name", name}}).set(value);
}

void Prometheus::show_progress(Training& training) {
  const auto now = Clock::now();
  const auto seconds = std::chrono::duration<double>(now - shown_at_).count();
  const auto examples = static_cast<double>(training.examples() - shown_examples_);
  if (seconds > 0 && examples > 0)
    registry_->gauge("lockstep_examples_per_second", "Over all replicas, since the values before").set(examples / seconds);
  registry_->gauge("lockstep_epoch", "The epoch that is under way, from 0").set(training.epoch());
  registry_->gauge("lockstep_step", "Steps of this epoch that are done").set(static_cast<double>(training.step()));
  registry_->gauge("lockstep_iterations", "Updates of the weights").set(static_cast<double>(training.iterations()));
  registry_->gauge("lockstep_learning_rate", "Of the optimizer").set(training.learning_rate());
  shown_at_ = now;
  shown_examples_ = training.examples();
}

}  // namespace lockstep
