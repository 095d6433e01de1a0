#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// A new file, written from its beginning. Its destructor closes it; what sync() did not confirm may then be lost.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  // Returns when the bytes are on the disk.
  virtual void sync() = 0;
};

// The system calls by which a checkpoint gets to the disk; tests put one that fails or "crashes" in its place.
// Everything throws kNotFound for a path that is not there, kUnavailable when the disk is full or broken, and
// kFailedPrecondition for all else (rights, a read-only disk), with the path and what the system said.
class FileLayer {
 public:
  virtual ~FileLayer() = default;

  // A file that is there is replaced. `bytes` is what will come, so that a full disk is noticed at once; 0: not known.
  virtual std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) = 0;
  // With those above it; one that is there is fine.
  virtual void make_folder(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // A file, or a folder with nothing in it.
  virtual void remove(const std::string& path) = 0;
  // The names in a folder, sorted, without "." and "..".
  virtual std::vector<std::string> list(const std::string& folder) = 0;
  // Returns when the names in the folder are on the disk.
  virtual void sync_folder(const std::string& path) = 0;
};

// The system's own.
FileLayer& real_files();

// A file that is there whole or not at all, also after a crash: another name, write, sync, rename, sync of the folder. Removes
// the other name when it fails.
void write_file_safely(FileLayer& files, const std::string& path, std::span<const std::span<const std::byte>> pieces);
// The same of so many bytes that `fill` appends.
void write_file_safely(FileLayer& files, const std::string& path, std::uint64_t bytes,
                       const std::function<void(WritableFile&)>& fill);

// Everything under `path`, then itself; what cannot be removed is left.
void remove_tree(FileLayer& files, const std::string& path) noexcept;

bool is_folder(const std::string& path);

// "a/b/c" -> "a/b"; "c" -> ".".
std::string folder_of(const std::string& path);

// Throws the Error for a system call that failed: see FileLayer.
[[noreturn]] void throw_file_error(const std::string& what, const std::string& path, int error);

}  // namespace lockstep
