#pragma once

namespace lockstep {

// Tells glibc to keep the memory of freed tensors for later ones, for the whole process, once. Without it every step
// gives its pages back and faults them in again. Tensors are then taken from malloc (see allocate_tensors_with_malloc).
// LOCKSTEP_MALLOC=system in the environment keeps both from being done.
void keep_freed_memory();

}  // namespace lockstep
