#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lockstep {

// A number that only grows: steps, examples. Thread-safe, without locks.
class Counter {
 public:
  // Less than 0 is ignored.
  void add(double amount = 1) noexcept {
    if (amount > 0) value_.fetch_add(amount, std::memory_order_relaxed);
  }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// A number that goes up and down: the loss, the learning rate. Thread-safe, without locks.
class Gauge {
 public:
  void set(double value) noexcept { value_.store(value, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Counters and gauges by name and labels, for a MetricsEndpoint. Thread-safe.
class MetricsRegistry {
 public:
  using Labels = std::map<std::string, std::string>;

  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  // The same one for the same name and labels; it lives as long as the registry. `help` is the first call's. Throws
  // kInvalidArgument for a name or label that Prometheus does not allow, and for a name that is one of the other kind.
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});

  // Called at the beginning of every text(), on its thread: to set what is not counted all the time. It must not wait for
  // anything, and not throw.
  void set_refresh(std::function<void()> refresh);

  // Prometheus' text format, version 0.0.4.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Serves the registry's numbers to Prometheus, `GET /metrics`, while it lives. There is none unless one is made.
//
// One thread, "lockstep:metrics". Clients that are slow, broken or too many lose their connection and disturb neither
// training nor each other. No passwords, no encryption: beyond this machine, choose an address that only friends reach.
class MetricsEndpoint {
 public:
  // `address`: "9464" (a port of this machine alone, 127.0.0.1), "0.0.0.0:9464", "[::1]:9464"; port 0 takes a free one.
  // `registry` is kept. Throws kInvalidArgument for another text, kFailedPrecondition when the port is taken or the address
  // is none of this machine's.
  MetricsEndpoint(const std::string& address, std::shared_ptr<const MetricsRegistry> registry);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
