#include "lockstep/data/io/npz.h"

#include <minizip/unzip.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/mapped_file.h"

namespace lockstep::data::internal {
namespace {

constexpr std::string_view kEnding = ".npy";
constexpr std::size_t kFirstBytes = 12;  // tell how long a header is
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;
constexpr uLong kIsEncrypted = 1;
constexpr uLong kStored = 0;

// Memory that grows without a second copy where the system can do that.
class GrowingMemory {
 public:
  GrowingMemory() = default;
  ~GrowingMemory() { std::free(data_); }
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  char* grow_to(std::size_t bytes) {
    auto* const larger = std::realloc(data_, bytes);
    if (larger == nullptr) throw std::bad_alloc();
    return data_ = static_cast<char*>(larger);
  }
  std::shared_ptr<char> take() { return {std::exchange(data_, nullptr), std::free}; }

 private:
  char* data_ = nullptr;
};

class Archive {
 public:
  explicit Archive(const std::string& path) : path_(path) {
    const MappedFile file(path);  // minizip does not say why it cannot open a file
    zip_ = unzOpen64(path.c_str());
    if (zip_ == nullptr) fail(str("the file '", path_, "'"), "it is no zip archive, is cut off, or holds nothing");
  }
  ~Archive() { unzClose(zip_); }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  std::vector<NpzArray> read_all() {
    unz_global_info64 facts = {};
    std::vector<NpzArray> arrays;
    check(unzGetGlobalInfo64(zip_, &facts), str("the file '", path_, "'"));
    for (ZPOS64_T i = 0; i < facts.number_entry; ++i) {
      check(i == 0 ? unzGoToFirstFile(zip_) : unzGoToNextFile(zip_), str("entry ", i, " of '", path_, "'"));
      arrays.push_back(read_entry());
    }
    return arrays;
  }

 private:
  NpzArray read_entry() {
    unz_file_info64 facts = {};
    const auto directory = str("the directory of '", path_, "'");
    check(unzGetCurrentFileInfo64(zip_, &facts, nullptr, 0, nullptr, 0, nullptr, 0), directory);
    std::string name(facts.size_filename, '\0');
    check(unzGetCurrentFileInfo64(zip_, nullptr, name.data(), facts.size_filename, nullptr, 0, nullptr, 0), directory);
    const auto where = str("'", name, "' of '", path_, "'");
    if (!name.ends_with(kEnding)) fail(where, "it is no array: its name does not end in .npy");
    if ((facts.flag & kIsEncrypted) != 0) throw Error(ErrorCode::kUnimplemented, str(where, " is encrypted"));
    if (facts.compression_method != kStored && facts.compression_method != Z_DEFLATED)
      throw Error(ErrorCode::kUnimplemented, str(where, " is compressed by method ", facts.compression_method,
                                                 "; only stored (0) and deflated (8) arrays can be read"));
    check(unzOpenCurrentFile(zip_), where);
    NpzArray array{name.substr(0, name.size() - kEnding.size()), read_header(where), nullptr};
    check_npy_size(array.header, facts.uncompressed_size - array.header.header_bytes, where);
    array.values = read_values(array.header.data_bytes, where);
    // Compares the checksum.
    if (const int code = unzCloseCurrentFile(zip_); code == UNZ_CRCERROR) fail(where, "its checksum is wrong");
    else check(code, where);
    return array;
  }

  NpyHeader read_header(const std::string& where) {
    std::string bytes(kFirstBytes, '\0');
    bytes.resize(read(bytes.data(), kFirstBytes, where));
    const auto begun = bytes.size();
    const auto whole = std::max(begun, npy_header_bytes(bytes, where));
    bytes.resize(whole);
    bytes.resize(begun + read(bytes.data() + begun, whole - begun, where));
    return parse_npy_header(bytes, where);
  }

  std::shared_ptr<char> read_values(std::size_t bytes, const std::string& where) {
    GrowingMemory memory;
    for (std::size_t done = 0; done < bytes;) {
      const auto next = std::min(bytes, std::max(kPiece, 2 * done));
      auto* const data = memory.grow_to(next);
      const auto got = read(data + done, next - done, where);
      if (got < next - done) fail(where, str("it ends after ", done + got, " of ", bytes, " bytes of values"));
      done = next;
    }
    return memory.take();
  }

  // As many of these bytes as there are.
  std::size_t read(char* to, std::size_t bytes, const std::string& where) {
    std::size_t done = 0;
    while (done < bytes) {
      const auto got = unzReadCurrentFile(zip_, to + done, static_cast<unsigned>(std::min(bytes - done, kMostAtOnce)));
      if (got < 0) check(got, where);
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  void check(int code, const std::string& where) const {
    if (code == UNZ_OK) return;
    const auto* const name = code == UNZ_BADZIPFILE ? " (bad zip file)" : code == Z_DATA_ERROR ? " (bad data)" : "";
    fail(where, str("minizip: error ", code, name));
  }
  [[noreturn]] static void fail(const std::string& where, const std::string& why) {
    throw Error(ErrorCode::kDataLoss, str(where, " is damaged: ", why));
  }

  const std::string path_;
  unzFile zip_ = nullptr;
};

}  // namespace

std::vector<NpzArray> read_npz_arrays(const std::string& path) { return Archive(path).read_all(); }

}  // namespace lockstep::data::internal
