#include "lockstep/checkpoint/checkpoint_files.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/trace.h"
#include "lockstep/data/io/crc32c.h"

namespace lockstep {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kChunk = std::size_t{2} << 20;

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::uint64_t size_of(const CheckpointImage::File& file) {
  std::uint64_t bytes = file.header.size();
  for (const auto& piece : file.pieces) bytes += piece.size();
  return bytes;
}

// Small pieces are put together: a model has more biases than the system should be called for.
class Appender {
 public:
  explicit Appender(WritableFile& file) : file_(file) {}

  void append(Bytes bytes) {
    if (bytes.size() >= kLarge) {
      flush();
      return file_.append(bytes);
    }
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    if (buffer_.size() >= kLarge) flush();
  }
  void flush() {
    if (!buffer_.empty()) file_.append(buffer_);
    buffer_.clear();
  }

 private:
  static constexpr std::size_t kLarge = std::size_t{256} << 10;
  WritableFile& file_;
  std::vector<std::byte> buffer_;
};

bool is_there(const std::string& path) {
  struct stat facts = {};
  return stat(path.c_str(), &facts) == 0;
}

// The kernel maps a chunk's pages at once, where it can (Linux 5.14): one by one they cost more than the sum.
void touch(Bytes chunk) {
#ifdef MADV_POPULATE_READ
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(chunk.data()) & ~(kPage - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(chunk.data()) + chunk.size();
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#endif
}

// A copy that went wrong, for example: the checkpoint is not whole, and those before it may be.
[[noreturn]] void throw_folder(const std::string& path) {
  throw Error(ErrorCode::kDataLoss, str("'", path, "' is damaged: it is a folder, where a file must be"));
}

std::shared_ptr<data::MappedFile> map_file(const std::string& path) {
  if (is_folder(path)) throw_folder(path);
  try {
    return std::make_shared<data::MappedFile>(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kDataLoss, str("'", path, "' is missing"));
  }
}

void require_size(const std::string& path, std::uint64_t size, const Manifest::File& file) {
  if (size != file.bytes)
    throw Error(ErrorCode::kDataLoss, str("'", path, "' is damaged: it has ", size, " bytes of ", file.bytes));
}

void require_sum(const std::string& path, const data::MappedFile& mapped, const Manifest::File& file) {
  const Bytes all = std::as_bytes(std::span(mapped.data(), mapped.size()));
  if (crc32c_of(std::span(&all, 1), std::min(2, available_cores())) != file.crc32c)
    throw Error(ErrorCode::kDataLoss, str("'", path, "' is damaged: its checksum differs"));
}

}  // namespace

CheckpointFile write_checkpoint_file(FileLayer& files, const std::string& folder, const CheckpointImage::File& source) {
  std::uint32_t sum = 0;
  std::vector<Bytes> all{bytes_of(source.header)};
  all.insert(all.end(), source.pieces.begin(), source.pieces.end());
  std::jthread adder;
  const bool is_large = size_of(source) > 4 * kChunk;
  // Beside the writing, which waits for memory and the disk.
  if (is_large) adder = start_thread("lockstep:sum", [&](const std::stop_token&) { sum = crc32c_of(all, 1); });
  else sum = crc32c_of(all, 1);
  auto file = files.create(str(folder, "/", source.name), size_of(source));
  Appender appender(*file);
  for (const auto& piece : all) appender.append(piece);
  appender.flush();
  if (adder.joinable()) adder.join();  // before its sum is read
  return {{source.name, size_of(source), sum}, std::move(file)};
}

std::uint32_t crc32c_of(std::span<const Bytes> pieces, int threads) {
  std::vector<Bytes> chunks;
  for (auto piece : pieces)
    for (; !piece.empty(); piece = piece.subspan(std::min(kChunk, piece.size())))
      chunks.push_back(piece.first(std::min(kChunk, piece.size())));
  std::vector<std::uint32_t> sums(chunks.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&](const std::stop_token&) {
    for (std::size_t i = next++; i < chunks.size(); i = next++) {
      if (chunks[i].size() == kChunk) touch(chunks[i]);
      sums[i] = data::crc32c(chunks[i].data(), chunks[i].size());
    }
  };
  {
    std::vector<std::jthread> others;
    if (chunks.size() > 4)
      for (int thread = 1; thread < threads; ++thread) others.push_back(start_thread("lockstep:sum", work));
    work({});
  }
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) sum = data::joined_crc32c(sum, sums[i], chunks[i].size());
  return sum;
}

// Note [checkpoint commit]
// 1. The folder is made under another name, "ckpt-7.part".
// 2. Its files are written, by parameter servers too, then brought to the disk; their sizes and checksums are known now.
// 3. manifest.json, which has them, is written and brought to the disk; then the names in the folder are.
// 4. The folder gets its name: from here on the checkpoint exists. Then the names in the folder above are brought to the disk.
// Whatever stops this, a folder of that name is whole. One that lost power between 4's two steps has the new name or the old;
// folders whose name ends in ".part" are what is left of attempts, and are removed by the next who writes there.
void write_checkpoint(FileLayer& files, const std::string& folder, CheckpointImage& image) {
  const trace::Span span("write checkpoint", trace::Category::kCheckpoint, {"checkpoint", image.manifest.number});
  if (is_there(folder))
    throw Error(
        ErrorCode::kFailedPrecondition,
        str("'", folder, "' is there already; a checkpoint never replaces another: give it another name, or remove it"));
  const auto beside = folder + ".part";
  remove_tree(files, beside);
  try {
    files.make_folder(beside);
    image.manifest.files.clear();
    std::vector<std::unique_ptr<WritableFile>> written;
    for (const auto& source : image.files) {
      auto [facts, file] = write_checkpoint_file(files, beside, source);
      written.push_back(std::move(file));
      image.manifest.files.push_back(std::move(facts));
    }
    if (image.write_others != nullptr) image.write_others(beside, image.manifest);
    for (const auto& file : written) file->sync();
    written.clear();
    const auto text = image.manifest.text();
    {
      const auto manifest = files.create(str(beside, "/", Manifest::kFileName), text.size());
      manifest->append(bytes_of(text));
      manifest->sync();
    }
    files.sync_folder(beside);
    files.rename(beside, folder);
    files.sync_folder(folder_of(folder));
  } catch (...) {
    remove_tree(files, beside);
    throw;
  }
}

Manifest read_manifest(const std::string& folder) {
  const auto path = str(folder, "/", Manifest::kFileName);
  if (is_folder(path)) throw_folder(path);
  const data::MappedFile file(path);
  return Manifest::parse(std::string(file.bytes()), str("'", path, "'"));
}

OpenedCheckpoint open_checkpoint(const std::string& folder) {
  OpenedCheckpoint checkpoint{folder, read_manifest(folder), {}};
  const trace::Span span("read checkpoint", trace::Category::kCheckpoint, {"checkpoint", checkpoint.manifest.number});
  for (const auto& file : checkpoint.manifest.files) {
    const auto path = str(folder, "/", file.name);
    auto mapped = map_file(path);
    require_size(path, mapped->size(), file);
    checkpoint.files[file.name].bytes = std::move(mapped);
  }
  for (const auto& file : checkpoint.manifest.files)
    if (!checkpoint.manifest.is_of_server(file.name))
      require_sum(str(folder, "/", file.name), *checkpoint.files.at(file.name).bytes, file);
  for (auto& [name, file] : checkpoint.files)
    file.header = parse_safetensors(file.bytes->bytes(), str("'", folder, "/", name, "'"));
  return checkpoint;
}

OpenedCheckpoint::File open_checkpoint_file(const std::string& folder, const std::string& name) {
  const auto path = str(folder, "/", name);
  OpenedCheckpoint::File file{map_file(path), {}};
  file.header = parse_safetensors(file.bytes->bytes(), str("'", path, "'"));
  return file;
}

void check_checkpoint_file(const std::string& folder, const Manifest::File& file) {
  const auto path = str(folder, "/", file.name);
  const auto mapped = map_file(path);
  require_size(path, mapped->size(), file);
  require_sum(path, *mapped, file);
}

}  // namespace lockstep
