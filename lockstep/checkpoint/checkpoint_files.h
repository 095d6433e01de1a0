#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/io/mapped_file.h"

// A checkpoint as files, without LibTorch.

namespace lockstep {

// All that a checkpoint's folder will have. `pieces` belong to somebody else.
struct CheckpointImage {
  struct File {
    std::string name;
    std::string header;
    std::vector<std::span<const std::byte>> pieces;
  };
  Manifest manifest;  // `files` is filled when it is written
  std::vector<File> files;
  // Null, or what has others write files into the folder, which is there, and adds these to the manifest. Returns when they are
  // on the disk.
  std::function<void(const std::string& folder, Manifest& manifest)> write_others = nullptr;
};

// One file of a checkpoint that is being made, in `folder`. It is not on the disk before sync().
struct CheckpointFile {
  Manifest::File facts;
  std::unique_ptr<WritableFile> file;
};
CheckpointFile write_checkpoint_file(FileLayer& files, const std::string& folder, const CheckpointImage::File& source);

// Makes the folder `folder`, which must not be there (kFailedPrecondition), at once: see Note [checkpoint commit]. When it
// fails, nothing of it is left. Errors as FileLayer's. One thread beside the caller's is used.
void write_checkpoint(FileLayer& files, const std::string& folder, CheckpointImage& image);

// Throws kNotFound when there is no such checkpoint; as Manifest::parse.
Manifest read_manifest(const std::string& folder);

// A checkpoint whose every byte was found right, but for what parameter servers wrote: of that only the sizes.
struct OpenedCheckpoint {
  struct File {
    std::shared_ptr<data::MappedFile> bytes;
    SafetensorsHeader header;
  };
  std::string path;
  Manifest manifest;
  std::map<std::string, File> files;
};

// Reads and checks all of it, on two threads where it is large. Throws kNotFound, and kDataLoss that names the file.
OpenedCheckpoint open_checkpoint(const std::string& folder);

// One of its files, not checked. Throws kDataLoss when it is missing.
OpenedCheckpoint::File open_checkpoint_file(const std::string& folder, const std::string& name);
// Reads it all. Throws kDataLoss.
void check_checkpoint_file(const std::string& folder, const Manifest::File& file);

// The checksum of pieces that follow each other, on `threads` threads.
std::uint32_t crc32c_of(std::span<const std::span<const std::byte>> pieces, int threads);

}  // namespace lockstep
