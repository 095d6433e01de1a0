#include "lockstep/data/fashion_mnist.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/idx.h"
#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using testing::code_of;
using testing::text_of;

// A folder that is removed with everything written to it, and named by LOCKSTEP_FASHION_MNIST meanwhile.
// (Not std::filesystem: LibTorch's wheels export another library's version of it.)
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/lockstep_idx_XXXXXX";
    path_ = mkdtemp(name);
    if (const char* previous = std::getenv("LOCKSTEP_FASHION_MNIST")) previous_ = previous;
    setenv("LOCKSTEP_FASHION_MNIST", path_.c_str(), 1);
  }
  ~Folder() {
    if (previous_) setenv("LOCKSTEP_FASHION_MNIST", previous_->c_str(), 1);
    else unsetenv("LOCKSTEP_FASHION_MNIST");
    for (const auto& file : files_) unlink(file.c_str());
    rmdir(path_.c_str());
  }

  std::string write(const std::string& name, const std::string& bytes) const {
    files_.push_back(path_ + "/" + name);
    std::ofstream(files_.back(), std::ios::binary) << bytes;
    return files_.back();
  }
  std::string write_gzip(const std::string& name, const std::string& bytes) const {
    files_.push_back(path_ + "/" + name);
    auto* file = gzopen(files_.back().c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return files_.back();
  }

 private:
  std::string path_;
  std::optional<std::string> previous_;
  mutable std::vector<std::string> files_;
};

std::string idx_2x3(const std::string& values) { return std::string("\0\0\x08\x02\0\0\0\x02\0\0\0\x03", 12) + values; }

TEST(Idx, ReadsPlainAndCompressedFiles) {
  const Folder folder;
  for (const auto& path : {folder.write("plain", idx_2x3("abcdef")), folder.write_gzip("packed.gz", idx_2x3("abcdef"))}) {
    const auto array = read_idx(path);
    EXPECT_EQ(array.sizes, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(std::string(array.values.begin(), array.values.end()), "abcdef");
  }
}

TEST(Idx, DamageIsDataLoss) {
  const Folder folder;
  const auto code = [](const std::string& path) { return code_of([&] { read_idx(path); }); };
  EXPECT_EQ(code(folder.write("short", idx_2x3("abc"))), ErrorCode::kDataLoss);
  EXPECT_EQ(code(folder.write("long", idx_2x3("abcdefg"))), ErrorCode::kDataLoss);
  EXPECT_EQ(code(folder.write("empty", "")), ErrorCode::kDataLoss);
  EXPECT_EQ(code(folder.write("other", "not an IDX file at all")), ErrorCode::kDataLoss);
  EXPECT_EQ(code(folder.write("huge", std::string("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16))),
            ErrorCode::kDataLoss);
  EXPECT_EQ(code("/nowhere/at/all"), ErrorCode::kNotFound);

  const auto path = folder.write_gzip("cut.gz", idx_2x3("abcdef"));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  ASSERT_EQ(truncate(path.c_str(), status.st_size - 9), 0);
  EXPECT_EQ(code(path), ErrorCode::kDataLoss);
  const auto flipped = folder.write_gzip("flipped.gz", idx_2x3("abcdef"));
  std::fstream file(flipped, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(status.st_size) - 6);  // in the checksum
  file.put('\x55');
  file.close();
  EXPECT_EQ(code(flipped), ErrorCode::kDataLoss);
}

TEST(FashionMnist, HasAllImagesAndLabels) {
  const auto train = fashion_mnist("train");
  const auto test = fashion_mnist("test");
  EXPECT_EQ(train.cardinality(), 60000);
  EXPECT_EQ(test.cardinality(), 10000);
  auto counts = at::zeros({10}, at::kLong);
  auto mean = 0.0;
  for (const auto& batch : train.batch(1000)) {
    ASSERT_EQ(batch[0].sizes(), (at::IntArrayRef{1000, 1, 28, 28}));
    ASSERT_EQ(batch[0].scalar_type(), at::kFloat);
    ASSERT_EQ(batch[1].scalar_type(), at::kLong);
    EXPECT_GE(batch[0].min().item<float>(), 0.0F);
    EXPECT_LE(batch[0].max().item<float>(), 1.0F);
    mean += batch[0].mean().item<double>() / 60;
    counts += at::bincount(batch[1], {}, 10);
  }
  EXPECT_TRUE(counts.equal(at::full({10}, 6000, at::kLong)));
  EXPECT_NEAR(mean, 0.2860, 1e-4);  // the published statistics of the training images
}

TEST(FashionMnist, ElementsAreImagesInTheUnitRange) {
  const auto first = *fashion_mnist("train").make_iterator().next();
  EXPECT_EQ(first[0].sizes(), (at::IntArrayRef{1, 28, 28}));
  EXPECT_EQ(first[0].max().item<float>(), 1.0F);
  EXPECT_EQ(first[1].dim(), 0);
  EXPECT_EQ(first[1].item<std::int64_t>(), 9);
  const auto batch = *fashion_mnist("train").batch(2).make_iterator().next();
  EXPECT_TRUE(batch[0][0].equal(first[0]));
}

TEST(FashionMnist, RefusesOtherSplits) {
  EXPECT_EQ(code_of([] { fashion_mnist("validation"); }), ErrorCode::kInvalidArgument);
}

TEST(FashionMnist, MissingFilesNameThePackage) {
  const Folder folder;
  EXPECT_EQ(code_of([] { fashion_mnist("train"); }), ErrorCode::kNotFound);
  EXPECT_NE(text_of([] { fashion_mnist("train"); }).find("dataset-fashion-mnist"), std::string::npos);
  EXPECT_NE(text_of([] { fashion_mnist("train"); }).find("train-images-idx3-ubyte.gz"), std::string::npos);
}

TEST(FashionMnist, FilesThatDoNotFitAreDataLoss) {
  const Folder folder;
  folder.write_gzip("t10k-images-idx3-ubyte.gz", idx_2x3("abcdef"));
  folder.write_gzip("t10k-labels-idx1-ubyte.gz", idx_2x3("abcdef"));
  EXPECT_EQ(code_of([] { fashion_mnist("test"); }), ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace lockstep::data
