#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Shows how far a loop is: on a terminal one line that is rewritten,
//   Epoch 1/3  118/469 [=====>..............] 0:04 left  13200 examples/s  loss: 0.4213
// elsewhere a plain line every few seconds. Not thread-safe: update it where the loop is.
class ProgressBar {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  // `total`: steps, 0 when it is not known. `out` is not owned.
  ProgressBar(std::string title, std::int64_t total, std::FILE* out = stdout);

  // `steps` and `examples` done so far, and what else to show.
  void update(std::int64_t steps, std::int64_t examples, const Values& values = {});

  // Ends the line.
  void finish(const Values& values = {});

  double seconds() const;
  double examples_per_second() const;

 private:
  std::string line(const Values& values) const;
  void draw(const Values& values);

  // Const after construction.
  const std::string title_;
  const std::int64_t total_;
  std::FILE* const out_;
  const bool is_terminal_;
  const std::chrono::steady_clock::time_point start_;

  // Used only by the loop's thread.
  std::chrono::steady_clock::time_point last_draw_;
  std::int64_t steps_ = 0;
  std::int64_t examples_ = 0;
  double updated_at_ = 0;  // seconds from the start: what comes after the last update() is not the loop's time
  std::size_t drawn_width_ = 0;
};

}  // namespace lockstep
