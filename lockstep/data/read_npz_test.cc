#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "lockstep/data/io/npy.h"
#include "lockstep/data/numpy.h"
#include "tests/support/data_testing.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/zip_bytes.h"

namespace lockstep::data {
namespace {

using lockstep::testing::content_of;
using lockstep::testing::make_zip;
using lockstep::testing::ScratchFolder;
using lockstep::testing::ThrowsCode;

TEST(ReadNpz, GivesNamedComponentsInTheArchivesOrder) {
  const ScratchFolder folder;
  const auto labels = at::arange(3, at::kLong);
  const auto images = at::rand({3, 2, 2});
  const auto file_of = [&](const at::Tensor& tensor) {
    write_npy(folder / "one.npy", tensor);
    return content_of(folder / "one.npy");
  };
  const auto path = folder.write("a.npz", make_zip({{.name = "label.npy", .content = file_of(labels)},
                                                    {.name = "image.npy", .content = file_of(images), .is_deflated = true},
                                                    {.name = "scalar.npy", .content = file_of(at::scalar_tensor(2.5))}}));
  const auto element = read_npz(path);
  EXPECT_EQ(element.names(), (std::vector<std::string>{"label", "image", "scalar"}));
  EXPECT_TRUE(element[0].equal(labels));
  EXPECT_TRUE(element.at("image").equal(images));
  EXPECT_EQ(element.at("scalar").dim(), 0);
  const auto dataset = Dataset::from_tensor_slices(Element({element[0], element[1]}));
  EXPECT_EQ(testing::values(dataset), (testing::Ints{0, 1, 2}));
}

TEST(ReadNpz, ErrorsNameTheArchive) {
  const ScratchFolder folder;
  EXPECT_THAT([&] { read_npz(folder / "none.npz"); }, ThrowsCode(ErrorCode::kNotFound, "none.npz"));
  const auto path = folder.write("a.npz", make_zip({{.name = "x.npy", .content = "text"}}));
  EXPECT_THAT([&] { read_npz(path); }, ThrowsCode(ErrorCode::kDataLoss, "x.npy", path));
}

}  // namespace
}  // namespace lockstep::data
