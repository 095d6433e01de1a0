#include "lockstep/data/io/whole_file.h"

#include <string>

#include "lockstep/data/io/mapped_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

namespace lockstep::data {
namespace {

using lockstep::testing::content_of;
using lockstep::testing::ScratchFolder;
using lockstep::testing::ThrowsCode;

TEST(WholeFile, ReplacesWhatIsThere) {
  const ScratchFolder folder;
  write_whole_file(folder / "a", {"one ", "two"});
  EXPECT_EQ(content_of(folder / "a"), "one two");
  write_whole_file(folder / "a", {});
  EXPECT_EQ(content_of(folder / "a"), "");
}

TEST(WholeFile, LeavesNothingWhenItFails) {
  const ScratchFolder folder;
  EXPECT_THAT([&] { write_whole_file(folder / "none/a", {"x"}); },
              ThrowsCode(ErrorCode::kFailedPrecondition, folder / "none/a"));
  // A folder has the name, so that the last step fails.
  folder.make_folder("a");
  folder.write("a/b", "");
  EXPECT_THAT([&] { write_whole_file(folder / "a", {"x"}); }, ThrowsCode(ErrorCode::kUnavailable, folder / "a"));
  EXPECT_EQ(rmdir(folder.path().c_str()), -1);
  std::remove((folder / "a/b").c_str());
  std::remove((folder / "a").c_str());
  EXPECT_EQ(rmdir(folder.path().c_str()), 0);
}

TEST(MappedFile, HasTheFilesBytesAndDoesNotChangeThem) {
  const ScratchFolder folder;
  const auto path = folder.write("a", "some bytes");
  const MappedFile file(path);
  EXPECT_EQ(file.bytes(), "some bytes");
  file.data()[0] = 'S';
  EXPECT_EQ(file.bytes(), "Some bytes");
  EXPECT_EQ(content_of(path), "some bytes");
  EXPECT_EQ(MappedFile(folder.write("empty", "")).size(), 0U);
}

TEST(MappedFile, SaysWhyAFileCannotBeOpened) {
  const ScratchFolder folder;
  EXPECT_THAT([&] { MappedFile file(folder / "none"); }, ThrowsCode(ErrorCode::kNotFound, folder / "none"));
  EXPECT_THAT([&] { MappedFile file(folder.path()); }, ThrowsCode(ErrorCode::kFailedPrecondition, folder.path()));
}

}  // namespace
}  // namespace lockstep::data
