#pragma once

// Blocks of training loops and their input, which the pages of Strategy and of its first version have in common.

namespace seeds {

void train_epochs();
void read_record_files();
void read_record_files_with_a_signature();
void rows_of_an_array();
void one_process_of_a_cluster();

}  // namespace seeds
