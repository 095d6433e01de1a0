#include "lockstep/data/io/class_files.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

namespace lockstep::data::internal {
namespace {

using lockstep::testing::ScratchFolder;
using lockstep::testing::ThrowsCode;

ClassFiles find(const std::string& root) { return find_class_files("image_folder", root, {".jpg", ".png"}); }

TEST(ClassFiles, AreSortedByClassAndName) {
  const ScratchFolder folder;
  for (const auto* name : {"dogs", "cats", "cats/more", ".hidden"}) folder.make_folder(name);
  for (const auto* name :
       {"dogs/b.JPG", "dogs/a.png", "dogs/notes.txt", "dogs/.c.png", "cats/z.Png", "cats/more/y.jpg", ".hidden/a.png", "a.png"})
    folder.write(name, "");
  const auto found = find(folder.path());
  EXPECT_EQ(found.classes, (std::vector<std::string>{"cats", "dogs"}));
  EXPECT_EQ(found.files, (std::vector<std::string>{folder / "cats/more/y.jpg", folder / "cats/z.Png", folder / "dogs/a.png",
                                                   folder / "dogs/b.JPG"}));
  EXPECT_EQ(found.labels, (std::vector<std::int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(find(folder.path() + "/").files, found.files);
}

TEST(ClassFiles, FollowsLinksThatCannotLeadBack) {
  const ScratchFolder folder;
  folder.make_folder("elsewhere");
  folder.make_folder("elsewhere/cats");
  folder.write("elsewhere/cats/a.png", "");
  folder.make_folder("root");
  ASSERT_EQ(symlink("../elsewhere/cats", (folder / "root/cats").c_str()), 0);
  ASSERT_EQ(symlink("a.png", (folder / "elsewhere/cats/b.png").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", (folder / "elsewhere/cats/c.png").c_str()), 0);
  ASSERT_EQ(symlink("..", (folder / "elsewhere/cats/up").c_str()), 0);
  EXPECT_EQ(find(folder / "root").files, (std::vector<std::string>{folder / "root/cats/a.png", folder / "root/cats/b.png"}));
}

TEST(ClassFiles, ErrorsNameTheFolder) {
  const ScratchFolder folder;
  EXPECT_THAT([&] { find(folder / "none"); }, ThrowsCode(ErrorCode::kNotFound, "image_folder", folder / "none"));
  EXPECT_THAT([&] { find(folder.path()); }, ThrowsCode(ErrorCode::kNotFound, folder.path(), "sub-folder"));
  folder.write("file", "");
  EXPECT_THAT([&] { find(folder / "file"); }, ThrowsCode(ErrorCode::kNotFound, folder / "file", "Not a directory"));
  folder.make_folder("cats");
  folder.write("cats/notes.txt", "");
  EXPECT_THAT([&] { find(folder.path()); }, ThrowsCode(ErrorCode::kNotFound, folder / "cats", ".png"));
  // Any user can make a folder that nobody, not even root, can read: one behind a circle of links.
  ASSERT_EQ(symlink("circle", (folder / "circle").c_str()), 0);
  EXPECT_THAT([&] { find(folder / "circle"); }, ThrowsCode(ErrorCode::kFailedPrecondition, folder / "circle"));
}

}  // namespace
}  // namespace lockstep::data::internal
