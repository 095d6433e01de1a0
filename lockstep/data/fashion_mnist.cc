#include "lockstep/data/fashion_mnist.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fetch_early.h"
#include "lockstep/base/str.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/idx.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPixels = kSide * kSide;

void to_float(const std::uint8_t* __restrict from, float* __restrict to) {
  for (std::int64_t i = 0; i < kPixels; ++i) to[i] = static_cast<float>(from[i]) / 255.0F;
}

// Gathers bytes and writes floats: a quarter of the memory, and less to read at random than floats would be.
class ImageTable final : public internal::Table {
 public:
  ImageTable(IdxArray images, IdxArray labels) : images_(std::move(images)), labels_(std::move(labels)) {}

  std::int64_t rows() const override { return images_.sizes[0]; }

  Element row(std::int64_t row) const override {
    auto image = at::empty({1, kSide, kSide}, at::kFloat);
    to_float(image_at(row), image.data_ptr<float>());
    return {image, at::scalar_tensor(static_cast<std::int64_t>(labels_.values[static_cast<std::size_t>(row)]), at::kLong)};
  }

  Element gather(std::span<const std::int64_t> rows) const override {
    const auto count = static_cast<std::int64_t>(rows.size());
    auto images = internal::new_batch({count, 1, kSide, kSide}, at::kFloat);
    auto labels = internal::new_batch({count}, at::kLong);
    auto* pixels = images.data_ptr<float>();
    auto* numbers = labels.data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i + 1 < rows.size()) fetch_early(image_at(rows[i + 1]), kPixels);
      to_float(image_at(rows[i]), pixels + static_cast<std::int64_t>(i) * kPixels);
      numbers[i] = labels_.values[static_cast<std::size_t>(rows[i])];
    }
    return {images, labels};
  }

 private:
  const std::uint8_t* image_at(std::int64_t row) const { return images_.values.data() + row * kPixels; }

  const IdxArray images_, labels_;
};

std::string folder() {
  const auto other = Environment().get("LOCKSTEP_FASHION_MNIST").value_or("");
  return other.empty() ? "/usr/share/datasets/fashion-mnist" : other;
}

IdxArray read_file(const std::string& directory, const std::string& name) {
  const auto path = directory + "/" + name;
  if (access(path.c_str(), R_OK) != 0)
    throw Error(ErrorCode::kNotFound, lockstep::str("fashion_mnist: there is no '", path,
                                                    "'; install Debian's package dataset-fashion-mnist, or set "
                                                    "LOCKSTEP_FASHION_MNIST to the folder with its files"));
  return read_idx(path);
}

std::shared_ptr<const internal::Table> read_table(const std::string& directory, const std::string& prefix) {
  auto images = read_file(directory, prefix + "-images-idx3-ubyte.gz");
  auto labels = read_file(directory, prefix + "-labels-idx1-ubyte.gz");
  if (images.sizes.size() != 3 || images.sizes[1] != kSide || images.sizes[2] != kSide || labels.sizes.size() != 1 ||
      images.sizes[0] != labels.sizes[0])
    throw Error(ErrorCode::kDataLoss, lockstep::str("fashion_mnist: '", directory, "' holds images ", name_sizes(images.sizes),
                                                    " and labels ", name_sizes(labels.sizes), ", not [n, 28, 28] and [n]"));
  return std::make_shared<ImageTable>(std::move(images), std::move(labels));
}

// Keeps what was read; the lock is held while reading, since whoever waits for it wants the same bytes. A failure is not kept:
// the files may be there the next time.
std::shared_ptr<const internal::Table> cached_table(const std::string& directory, const std::string& prefix) {
  static std::mutex mu;
  static auto* tables = new std::map<std::string, std::shared_ptr<const internal::Table>>;  // guarded by mu
  const std::lock_guard lock(mu);
  auto& table = (*tables)[directory + "/" + prefix];
  if (!table) table = read_table(directory, prefix);
  return table;
}

}  // namespace

Dataset fashion_mnist(const std::string& split) {
  if (split != "train" && split != "test")
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("fashion_mnist: there is no split '", split, "'; use train or test"));
  auto table = cached_table(folder(), split == "train" ? "train" : "t10k");
  return Dataset(internal::make_rows(lockstep::str("FashionMnist(", split, ")"), std::move(table),
                                     {.is_fixed = true, .has_scalar = true}));
}

}  // namespace lockstep::data
