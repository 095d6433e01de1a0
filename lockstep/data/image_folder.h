#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

struct ImageFolderOptions {
  int channels = 3;  // 0: as in each file, 1: grey, 3: colour
  // Both, or neither: every image is stretched or shrunk to this size, bilinearly. batch() needs images of one size.
  std::optional<std::int64_t> height = std::nullopt;
  std::optional<std::int64_t> width = std::nullopt;
  // Files come in an order drawn from it, another one in every pass; without it class after class. Better than shuffle(), whose
  // buffer would hold decoded images.
  std::optional<std::uint64_t> shuffle_seed = std::nullopt;
  int parallel = kAutotune;  // images read at once, as in Dataset::map
  // Damaged images are passed over, and counted in one line of the log when the dataset is gone. Then its cardinality is
  // unknown.
  bool ignore_errors = false;
};

struct ImageFolder {
  Dataset dataset;
  std::vector<std::string> classes;  // a label is a position here
};

// The images of a folder with one sub-folder a class: elements of an image, uint8 [channels, height, width], and its label, an
// int64 scalar.
//
//   const auto [images, classes] = data::image_folder("flowers", {.height = 224, .width = 224, .shuffle_seed = 42});
//   for (const data::Element& batch : images.batch(32).prefetch()) train(batch[0], batch[1]);
//
// Files whose names end in .jpg, .jpeg or .png, in any case of letters, are looked for once, now, also in folders within a
// class's; names that begin with a dot are passed over. Classes and files are sorted. An image is read when its turn comes, as
// what its first bytes say, whatever its name.
// Throws kInvalidArgument for options that make no sense, kNotFound for a folder that is not there, has no sub-folders, or is a
// class without images, kFailedPrecondition for one that may not be read. While iterating: kDataLoss for a damaged image, with
// its name.
ImageFolder image_folder(const std::string& root, const ImageFolderOptions& options = {});

}  // namespace lockstep::data
