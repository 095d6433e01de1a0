#pragma once

#include "lockstep/fwd.h"

namespace lockstep {

// An uninitialised tensor like `value` for a collective's result. Large ones are taken again from the calling thread's
// last results when nobody holds those any more: fresh memory of that size costs a page fault for every 4 KB, which is
// several times the work of the sum itself. Keeps at most two tensors of 4 MB or more and eight smaller ones a thread.
at::Tensor empty_result_like(const at::Tensor& value);

}  // namespace lockstep
