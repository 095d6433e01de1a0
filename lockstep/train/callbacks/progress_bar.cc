#include "lockstep/train/callbacks/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/observe/step_stats.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kBarPeriod(100);
constexpr std::chrono::seconds kLinePeriod(10);
constexpr std::int64_t kWidth = 20;

std::string clock_text(double seconds) {
  const auto whole = std::llround(seconds);
  char text[32];
  if (whole < 60) std::snprintf(text, sizeof text, "%llds", whole);
  else if (whole < 3600) std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  else std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

std::string step_text(double seconds) {
  char text[32];
  if (seconds >= 1) std::snprintf(text, sizeof text, "%.0fs/step", seconds);
  else if (seconds >= 1e-3) std::snprintf(text, sizeof text, "%.0fms/step", seconds * 1e3);
  else std::snprintf(text, sizeof text, "%.0fus/step", seconds * 1e6);
  return text;
}

std::string bar_text(std::int64_t done, std::int64_t total) {
  const auto full = total > 0 ? std::clamp<std::int64_t>(done * kWidth / total, 0, kWidth) : kWidth;
  std::string text;
  for (std::int64_t i = 0; i < full; ++i) text += "━";
  return text + std::string(static_cast<std::size_t>(kWidth - full), ' ');
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Columns on a terminal: UTF-8's continuation bytes take none.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

ProgressBar::ProgressBar(Verbose verbose, std::FILE* out) : verbose_(verbose), out_(out) {
  if (verbose_ == Verbose::kAuto) verbose_ = isatty(fileno(out)) == 1 ? Verbose::kBar : Verbose::kLine;
}

void ProgressBar::begin(const std::string& title) {
  title_ = title;
  start_ = drawn_at_ = Clock::now();
  seconds_a_step_ = 0;
  drawn_columns_ = 0;
}

void ProgressBar::on_epoch_begin(Training& training) {
  if (!training.is_chief() || verbose_ == Verbose::kSilent) return;
  begin(str("Epoch ", training.epoch() + 1, "/", training.epochs()));
  first_step_ = training.step();
  is_in_epoch_ = true;
  if (verbose_ == Verbose::kBar) std::fputs((title_ + "\n").c_str(), out_);
}

void ProgressBar::on_test_begin(Training& training) {
  if (is_in_epoch_ || !training.is_chief() || verbose_ == Verbose::kSilent) return;
  begin("");
  first_step_ = 0;
}

void ProgressBar::on_train_batch_end(Training& training) { update(training); }
void ProgressBar::on_test_batch_end(Training& training) {
  if (!is_in_epoch_) update(training);
}
void ProgressBar::on_epoch_end(Training& training, Logs& logs) {
  finish(training, logs);
  const auto* stats = training.step_stats();
  if (stats != nullptr && stats->workers() > 1 && stats->steps() > 0 && training.is_chief() && verbose_ != Verbose::kSilent)
    std::fputs(stats->summary().c_str(), out_);
  is_in_epoch_ = false;
}
void ProgressBar::on_test_end(Training& training, const Logs& logs) {
  if (!is_in_epoch_) finish(training, logs);
}

void ProgressBar::on_train_end(Training&) {
  if (std::exchange(is_line_open_, false)) std::fputs("\n", out_);
}

void ProgressBar::update(Training& training) {
  if (!training.is_chief() || verbose_ == Verbose::kSilent) return;
  const auto now = Clock::now();
  const Clock::duration period = verbose_ == Verbose::kBar ? Clock::duration(kBarPeriod) : Clock::duration(kLinePeriod);
  const auto steps = std::max<std::int64_t>(1, training.step() - first_step_);
  seconds_a_step_ = std::chrono::duration<double>(now - start_).count() / static_cast<double>(steps);
  if (now - drawn_at_ < period) return;
  drawn_at_ = now;
  draw(training, training.logs(), false);
}

void ProgressBar::finish(Training& training, const Logs& logs) {
  if (training.is_chief() && verbose_ != Verbose::kSilent) draw(training, logs, true);
}

std::string ProgressBar::line(Training& training, const Logs& logs, bool is_last) const {
  const bool is_bar = verbose_ == Verbose::kBar;
  const auto total = is_last ? training.step() : training.steps();
  const auto counted = total > 0 ? str(training.step(), "/", total) : str(training.step(), "/Unknown");
  auto time = clock_text(seconds_since(start_));
  if (!is_last && total > 0) time = clock_text(seconds_a_step_ * static_cast<double>(total - training.step())) + " left";
  const char* gap = is_bar ? " " : " - ";
  auto text = is_bar ? counted + gap + bar_text(training.step(), total) : (title_.empty() ? counted : title_ + gap + counted);
  text += gap + time + gap + step_text(seconds_a_step_);
  if (!logs.empty()) text += " - " + show(logs);
  return text;
}

void ProgressBar::draw(Training& training, const Logs& logs, bool is_last) {
  auto text = line(training, logs, is_last);
  if (verbose_ == Verbose::kBar) {
    const auto columns = columns_of(text);
    if (columns < drawn_columns_) text.append(drawn_columns_ - columns, ' ');
    drawn_columns_ = columns;
    text = "\r" + text + (is_last ? "\n" : "");
    is_line_open_ = !is_last;
  } else {
    text += "\n";
  }
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

}  // namespace lockstep
