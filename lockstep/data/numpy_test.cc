#include "lockstep/data/numpy.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/io/npy.h"
#include "tests/support/data_testing.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/zip_bytes.h"

namespace lockstep::data {
namespace {

using lockstep::testing::content_of;
using lockstep::testing::make_zip;
using lockstep::testing::ScratchFolder;
using lockstep::testing::ThrowsCode;
using testing::code_of;
using testing::ints;
using testing::Ints;

constexpr at::ScalarType kDtypes[] = {at::kBool, at::kChar,  at::kShort,  at::kInt,          at::kLong,         at::kByte,
                                      at::kHalf, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

TEST(Npy, WhatIsWrittenIsRead) {
  const ScratchFolder folder;
  const auto path = folder / "a.npy";
  for (const auto dtype : kDtypes)
    for (const auto& sizes : {Ints{}, Ints{7}, Ints{2, 3, 4}, Ints{0, 5}}) {
      const auto tensor = at::randint(0, 2, sizes, at::kFloat).to(dtype);
      write_npy(path, tensor);
      const auto read = read_npy(path);
      EXPECT_EQ(read.scalar_type(), dtype);
      EXPECT_EQ(read.sizes(), tensor.sizes());
      EXPECT_TRUE(read.equal(tensor)) << dtype;
      EXPECT_TRUE(read.is_contiguous());
    }
}

TEST(Npy, WritesTensorsOfAnyStrides) {
  const ScratchFolder folder;
  const auto path = folder / "a.npy";
  const auto tensor = at::arange(24, at::kFloat).view({4, 6});
  for (const auto& view : {tensor.t(), tensor.slice(1, 0, 6, 2), tensor.select(0, 1), tensor[0][0].expand({3, 2})}) {
    write_npy(path, view);
    EXPECT_TRUE(read_npy(path).equal(view));
  }
  const auto lazy = at::complex(tensor, tensor).conj();
  write_npy(path, lazy);
  EXPECT_TRUE(read_npy(path).equal(lazy.resolve_conj()));
  write_npy(path, tensor.clone().requires_grad_(true));
  EXPECT_TRUE(read_npy(path).equal(tensor));
}

TEST(Npy, IsMappedAndOutlivesItsName) {
  const ScratchFolder folder;
  const auto path = folder / "a.npy";
  write_npy(path, at::arange(1000, at::kLong));
  auto first = read_npy(path);
  first[0] = 77;  // in memory only
  EXPECT_EQ(read_npy(path)[0].item<std::int64_t>(), 0);
  write_npy(path, at::zeros({2}));
  std::remove(path.c_str());
  const auto view = first.slice(0, 990);
  first = at::Tensor();
  EXPECT_EQ(view.sum().item<std::int64_t>(), 9945);
}

TEST(Npy, ReadsFortranOrder) {
  const ScratchFolder folder;
  // [[0, 1, 2], [3, 4, 5]], column after column.
  const auto text = std::string("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n");
  const auto bytes = std::string("\x93NUMPY\1\0", 8) + lockstep::testing::little_endian(text.size(), 2) + text;
  const auto read = read_npy(folder.write("a.npy", bytes + std::string("\0\3\1\4\2\5", 6)));
  EXPECT_TRUE(read.equal(at::arange(6, at::kByte).view({2, 3})));
  EXPECT_TRUE(read.is_contiguous());
}

TEST(Npy, ReadsValuesThatAreNotAligned) {
  const ScratchFolder folder;
  const auto text = std::string("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), } ");
  auto bytes = std::string("\x93NUMPY\1\0", 8) + lockstep::testing::little_endian(text.size(), 2) + text;
  bytes += lockstep::testing::little_endian(5, 8) + lockstep::testing::little_endian(6, 8);
  EXPECT_EQ(ints(read_npy(folder.write("a.npy", bytes))), (Ints{5, 6}));
}

TEST(Npy, DamageIsDataLossWithFileAndSizes) {
  const ScratchFolder folder;
  const auto path = folder / "a.npy";
  write_npy(path, at::zeros({3, 4}));
  const auto good = content_of(path);
  folder.write("a.npy", good.substr(0, good.size() - 1));
  EXPECT_THAT([&] { read_npy(path); }, ThrowsCode(ErrorCode::kDataLoss, path, "f4 [3, 4]", "48", "47"));
  folder.write("a.npy", good + "x");
  EXPECT_THAT([&] { read_npy(path); }, ThrowsCode(ErrorCode::kDataLoss, path, "48", "49"));
  folder.write("a.npy", internal::make_npy_header("f4", {std::int64_t{1} << 58}));
  EXPECT_THAT([&] { read_npy(path); }, ThrowsCode(ErrorCode::kDataLoss, "1152921504606846976"));
  folder.write("a.npy", "");
  EXPECT_EQ(code_of([&] { read_npy(path); }), ErrorCode::kDataLoss);
  EXPECT_THAT([&] { read_npy(folder / "none.npy"); }, ThrowsCode(ErrorCode::kNotFound, "none.npy"));
}

TEST(Npy, RefusesToWriteWhatNumpyDoesNotHave) {
  const ScratchFolder folder;
  const auto path = folder / "a.npy";
  EXPECT_THAT([&] { write_npy(path, at::zeros({2}, at::kBFloat16)); }, ThrowsCode(ErrorCode::kInvalidArgument, "BFloat16"));
  EXPECT_THAT([&] { write_npy(path, at::Tensor()); }, ThrowsCode(ErrorCode::kInvalidArgument, path));
  EXPECT_THAT([&] { write_npy(path, at::eye(2).to_sparse()); }, ThrowsCode(ErrorCode::kInvalidArgument, "dense"));
  EXPECT_THAT([&] { write_npy(folder / "none/a.npy", at::zeros({2})); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "none/a.npy"));
  EXPECT_EQ(rmdir(folder.path().c_str()), 0);  // nothing was left there
}

}  // namespace
}  // namespace lockstep::data
