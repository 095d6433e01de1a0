#pragma once

#include <optional>
#include <string>

#include "lockstep/train/logs.h"

namespace lockstep {

class Training;

// Whether less or more is better; kAuto: what the compiled metric of that name says (MetricRule::direction), or the library's
// own of that name. Where neither does: more for accuracies, AUC, precision, recall and the like, else less.
enum class MonitorMode { kAuto, kMin, kMax };

// Watches one value of the logs.
class Monitor {
 public:
  Monitor(std::string name, MonitorMode mode, double min_delta = 0);

  // For kAuto; when training begins, before anything is compared.
  void ask(const Training& training);

  const std::string& name() const noexcept { return name_; }
  // Better than `than` by more than min_delta. NaN is never better.
  bool is_better(double value, double than) const noexcept;
  // What everything is better than.
  double worst() const noexcept;
  // The value; where there is none a warning, once, in the name of `who`.
  std::optional<double> read(const Logs& logs, const char* who) const;

 private:
  std::string name_;
  MonitorMode mode_;
  bool is_max_;
  double min_delta_;
};

}  // namespace lockstep
