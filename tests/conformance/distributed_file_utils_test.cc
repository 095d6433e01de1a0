#include "lockstep/checkpoint/distributed_file_utils.h"

#include "lockstep/checkpoint/file_layer.h"
#include "tests/conformance/testing.h"
#include "tests/support/scratch_folder.h"

// Where the workers of a job write files that one of them is enough to write.

namespace lockstep::testing {
namespace {

TEST(DistributedFiles, TheChiefWritesWhereItWasTold) {
  const ScratchFolder folder;
  EXPECT_EQ(write_dirpath(folder.path(), 0), folder.path());
  EXPECT_EQ(write_filepath(folder / "foo.bar", 0), folder / "foo.bar");
  const MirroredStrategy alone(cpus(2));
  EXPECT_EQ(write_filepath(folder / "foo.bar", alone), folder / "foo.bar");
  folder.write("foo.bar", "kept");
  remove_temp_dirpath(folder.path(), alone);
  remove_temp_dir_with_filepath(folder / "foo.bar", 0);
  EXPECT_THAT(real_files().list(folder.path()), ElementsAre("foo.bar"));
}

TEST(DistributedFiles, AnotherWorkerWritesBesideIt) {
  const ScratchFolder folder;
  EXPECT_EQ(write_dirpath(folder.path(), 3), folder / "workertemp_3");
  EXPECT_EQ(write_filepath(folder / "foo.bar", 3), folder / "workertemp_3/foo.bar");
  folder.write("workertemp_3/foo.bar", "to be removed");
  folder.write("other", "kept");
  remove_temp_dir_with_filepath(folder / "foo.bar", 3);
  EXPECT_THAT(real_files().list(folder.path()), ElementsAre("other"));
  folder.write("x", write_dirpath(folder / "deep/er", 3));
  remove_temp_dirpath(folder / "deep/er/workertemp_3", 3);  // what it gave serves too
  EXPECT_TRUE(real_files().list(folder / "deep/er").empty());
}

}  // namespace
}  // namespace lockstep::testing
