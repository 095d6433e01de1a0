#include "lockstep/checkpoint/file_layer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr int kEverybody = 0777;

void sync_descriptor(int descriptor, const std::string& what, const std::string& path) {
  if (fsync(descriptor) != 0) throw_file_error(what, path, errno);
}

class RealFile : public WritableFile {
 public:
  RealFile(const std::string& path, std::uint64_t bytes) : path_(path) {
    descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kEverybody & 0666);
    if (descriptor_ < 0) throw_file_error("cannot be made", path, errno);
    // Only that it has no room is of interest: some file systems cannot reserve any.
    if (bytes > 0 && fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 && errno == ENOSPC) {
      close(descriptor_);
      unlink(path.c_str());
      throw_file_error(str("has no room for ", bytes, " bytes"), path, ENOSPC);
    }
  }
  ~RealFile() override { close(descriptor_); }
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;

  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPiece));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw_file_error("cannot be written", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      start_writing(static_cast<std::size_t>(written));
    }
  }

  void sync() override { sync_descriptor(descriptor_, "cannot be brought to the disk", path_); }

 private:
  static constexpr std::size_t kPiece = std::size_t{8} << 20;

  // The disk begins while the rest is still being copied.
  void start_writing(std::size_t written) {
    at_ += static_cast<off_t>(written);
    if (at_ - started_ < static_cast<off_t>(kPiece)) return;
    sync_file_range(descriptor_, started_, at_ - started_, SYNC_FILE_RANGE_WRITE);
    started_ = at_;
  }

  const std::string path_;
  int descriptor_ = -1;
  off_t at_ = 0;
  off_t started_ = 0;
};

class RealFiles : public FileLayer {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) override {
    return std::make_unique<RealFile>(path, bytes);
  }

  void make_folder(const std::string& path) override {
    if (mkdir(path.c_str(), kEverybody) == 0) return;
    const int error = errno;
    struct stat facts = {};
    if (error == EEXIST && stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return;
    if (error != ENOENT || folder_of(path) == path) throw_file_error("cannot be made", path, error);
    make_folder(folder_of(path));
    if (mkdir(path.c_str(), kEverybody) != 0 && errno != EEXIST) throw_file_error("cannot be made", path, errno);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) throw_file_error(str("cannot get the name '", to, "'"), from, errno);
  }

  void remove(const std::string& path) override {
    if (std::remove(path.c_str()) != 0) throw_file_error("cannot be removed", path, errno);
  }

  std::vector<std::string> list(const std::string& folder) override {
    DIR* const stream = opendir(folder.c_str());
    if (stream == nullptr) throw_file_error("cannot be listed", folder, errno);
    const OnExit close_it([&] { closedir(stream); });
    std::vector<std::string> names;
    while (const auto* entry = readdir(stream)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }

  void sync_folder(const std::string& path) override {
    const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) throw_file_error("cannot be opened", path, errno);
    const OnExit close_it([&] { close(descriptor); });
    sync_descriptor(descriptor, "cannot be brought to the disk", path);
  }
};

}  // namespace

FileLayer& real_files() {
  static RealFiles files;
  return files;
}

void throw_file_error(const std::string& what, const std::string& path, int error) {
  auto code = ErrorCode::kFailedPrecondition;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::kNotFound;
  if (error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG || error == EMFILE || error == ENFILE)
    code = ErrorCode::kUnavailable;
  throw Error(code, str("'", path, "' ", what, ": ", errno_text(error)));
}

bool is_folder(const std::string& path) {
  struct stat facts = {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

std::string folder_of(const std::string& path) {
  const auto end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const auto slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void write_file_safely(FileLayer& files, const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  std::uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  write_file_safely(files, path, bytes, [&](WritableFile& file) {
    for (const auto& piece : pieces) file.append(piece);
  });
}

void write_file_safely(FileLayer& files, const std::string& path, std::uint64_t bytes,
                       const std::function<void(WritableFile&)>& fill) {
  const auto beside = path + ".part";
  try {
    {
      const auto file = files.create(beside, bytes);
      fill(*file);
      file->sync();
    }
    files.rename(beside, path);
    files.sync_folder(folder_of(path));
  } catch (...) {
    remove_tree(files, beside);
    throw;
  }
}

void remove_tree(FileLayer& files, const std::string& path) noexcept {
  try {
    struct stat facts = {};
    if (lstat(path.c_str(), &facts) != 0) return;
    if (S_ISDIR(facts.st_mode))
      for (const auto& name : files.list(path)) remove_tree(files, str(path, "/", name));
    files.remove(path);
  } catch (const std::exception&) {  // whoever comes next tries again
  }
}

}  // namespace lockstep
