#pragma once

#include <optional>
#include <string>

#include "lockstep/data/io/example.h"
#include "lockstep/data/read_options.h"

namespace lockstep::data {

// One column that is wanted: float32 or int64 scalars, or byte strings.
struct CsvColumn {
  std::string name = "";
  FeatureKind kind = FeatureKind::kFloat;
  // In place of an empty field, which is damage without it, unless strings are wanted.
  std::optional<std::string> or_else = std::nullopt;
};

struct CsvOptions {
  // The first row of every file names its columns, and those that are wanted are found by name; else they are the first ones.
  bool has_header = true;
  char separator = ',';
  ReadOptions read = {};
};

}  // namespace lockstep::data
