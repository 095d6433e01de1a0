#pragma once

namespace lockstep {

// Warns once when LibTorch's matrix products run on Debian's reference BLAS, which is 17 times slower a core than
// OpenBLAS.
void warn_about_slow_blas();

// True when the loaded BLAS is the reference implementation.
bool has_slow_blas();

}  // namespace lockstep
