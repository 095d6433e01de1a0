#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/node.h"
#include "lockstep/data/read_options.h"

// What sources share that read one file after the other.

namespace lockstep::data::internal {

// One file, read from its beginning to its end.
class FileReader {
 public:
  virtual ~FileReader() = default;
  // False at the end. Throws kDataLoss where the file is damaged.
  virtual bool next(Element& out) = 0;
  // The same, of a format whose elements are one byte string each.
  virtual bool next(std::string&) { return false; }
  // After kDataLoss: goes on behind it. False: that cannot be done.
  virtual bool skip_damage() = 0;
  virtual std::uint64_t position() const = 0;
  virtual void seek(std::uint64_t position) = 0;
};

using OpenFile = std::function<std::unique_ptr<FileReader>(const std::string& path)>;

struct FileFormat {
  std::string name = "";  // begins the node's description
  OpenFile open = nullptr;
  ReadOptions options = {};
  bool has_texts = false;  // elements are one byte string each
};

NodePtr make_files(std::vector<std::string> files, FileFormat format);

}  // namespace lockstep::data::internal
