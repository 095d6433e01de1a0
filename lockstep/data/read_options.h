#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "lockstep/data/io/compression.h"

namespace lockstep::data {

// For datasets that read files.
struct ReadOptions {
  Compression compression = Compression::kNone;
  // What is damaged is passed over, as far as the format allows: a record whose length is right, else the rest of the file. The
  // log says at the end of a pass how much that was, and `skipped` grows with every damaged place.
  bool ignore_errors = false;
  std::shared_ptr<std::atomic<std::int64_t>> skipped = nullptr;
};

}  // namespace lockstep::data
