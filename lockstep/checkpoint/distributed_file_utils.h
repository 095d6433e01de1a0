#pragma once

#include <string>

#include "lockstep/fwd.h"

namespace lockstep {

// Where each worker of a job writes a file that all of them write and one is enough of: the first worker where the program
// says, the others into a folder of their own beside it, which is removed afterwards. (Checkpoint and save_weights need none of
// this: there the first worker alone writes.)

// Which worker of the job this is; 0 leads, and is what every strategy of one process has.
int worker_of(const Strategy& strategy);

// `dirpath` itself on worker 0; on another one `dirpath`/workertemp_<worker>, which is made. Errors as FileLayer's.
std::string write_dirpath(const std::string& dirpath, int worker);
std::string write_dirpath(const std::string& dirpath, const Strategy& strategy);

// The same for a file: its name in the write_dirpath of its folder.
std::string write_filepath(const std::string& filepath, int worker);
std::string write_filepath(const std::string& filepath, const Strategy& strategy);

// Removes the folder that write_dirpath made, with all that is in it. Never worker 0's. It may be given what it gave.
void remove_temp_dirpath(const std::string& dirpath, int worker);
void remove_temp_dirpath(const std::string& dirpath, const Strategy& strategy);
void remove_temp_dir_with_filepath(const std::string& filepath, int worker);
void remove_temp_dir_with_filepath(const std::string& filepath, const Strategy& strategy);

}  // namespace lockstep
