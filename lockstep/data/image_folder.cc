#include "lockstep/data/image_folder.h"

#include <ATen/ATen.h>

#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/data/images.h"
#include "lockstep/data/io/class_files.h"
#include "lockstep/data/io/input_file.h"
#include "lockstep/data/io/pixels.h"

namespace lockstep::data {
namespace {

// The damaged images of a folder; says how many there were when nobody can read it any more.
class Damaged {
 public:
  explicit Damaged(std::string root) : root_(std::move(root)) {}
  ~Damaged() {
    if (files_.empty()) return;
    log_warning(lockstep::str("image_folder '", root_, "': ", files_.size(), " damaged images were passed over, for example ",
                              example_));
  }
  Damaged(const Damaged&) = delete;
  Damaged& operator=(const Damaged&) = delete;

  void add(const std::string& path, const Error& error) {
    const std::lock_guard lock(mu_);
    if (files_.empty()) example_ = error.message();
    files_.insert(path);
  }

 private:
  const std::string root_;
  std::mutex mu_;
  std::set<std::string> files_;  // guarded by mu_; each is met once a pass
  std::string example_;          // guarded by mu_
};

at::Tensor resize(const at::Tensor& image, std::int64_t height, std::int64_t width) {
  if (image.size(1) == height && image.size(2) == width) return image;
  const auto values = image.unsqueeze(0).to(at::kFloat);
  return at::upsample_bilinear2d(values, {height, width}, /*align_corners=*/false, {}, {}).round_().to(at::kByte).squeeze(0);
}

at::Tensor read_image(const std::string& path, const ImageFolderOptions& options) {
  InputFile file(path);
  try {
    const auto image = decode_image(file.peek(std::numeric_limits<std::size_t>::max()), options.channels);
    return options.height ? resize(image, *options.height, *options.width) : image;
  } catch (const Error& error) {
    throw Error(error.code(), lockstep::str("the file '", path, "': ", error.message()));
  }
}

void check(const ImageFolderOptions& options) {
  internal::check_channels("image_folder", options.channels);
  if (options.height.has_value() != options.width.has_value())
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("image_folder: only the ", options.height ? "height" : "width",
                                                           " is given; give height and width, or neither"));
  if (!options.height) return;
  if (*options.height < 1 || *options.width < 1 || *options.height > internal::kMostPixels / *options.width)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("image_folder: images of ", *options.height, " x ", *options.width,
                              " pixels; give at least 1 and at ", "most ", internal::kMostPixels, " together"));
}

}  // namespace

ImageFolder image_folder(const std::string& root, const ImageFolderOptions& options) {
  check(options);
  auto found = internal::find_class_files("image_folder", root, {".jpg", ".jpeg", ".png"});
  const auto count = static_cast<std::int64_t>(found.files.size());
  auto labels = at::tensor(found.labels, at::kLong);
  auto files = Dataset::from_tensor_slices(
      Element(std::vector<Component>{{"", Bytes{std::move(found.files), {count}}}, {"", std::move(labels)}}));
  if (options.shuffle_seed) files = files.shuffle(count, options.shuffle_seed);

  const auto damaged = options.ignore_errors ? std::make_shared<Damaged>(root) : nullptr;
  const auto read = [options, damaged](const Element& file) {
    try {
      return Element({read_image(file.text(0), options), file[1]});
    } catch (const Error& error) {
      if (damaged == nullptr || error.code() != ErrorCode::kDataLoss) throw;
      damaged->add(file.text(0), error);
      return Element();
    }
  };
  auto images = files.map(read, options.parallel);
  if (options.ignore_errors) images = images.filter([](const Element& element) { return !element.empty(); });
  return {std::move(images), std::move(found.classes)};
}

}  // namespace lockstep::data
