#include <zlib.h>

#include <cstdlib>
#include <stdexcept>

#include "bench/models.h"

namespace bench {
namespace {

// Bytes [begin, begin + count) of a gzipped file, without keeping the rest: a benchmark of peak memory uses this too.
std::vector<std::uint8_t> read_gzip(const std::string& path, std::int64_t begin, std::int64_t count) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot open '" + path + "'; install Debian's package dataset-fashion-mnist");
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  const bool is_there = gzseek(file, begin, SEEK_SET) == begin;
  const int got = is_there ? gzread(file, bytes.data(), static_cast<unsigned>(count)) : -1;
  gzclose(file);
  if (got != count) throw std::runtime_error("'" + path + "' is too short");
  return bytes;
}

std::vector<Batch> image_batches(const Workload& workload, std::int64_t part) {
  constexpr std::int64_t kPixels = 28 * 28;
  const char* other = std::getenv("LOCKSTEP_FASHION_MNIST");
  const std::string folder = other != nullptr && *other != '\0' ? other : "/usr/share/datasets/fashion-mnist";
  const auto count = workload.batch * kBatches;
  auto pixels = read_gzip(folder + "/train-images-idx3-ubyte.gz", 16 + part * count * kPixels, count * kPixels);
  auto labels = read_gzip(folder + "/train-labels-idx1-ubyte.gz", 8 + part * count, count);
  const auto images = torch::from_blob(pixels.data(), {count, 1, 28, 28}, torch::kUInt8).to(torch::kFloat).div(255);
  const auto classes = torch::from_blob(labels.data(), {count}, torch::kUInt8).to(torch::kLong);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < kBatches; ++i)
    batches.emplace_back(images.narrow(0, i * workload.batch, workload.batch).clone(),
                         classes.narrow(0, i * workload.batch, workload.batch).clone());
  return batches;
}

std::vector<Batch> random_batches(const Workload& workload, std::int64_t part) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(1234 + part));
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < kBatches; ++i) {
    if (workload.name == "W4") {
      batches.emplace_back(torch::randint(1'000'000, {workload.batch, 26}, generator, torch::kLong),
                           torch::randint(2, {workload.batch}, generator, torch::kFloat));
    } else {
      const auto sequences = torch::randn({64, workload.batch, 128}, generator);
      batches.emplace_back(sequences, sequences.mean(0).narrow(1, 0, 10).argmax(1));  // something that can be learnt
    }
  }
  return batches;
}

}  // namespace

std::vector<Batch> make_batches(const Workload& workload, std::int64_t part) {
  return workload.has_images ? image_batches(workload, part) : random_batches(workload, part);
}

}  // namespace bench
