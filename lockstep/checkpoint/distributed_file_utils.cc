#include "lockstep/checkpoint/distributed_file_utils.h"

#include <ATen/ATen.h>

#include "lockstep/base/str.h"
#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {
namespace {

// The folder of a worker that does not lead.
std::string temp_folder(const std::string& dirpath, int worker) {
  const auto name = lockstep::str("workertemp_", worker);
  return dirpath.ends_with("/" + name) || dirpath == name ? dirpath : lockstep::str(dirpath, "/", name);
}

}  // namespace

int worker_of(const Strategy& strategy) {
  const auto* const workers = strategy.replicas().workers();
  return workers == nullptr ? 0 : workers->layout().rank;
}

std::string write_dirpath(const std::string& dirpath, int worker) {
  if (worker == 0) return dirpath;
  auto folder = temp_folder(dirpath, worker);
  real_files().make_folder(folder);
  return folder;
}

std::string write_filepath(const std::string& filepath, int worker) {
  if (worker == 0) return filepath;
  const auto name = filepath.substr(filepath.rfind('/') + 1);  // all of it without a '/'
  return lockstep::str(write_dirpath(folder_of(filepath), worker), "/", name);
}

void remove_temp_dirpath(const std::string& dirpath, int worker) {
  if (worker != 0) remove_tree(real_files(), temp_folder(dirpath, worker));
}

void remove_temp_dir_with_filepath(const std::string& filepath, int worker) {
  remove_temp_dirpath(folder_of(filepath), worker);
}

std::string write_dirpath(const std::string& dirpath, const Strategy& strategy) {
  return write_dirpath(dirpath, worker_of(strategy));
}

std::string write_filepath(const std::string& filepath, const Strategy& strategy) {
  return write_filepath(filepath, worker_of(strategy));
}

void remove_temp_dirpath(const std::string& dirpath, const Strategy& strategy) {
  remove_temp_dirpath(dirpath, worker_of(strategy));
}

void remove_temp_dir_with_filepath(const std::string& filepath, const Strategy& strategy) {
  remove_temp_dir_with_filepath(filepath, worker_of(strategy));
}

}  // namespace lockstep
