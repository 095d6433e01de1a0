#pragma once

namespace lockstep {

// With which a program ends that was told to go (SIGTERM) and has saved its training: start it again. `lockstep run` knows it.
inline constexpr int kPreemptedExitCode = 42;

}  // namespace lockstep
