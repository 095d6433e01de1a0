#include "lockstep/train/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kTerminalPeriod(100);
constexpr std::chrono::seconds kPlainPeriod(5);
constexpr std::int64_t kWidth = 20;

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  std::ostringstream out;
  out << whole / 60 << ":" << std::setw(2) << std::setfill('0') << whole % 60;
  return out.str();
}

}  // namespace

ProgressBar::ProgressBar(std::string title, std::int64_t total, std::FILE* out)
    : title_(std::move(title)),
      total_(total),
      out_(out),
      is_terminal_(isatty(fileno(out)) == 1),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_) {}

double ProgressBar::seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

double ProgressBar::examples_per_second() const { return static_cast<double>(examples_) / std::max(updated_at_, 1e-9); }

void ProgressBar::update(std::int64_t steps, std::int64_t examples, const Values& values) {
  steps_ = steps;
  examples_ = examples;
  updated_at_ = seconds();
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::steady_clock::duration period = is_terminal_ ? kTerminalPeriod : kPlainPeriod;
  if (now - last_draw_ < period) return;
  last_draw_ = now;
  draw(values);
}

void ProgressBar::finish(const Values& values) {
  draw(values);
  if (is_terminal_) std::fputs("\n", out_);
  std::fflush(out_);
}

std::string ProgressBar::line(const Values& values) const {
  std::ostringstream out;
  out << title_ << "  " << steps_;
  if (total_ > 0) {
    const auto done = std::min(kWidth, steps_ * kWidth / total_);
    out << "/" << total_ << " [" << std::string(static_cast<std::size_t>(done), '=') << (done < kWidth ? ">" : "")
        << std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, kWidth - done - 1)), '.') << "]";
    if (steps_ > 0 && steps_ < total_)
      out << " " << clock_text(seconds() * static_cast<double>(total_ - steps_) / static_cast<double>(steps_)) << " left";
    else out << " " << clock_text(seconds());
  }
  out << "  " << static_cast<std::int64_t>(examples_per_second()) << " examples/s";
  out << std::fixed << std::setprecision(4);
  for (const auto& [name, value] : values) out << "  " << name << ": " << value;
  return out.str();
}

void ProgressBar::draw(const Values& values) {
  auto text = line(values);
  if (is_terminal_) {
    const auto width = text.size();
    if (width < drawn_width_) text.append(drawn_width_ - width, ' ');
    drawn_width_ = width;
    text = "\r" + text;
  } else {
    text += "\n";
  }
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

}  // namespace lockstep
