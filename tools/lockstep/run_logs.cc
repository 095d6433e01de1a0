#include "tools/lockstep/run_logs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/csv.h"
#include "lockstep/observe/event_reader.h"

namespace lockstep::tool {
namespace {

namespace fs = std::filesystem;

// Which of several values of one step counts: the one that was written last, after a restart.
struct Written {
  double value = 0;
  double wall_time = 0;
};

struct CurveKey {
  std::string tag;
  std::string run;
  bool is_validation = false;
  auto operator<=>(const CurveKey&) const = default;
};

bool take_prefix(std::string& text, const std::string& prefix) {
  if (!text.starts_with(prefix)) return false;
  text.erase(0, prefix.size());
  return true;
}

class Collector {
 public:
  explicit Collector(fs::path root) : root_(std::move(root)) {}

  void read(const fs::path& file) {
    const auto name = file.filename().string();
    if (is_event_file(name)) read_event_file(file);
    else if (file.extension() == ".csv") csv_files_.push_back(file);
  }

  // CSV files repeat what events say: only what is not there is taken from them.
  RunLogs finish() {
    for (const auto& file : csv_files_) read_csv(file);
    for (auto& [key, points] : curves_) add_curve(key, points);
    const auto order = [](const Chart& chart) {
      const bool is_loss = chart.title == "loss";
      const bool has_loss = chart.title.find("loss") != std::string::npos;
      return std::tuple(is_loss ? 0 : has_loss ? 1 : 2, chart.x_name != "epoch", chart.tag);
    };
    std::ranges::sort(logs_.charts, {}, order);
    for (auto& [name, run] : runs_) {
      add_breakdown(run);
      logs_.runs.push_back(std::move(run));
    }
    return std::move(logs_);
  }

 private:
  // The run that a file belongs to, and whether it is of validation.
  std::pair<std::string, bool> place_of(const fs::path& file) const {
    static const std::set<std::string> kValidation = {"validation", "val", "eval", "test"};
    auto folder = fs::relative(file.parent_path(), root_);
    const auto last = folder.filename().string();
    const bool is_validation = kValidation.contains(last);
    if (is_validation || last == "train") folder = folder.parent_path();
    const auto name = folder.string();
    if (!name.empty() && name != ".") return {name, is_validation};
    const auto own = fs::absolute(root_).lexically_normal();
    return {(own.has_filename() ? own : own.parent_path()).filename().string(), is_validation};
  }

  Run& run_named(const std::string& name) {
    auto& run = runs_[name];
    run.name = name;
    return run;
  }

  void read_event_file(const fs::path& file) {
    const auto [name, is_validation] = place_of(file);
    Run& run = run_named(name);
    ++logs_.event_files;
    const bool is_whole = read_events(file.string(), [&, &name = name, is_validation = is_validation](const Event& event) {
      if (event.wall_time > 0 && !event.values.empty()) {
        run.first_wall_time = run.first_wall_time > 0 ? std::min(run.first_wall_time, event.wall_time) : event.wall_time;
        run.last_wall_time = std::max(run.last_wall_time, event.wall_time);
      }
      for (const auto& value : event.values) {
        if (value.text && value.tag == kStragglersTag) stragglers_[name][event.step] = *value.text;
        if (value.scalar)
          add({value.tag, name, is_validation}, static_cast<double>(event.step), {*value.scalar, event.wall_time});
      }
    });
    if (!is_whole) logs_.cut_files.push_back(file.string());
  }

  void add(CurveKey key, double x, const Written& written) {
    auto& tag = key.tag;
    if (tag.starts_with(kStepBreakdown)) key.is_validation = false;
    else if (take_prefix(tag, "val_")) key.is_validation = true;
    else if (tag.starts_with("epoch_val_")) {
      tag.erase(6, 4);
      key.is_validation = true;
    }
    auto [found, is_new] = curves_[key].try_emplace(x, written);
    if (!is_new && found->second.wall_time <= written.wall_time) found->second = written;
  }

  // A table with a column "epoch" or "step" whose others are numbers; anything else is no log.
  void read_csv(const fs::path& file) try {
    data::CsvReader reader(file.string(), ',');
    std::vector<std::string> names;
    if (!reader.next(names)) return;
    const auto x_column =
        std::ranges::find_if(names, [](const std::string& name) { return name == "epoch" || name == "step"; });
    if (x_column == names.end()) return;
    const auto x_at = static_cast<std::size_t>(x_column - names.begin());
    const auto [run, is_validation] = place_of(file);
    std::map<CurveKey, std::map<double, Written>> found;
    for (std::vector<std::string> fields; reader.next(fields);)
      for (std::size_t k = 0; k < std::min(fields.size(), names.size()); ++k) {
        char* end = nullptr;
        const double value = std::strtod(fields[k].c_str(), &end);
        if (k == x_at || fields.size() <= x_at || fields[k].empty() || *end != '\0') continue;
        auto name = names[k];
        const bool is_val = take_prefix(name, "val_") || is_validation;
        found[{names[x_at] == "epoch" ? "epoch_" + name : name, run, is_val}][std::strtod(fields[x_at].c_str(), nullptr)] = {
            value, 0};
      }
    if (found.empty()) return;
    ++logs_.csv_files;
    run_named(run);
    for (auto& [key, points] : found) curves_.try_emplace(key, std::move(points));
  } catch (const Error& error) {
    log_warning(str(file.string(), " is passed over: ", error.message()));
  }

  void add_curve(const CurveKey& key, const std::map<double, Written>& points) {
    if (key.tag.starts_with(kStepBreakdown)) return add_time(key, points);
    auto chart = std::ranges::find(logs_.charts, key.tag, &Chart::tag);
    if (chart == logs_.charts.end()) {
      auto title = key.tag;
      const bool is_by_epoch = take_prefix(title, "epoch_");
      chart = logs_.charts.insert(chart, {key.tag, title, is_by_epoch ? "epoch" : "step"});
    }
    Curve curve{key.run, key.is_validation};
    for (const auto& [x, written] : points) {
      if (std::isfinite(written.value)) curve.points.push_back({x, written.value});
      else ++curve.not_finite;
    }
    chart->curves.push_back(std::move(curve));
  }

  // "step_breakdown/worker2/input".
  void add_time(const CurveKey& key, const std::map<double, Written>& points) {
    auto rest = key.tag.substr(sizeof kStepBreakdown - 1);
    const auto slash = rest.find('/');
    if (!take_prefix(rest, "worker") || slash == std::string::npos) return;
    const auto worker = whole_number<int>(rest.substr(0, rest.find('/')));
    if (!worker) return;
    const auto what = rest.substr(rest.find('/') + 1);
    auto& time = run_named(key.run).workers[*worker];
    double sum = 0;
    for (const auto& [epoch, written] : points) sum += std::isfinite(written.value) ? written.value : 0;
    if (what == "steps") time.steps = sum;
    for (std::size_t p = 0; p < kStepPhases; ++p)
      if (what == name_of(static_cast<StepPhase>(p))) time.times.seconds[p] = sum;
  }

  void add_breakdown(Run& run) {
    const auto& by_epoch = stragglers_[run.name];
    if (by_epoch.empty()) return;
    std::istringstream lines(by_epoch.rbegin()->second);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) run.stragglers.push_back(line);
  }

  const fs::path root_;
  RunLogs logs_;
  std::map<std::string, Run> runs_;
  std::map<CurveKey, std::map<double, Written>> curves_;
  std::map<std::string, std::map<std::int64_t, std::string>> stragglers_;  // by run and epoch
  std::vector<fs::path> csv_files_;
};

}  // namespace

RunLogs read_run_logs(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(ErrorCode::kNotFound, str("there is no folder '", folder, "'; give the one that the logs were written to"));
  std::vector<fs::path> files;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  for (; it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (error) break;
    if (it->is_regular_file(error)) files.push_back(it->path());
  }
  std::ranges::sort(files);
  Collector collector(folder);
  for (const auto& file : files) collector.read(file);
  auto logs = collector.finish();
  if (logs.event_files + logs.csv_files == 0)
    throw Error(ErrorCode::kNotFound, str("there are no event files (*.tfevents.*) and no CSV logs below '", folder,
                                          "'; train with ls::TensorBoard(folder) or write them with ls::EventWriter"));
  return logs;
}

}  // namespace lockstep::tool
