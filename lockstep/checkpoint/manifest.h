#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// What a program says about a checkpoint when it saves one.
struct CheckpointInfo {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::optional<double> learning_rate = std::nullopt;
  std::map<std::string, double> metrics = {};  // "val_loss"
};

// manifest.json of a checkpoint: what it is, and what its files must be. A value.
struct Manifest {
  static constexpr int kFormatVersion = 1;
  static constexpr const char* kFileName = "manifest.json";
  static constexpr const char* kStateFile = "state.safetensors";

  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;
  };
  struct Part {
    std::string name;
    std::string weights_file = "";  // has its tensors under their own names; "": they are in kStateFile as "part/name"
    std::map<std::string, std::string> texts = {};  // its small values
    std::vector<std::string> blobs = {};            // its other values: bytes in kStateFile, "part/name"
    std::vector<std::string> server_files = {};     // that parameter servers wrote: see checkpoint/server_files.h
  };

  std::int64_t number = 0;
  CheckpointInfo info = {};
  std::vector<int> replicas = {1};  // by worker
  std::string created = "";         // "2026-01-31T12:00:00Z"
  std::string writer = "";          // of Lockstep and LibTorch, the versions
  std::vector<File> files = {};
  std::vector<Part> parts = {};

  const Part* find_part(const std::string& name) const;
  const File* find_file(const std::string& name) const;
  // Whether a parameter server wrote it. Who restores it checks it, too: it may be larger than one task's memory.
  bool is_of_server(const std::string& file) const;

  // Indented JSON that ends with its own checksum. Throws kInvalidArgument for texts that are not UTF-8.
  std::string text() const;
  // Its inverse. Throws kDataLoss when it is damaged or not a manifest, kUnimplemented for one of a later version of the
  // format.
  static Manifest parse(const std::string& text, const std::string& what);
};

// Of now.
std::string utc_time();

// Whether these bytes are UTF-8, that is, can stand in JSON.
bool is_utf8(const std::string& bytes);

}  // namespace lockstep
