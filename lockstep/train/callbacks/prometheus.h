#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

class MetricsEndpoint;
class MetricsRegistry;

struct PrometheusOptions {
  int port = 9464;                 // 0: a free one
  std::string host = "127.0.0.1";  // where to listen: this machine alone; "0.0.0.0": everywhere
  // How old the values of the running epoch may be: reading them costs a step some time.
  std::chrono::milliseconds every = std::chrono::seconds(1);
};

// While fit() runs, Prometheus may ask http://HOST:PORT/metrics how it goes: the loss and the metrics (of the running epoch,
// over the replicas of the chief; of the whole job when the epoch has ended), learning rate, examples a second, steps, epoch.
// The chief listens, and nobody else. See MetricsEndpoint for what it does not do: passwords, encryption.
class Prometheus : public Callback {
 public:
  explicit Prometheus(const PrometheusOptions& options = {});

  // fit() throws kFailedPrecondition, on all workers, when the port is taken or the address is none of this machine's.
  void on_train_begin(Training& training) override;
  void on_epoch_begin(Training& training) override;
  void on_train_batch_end(Training& training) override;
  bool can_be_late() const override { return true; }
  void on_epoch_end(Training& training, Logs& logs) override;
  void on_train_end(Training& training) override;
  void on_train_failed(Training& training) override { on_train_end(training); }

  // Where it listens; 0: it does not.
  int port() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void show_values(const Logs& logs);
  void show_progress(Training& training);

  // Const after construction.
  PrometheusOptions options_;

  // Used only on the thread that called fit().
  std::shared_ptr<MetricsRegistry> registry_;
  std::shared_ptr<MetricsEndpoint> endpoint_;  // null: not the chief, or no fit() is under way
  Clock::time_point shown_at_;
  std::int64_t shown_examples_ = 0;  // of this epoch
};

}  // namespace lockstep
