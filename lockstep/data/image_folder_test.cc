#include "lockstep/data/image_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/data/images.h"
#include "tests/support/data_testing.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::data {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::LogCapture;
using lockstep::testing::ScratchFolder;
using lockstep::testing::ThrowsCode;
using testing::ints;
using testing::Ints;

at::Tensor plain(std::int64_t value, std::int64_t height = 4, std::int64_t width = 6) {
  return at::full({3, height, width}, value, at::kByte);
}

// Two classes of images of one colour each, some of them of another size.
class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    folder_.make_folder("dogs");
    folder_.make_folder("cats");
    folder_.write("dogs/1.PNG", encode_png(plain(30)));
    folder_.write("dogs/2.jpeg", encode_jpeg(plain(40, 8, 8)));
    folder_.write("cats/2.png", encode_png(plain(20)));
    folder_.write("cats/1.jpg", encode_png(plain(10)));  // its name is wrong
    folder_.write("cats/notes.txt", "no image");
  }

  static Ints labels(const Dataset& dataset) {
    Ints all;
    for (const auto& element : dataset) all.push_back(element[1].item<std::int64_t>());
    return all;
  }
  static Ints first_values(const Dataset& dataset) {
    Ints all;
    for (const auto& element : dataset) all.push_back(element[0].flatten()[0].item<std::int64_t>());
    return all;
  }

  const ScratchFolder folder_;
};

TEST_F(ImageFolderTest, GivesImagesAndLabelsClassAfterClass) {
  const auto [dataset, classes] = image_folder(folder_.path());
  EXPECT_EQ(classes, (std::vector<std::string>{"cats", "dogs"}));
  EXPECT_EQ(dataset.cardinality(), 4);
  EXPECT_EQ(labels(dataset), (Ints{0, 0, 1, 1}));
  EXPECT_EQ(first_values(dataset), (Ints{10, 20, 30, 40}));
  const auto first = *dataset.make_iterator().next();
  EXPECT_TRUE(first[0].equal(plain(10)));
  EXPECT_EQ(first[1].scalar_type(), at::kLong);
  EXPECT_EQ(first[1].dim(), 0);
  const auto grey = image_folder(folder_.path(), {.channels = 1, .parallel = 1}).dataset;
  EXPECT_EQ((*grey.make_iterator().next())[0].sizes(), (at::IntArrayRef{1, 4, 6}));
}

TEST_F(ImageFolderTest, ImagesOfOneSizeCanBeBatched) {
  const auto images = image_folder(folder_.path(), {.height = 5, .width = 3}).dataset;
  const auto batch = *images.batch(4).make_iterator().next();
  EXPECT_EQ(batch[0].sizes(), (at::IntArrayRef{4, 3, 5, 3}));
  EXPECT_EQ(batch[0].scalar_type(), at::kByte);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(batch[0][i].equal(plain(10 * (i + 1), 5, 3)));
  EXPECT_EQ(ints(batch[1]), (Ints{0, 0, 1, 1}));
}

TEST_F(ImageFolderTest, ResizesBilinearly) {
  const auto ramp = at::arange(4, at::kByte).mul(10).view({1, 1, 4}).expand({3, 2, 4});
  folder_.write("cats/0.png", encode_png(ramp));
  const auto element = *image_folder(folder_.path(), {.height = 2, .width = 2}).dataset.make_iterator().next();
  EXPECT_EQ(ints(element[0][0]), (Ints{5, 25, 5, 25}));
}

TEST_F(ImageFolderTest, ASeedMixesTheFilesAnewInEveryPass) {
  for (int i = 0; i < 20; ++i) folder_.write(lockstep::str("cats/more", i, ".png"), encode_png(plain(100 + i)));
  const auto images = image_folder(folder_.path(), {.shuffle_seed = 5}).dataset;
  const auto first = first_values(images), second = first_values(images);
  EXPECT_NE(first, second);
  EXPECT_TRUE(std::ranges::is_permutation(first, second));
  EXPECT_EQ(first_values(image_folder(folder_.path(), {.shuffle_seed = 5}).dataset), first);
}

TEST_F(ImageFolderTest, ADamagedImageIsAnErrorWithItsName) {
  const auto path = folder_.write("cats/3.png", encode_png(plain(1)).substr(0, 50));
  for (const int parallel : {1, 2}) {
    const auto images = image_folder(folder_.path(), {.parallel = parallel}).dataset;
    EXPECT_THAT([&] { labels(images); }, ThrowsCode(ErrorCode::kDataLoss, path, "libpng"));
  }
}

TEST_F(ImageFolderTest, DamagedImagesCanBePassedOverAndAreCounted) {
  const LogCapture log;
  folder_.write("cats/3.png", encode_png(plain(1)).substr(0, 50));
  folder_.write("dogs/0.jpg", "");
  {
    const auto images = image_folder(folder_.path(), {.ignore_errors = true}).dataset;
    EXPECT_EQ(images.cardinality(), kUnknown);
    EXPECT_EQ(labels(images), (Ints{0, 0, 1, 1}));
    EXPECT_EQ(first_values(images), (Ints{10, 20, 30, 40}));
    EXPECT_TRUE(log.warnings().empty());
  }
  ASSERT_EQ(log.warnings().size(), 1U);
  EXPECT_THAT(log.warnings()[0], ::testing::HasSubstr(folder_.path()));
  EXPECT_THAT(log.warnings()[0], ::testing::HasSubstr(": 2 damaged"));
}

TEST_F(ImageFolderTest, AFileThatIsGoneIsNeverPassedOver) {
  const auto images = image_folder(folder_.path(), {.ignore_errors = true}).dataset;
  std::remove((folder_ / "cats/2.png").c_str());
  EXPECT_THAT([&] { labels(images); }, ThrowsCode(ErrorCode::kNotFound, "cats/2.png"));
}

TEST_F(ImageFolderTest, APassCanBeSavedAndRestored) {
  const auto images = image_folder(folder_.path(), {.ignore_errors = true}).dataset;
  auto iterator = images.make_iterator();
  ASSERT_TRUE(iterator.next());
  const auto position = iterator.save();
  auto again = images.make_iterator();
  again.restore(position);
  EXPECT_TRUE((*again.next())[0].equal(plain(20)));
}

TEST_F(ImageFolderTest, RefusesWrongArguments) {
  const auto code = [&](const ImageFolderOptions& options) { return code_of([&] { image_folder(folder_.path(), options); }); };
  EXPECT_EQ(code({.channels = 2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.height = 5}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.width = 5}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.height = 0, .width = 5}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.height = 1 << 20, .width = 1 << 20}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.parallel = 0}), ErrorCode::kInvalidArgument);
  EXPECT_THAT([&] { image_folder(folder_ / "none"); }, ThrowsCode(ErrorCode::kNotFound, "image_folder", folder_ / "none"));
  folder_.make_folder("birds");
  EXPECT_THAT([&] { image_folder(folder_.path()); }, ThrowsCode(ErrorCode::kNotFound, folder_ / "birds", ".jpeg"));
}

}  // namespace
}  // namespace lockstep::data
