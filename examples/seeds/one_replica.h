#pragma once

// Blocks that the pages of Strategy and of its first version have in common, with one replica, as on the machine that the pages
// were written on. run() gives a PerReplica here too, where the pages show the tensor alone.

namespace seeds {

void one_variable();
void run_one_with_a_constant();
void run_one_with_distributed_values();

}  // namespace seeds
