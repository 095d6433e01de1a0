#include "lockstep/train/callbacks/csv_logger.h"

#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/base/number.h"
#include "lockstep/checkpoint/directory_lock.h"
#include "lockstep/data/io/whole_file.h"

namespace lockstep {
namespace {

std::vector<std::string> fields_of(const std::string& line, char separator) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, separator);) fields.push_back(field);
  return fields;
}

}  // namespace

CSVLogger::CSVLogger(std::string file, const CSVLoggerOptions& options) : file_(std::move(file)), options_(options) {
  require(!file_.empty(), "CSVLogger: the file has no name");
}

void CSVLogger::on_train_begin(Training& training) {
  names_.clear();
  lines_.clear();
  if (!training.is_chief()) return;
  lock_ = std::make_shared<FileLock>(file_);
  std::ifstream in(file_);
  std::string line;
  if ((options_.append || training.epoch() > 0) && std::getline(in, line)) {
    names_ = fields_of(line, options_.separator);
    if (!names_.empty()) names_.erase(names_.begin());
    while (std::getline(in, line)) {
      const auto epoch = whole_number<int>(line.substr(0, line.find(options_.separator)));
      if (epoch && (options_.append || *epoch < training.epoch())) lines_.emplace_back(*epoch, line);
    }
  }
  write();
}

void CSVLogger::on_epoch_end(Training& training, Logs& logs) {
  if (!training.is_chief()) return;
  if (names_.empty()) {
    std::set<std::string> names;
    for (const auto& [name, value] : logs) names.insert(name);
    if (training.has_validation())  // of which the first epoch may have nothing
      for (const auto& [name, value] : training.logs()) names.insert("val_" + name);
    names_.assign(names.begin(), names.end());
  }
  auto line = std::to_string(training.epoch());
  for (const auto& name : names_) {
    const auto value = logs.find(name);
    line += options_.separator + (value ? exact_text(*value) : "");
  }
  lines_.emplace_back(training.epoch(), line);
  write();
}

void CSVLogger::write() const {
  std::string text;
  if (!names_.empty()) {
    text = "epoch";
    for (const auto& name : names_) text += options_.separator + name;
    text += '\n';
  }
  for (const auto& [epoch, line] : lines_) text += line + '\n';
  data::write_whole_file(file_, {text});
}

}  // namespace lockstep
