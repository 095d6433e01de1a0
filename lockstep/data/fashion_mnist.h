#pragma once

#include <string>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Fashion-MNIST from Debian's package dataset-fashion-mnist: `split` is "train" (60,000 elements) or "test" (10,000).
// An element is an image, float32 [1, 28, 28] in [0, 1], and its label, an int64 scalar in [0, 10).
//
// Read once per process and split, 47 MB for train: kept as bytes, made floats when batched. The environment variable
// LOCKSTEP_FASHION_MNIST names another folder with the four files. Throws kInvalidArgument for another split, kNotFound
// when the files are missing, kDataLoss when they are damaged.
Dataset fashion_mnist(const std::string& split);

}  // namespace lockstep::data
