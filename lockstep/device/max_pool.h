#pragma once

namespace lockstep {

// LibTorch's maximum pooling on the CPU compares one number after the other: in a small convolutional network that is half of a
// step. From this call on the process pools several windows at a time, with the same values and places, bit for bit: float and
// double, contiguous images, steps of 1 and 2, no padding, no dilation. Everything else stays LibTorch's, all of it with
// LOCKSTEP_KERNELS=libtorch in the environment. Thread-safe.
void use_own_max_pool();

}  // namespace lockstep
