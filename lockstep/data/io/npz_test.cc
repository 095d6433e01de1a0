#include "lockstep/data/io/npz.h"

#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"
#include "tests/support/zip_bytes.h"

namespace lockstep::data::internal {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::make_zip;
using lockstep::testing::ScratchFolder;
using lockstep::testing::ThrowsCode;
using lockstep::testing::ZipEntry;

std::string array_of(const std::string& values) {
  return make_npy_header("u1", {static_cast<std::int64_t>(values.size())}) + values;
}

std::string values_of(const NpzArray& array) { return {array.values.get(), array.header.data_bytes}; }

TEST(Npz, ReadsStoredAndDeflatedArraysInTheirOrder) {
  const ScratchFolder folder;
  const std::string large(5'000'000, 'x');
  const auto path = folder.write("a.npz", make_zip({{.name = "z.npy", .content = array_of("stored")},
                                                    {.name = "a.npy", .content = array_of(large), .is_deflated = true},
                                                    {.name = "none.npy", .content = array_of(""), .is_deflated = true}}));
  const auto arrays = read_npz_arrays(path);
  ASSERT_EQ(arrays.size(), 3U);
  EXPECT_EQ(arrays[0].name, "z");
  EXPECT_EQ(values_of(arrays[0]), "stored");
  EXPECT_EQ(arrays[1].name, "a");
  EXPECT_EQ(values_of(arrays[1]), large);
  EXPECT_EQ(arrays[2].header.data_bytes, 0U);
}

TEST(Npz, DamageIsDataLoss) {
  const ScratchFolder folder;
  const auto code = [&](const std::string& bytes) {
    const auto path = folder.write("a.npz", bytes);
    return code_of([&] { read_npz_arrays(path); });
  };
  const auto content = array_of("some values");
  const auto good = make_zip({{.name = "a.npy", .content = content, .is_deflated = true}});
  EXPECT_EQ(code(good), std::nullopt);
  EXPECT_EQ(code(""), ErrorCode::kDataLoss);
  EXPECT_EQ(code("no archive"), ErrorCode::kDataLoss);
  EXPECT_EQ(code(good.substr(0, good.size() - 30)), ErrorCode::kDataLoss);
  EXPECT_EQ(code(make_zip({{.name = "a.txt", .content = "text"}})), ErrorCode::kDataLoss);
  EXPECT_EQ(code(make_zip({{.name = "a.npy", .content = "text"}})), ErrorCode::kDataLoss);
  EXPECT_EQ(code(make_zip({{.name = "a.npy", .content = ""}})), ErrorCode::kDataLoss);
  EXPECT_EQ(code(make_zip({{.name = "a.npy", .content = content.substr(0, 40)}})), ErrorCode::kDataLoss);
  EXPECT_EQ(code(make_zip({{.name = "a.npy", .content = content + "more"}})), ErrorCode::kDataLoss);
  EXPECT_EQ(code(make_zip({{.name = "a.npy", .content = content, .claimed_sum = 1}})), ErrorCode::kDataLoss);
  EXPECT_EQ(code(make_zip({{.name = "a.npy", .content = content, .claimed_method = 8}})), ErrorCode::kDataLoss);
}

TEST(Npz, FlippedBytesAreNoticedOrHarmless) {
  const ScratchFolder folder;
  const auto good = make_zip({{.name = "a.npy", .content = array_of("some values"), .is_deflated = true}});
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x55);
    const auto path = folder.write("a.npz", bytes);
    // Dates, versions and some names may change; the values may not.
    code_of([&] {
      for (const auto& array : read_npz_arrays(path)) EXPECT_EQ(values_of(array), "some values") << i;
    });
  }
}

TEST(Npz, ABombTakesNoMemoryForWhatIsNotThere) {
  const ScratchFolder folder;
  const auto header = make_npy_header("u1", {std::int64_t{1} << 60});
  // The header lies; then the archive's directory lies too. To take the memory would be std::bad_alloc.
  const auto lie = folder.write("lie.npz", make_zip({{.name = "a.npy", .content = header + "x"}}));
  EXPECT_THAT([&] { read_npz_arrays(lie); }, ThrowsCode(ErrorCode::kDataLoss, "a.npy", "1152921504606846976"));
  for (const bool is_deflated : {false, true}) {
    const auto claimed = (std::uint64_t{1} << 60) + header.size();
    const ZipEntry entry{.name = "a.npy", .content = header + "x", .is_deflated = is_deflated, .claimed_size = claimed};
    const auto path = folder.write("a.npz", make_zip({entry}));
    EXPECT_THAT([&] { read_npz_arrays(path); }, ThrowsCode(ErrorCode::kDataLoss, "a.npy"));
  }
}

TEST(Npz, RefusesWhatNumpyDoesNotWrite) {
  const ScratchFolder folder;
  const auto locked = folder.write("locked.npz", make_zip({{.name = "a.npy", .content = array_of("x"), .flags = 1}}));
  EXPECT_THAT([&] { read_npz_arrays(locked); }, ThrowsCode(ErrorCode::kUnimplemented, "encrypted"));
  const auto other = folder.write("other.npz", make_zip({{.name = "a.npy", .content = array_of("x"), .claimed_method = 12}}));
  EXPECT_THAT([&] { read_npz_arrays(other); }, ThrowsCode(ErrorCode::kUnimplemented, "method 12"));
}

TEST(Npz, SaysWhyAFileCannotBeOpened) {
  const ScratchFolder folder;
  EXPECT_THAT([&] { read_npz_arrays(folder / "none.npz"); }, ThrowsCode(ErrorCode::kNotFound, "none.npz"));
  EXPECT_THAT([&] { read_npz_arrays(folder.path()); }, ThrowsCode(ErrorCode::kFailedPrecondition, folder.path()));
}

}  // namespace
}  // namespace lockstep::data::internal
