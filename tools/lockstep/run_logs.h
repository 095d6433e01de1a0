#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/observe/step_stats.h"

// What training has left below a folder: TensorBoard event files (ours, Keras', PyTorch's) and CSV files of a CSVLogger.
//
// A run is a folder with such files; its subfolders train/ and validation/ (also val/, eval/, test/) belong to it. So do tags
// that begin with val_.

namespace lockstep::tool {

struct Point {
  double x = 0;  // step or epoch
  double y = 0;
};

struct Curve {
  std::string run = "";
  bool is_validation = false;
  std::vector<Point> points = {};  // by x, each once; all finite
  std::int64_t not_finite = 0;     // left out
};

struct Chart {
  std::string tag = "";
  std::string title = "";
  std::string x_name = "step";
  std::vector<Curve> curves = {};  // by run, training first
};

// Of one worker, over all epochs.
struct WorkerTime {
  StepTimes times = {};
  double steps = 0;
};

struct Run {
  std::string name = "";
  double first_wall_time = 0;  // seconds since 1970; 0: unknown
  double last_wall_time = 0;
  std::map<int, WorkerTime> workers = {};    // by rank
  std::vector<std::string> stragglers = {};  // lines of the last epoch that has any
};

struct RunLogs {
  std::vector<Chart> charts = {};  // losses first
  std::vector<Run> runs = {};      // by name
  int event_files = 0;
  int csv_files = 0;
  std::vector<std::string> cut_files = {};  // whose end is missing: being written, or the writer was killed
};

// Throws kNotFound when there is no such folder, or nothing to be read in it.
RunLogs read_run_logs(const std::string& folder);

}  // namespace lockstep::tool
