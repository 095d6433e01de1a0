#include "lockstep/checkpoint/checkpoint_directory.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "lockstep/base/trace.h"
#include "tests/support/crashing_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::CrashingFiles;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::ScratchFolder;
using testing::ThrowsCode;

// A checkpoint whose only tensor says which it is.
struct Content {
  explicit Content(std::int64_t value) : text(5000, static_cast<char>('0' + value % 10)) {
    std::vector<SafetensorsEntry> tensors{{"w", "U8", {static_cast<std::int64_t>(text.size())}}};
    const auto header = make_safetensors_header(tensors);
    image.manifest.info.step = value;
    image.files = {{"weights.safetensors", header, {std::as_bytes(std::span(text)).first(1000), rest()}},
                   {Manifest::kStateFile, header, {std::as_bytes(std::span(text))}}};
  }
  std::span<const std::byte> rest() const { return std::as_bytes(std::span(text)).subspan(1000); }

  std::string text;
  CheckpointImage image;
};

std::int64_t save(CheckpointDirectory& directory, std::int64_t value, std::map<std::string, double> metrics = {}) {
  directory.prepare();
  Content content(value);
  content.image.manifest.number = directory.next_number();
  content.image.manifest.info.metrics = std::move(metrics);
  directory.write(content.image);
  return content.image.manifest.number;
}

// The value of the newest good one; -1: there is none.
std::int64_t restored(CheckpointDirectory& directory, std::vector<std::string>* damage = nullptr) {
  std::vector<std::string> reasons;
  const auto found = directory.open_newest(damage == nullptr ? reasons : *damage);
  if (!found) return -1;
  const auto value = found->manifest.info.step;
  const auto& file = found->files.at("weights.safetensors");
  EXPECT_EQ(file.bytes->bytes().substr(file.header.header_bytes), Content(value).text);
  return value;
}

void flip_byte(const std::string& path, std::size_t at) {
  auto bytes = testing::content_of(path);
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(CheckpointDirectory, KeepsTheNewest) {
  const ScratchFolder folder;
  CheckpointDirectory directory(folder / "a/b", {.max_to_keep = 2});
  EXPECT_EQ(restored(directory), -1);
  for (int value = 1; value <= 4; ++value) EXPECT_EQ(save(directory, value), value);
  EXPECT_THAT(directory.numbers(), ElementsAre(3, 4));
  EXPECT_EQ(restored(directory), 4);
  EXPECT_THAT(real_files().list(folder / "a/b"), ElementsAre(".lock", "ckpt-3", "ckpt-4"));
}

TEST(CheckpointDirectory, KeepsTheBestBesideThem) {
  const ScratchFolder folder;
  const Retention lowest{.max_to_keep = 1, .best_metric = "loss"};
  {
    CheckpointDirectory directory(folder.path(), lowest);
    for (const double loss : {3.0, 1.0, 2.0, std::nan("")}) save(directory, 7, {{"loss", loss}});
    EXPECT_THAT(directory.numbers(), ElementsAre(2, 4));
  }
  CheckpointDirectory again(folder.path(), lowest);  // knows it from the manifests
  EXPECT_EQ(again.best(), 2);
  save(again, 7);
  EXPECT_THAT(again.numbers(), ElementsAre(2, 5));
  save(again, 7, {{"loss", 0.5}});
  EXPECT_THAT(again.numbers(), ElementsAre(6));
}

TEST(CheckpointDirectory, HighestCanBeBest) {
  const ScratchFolder folder;
  CheckpointDirectory directory(folder.path(), {.max_to_keep = 1, .best_metric = "accuracy", .better = Better::kHigher});
  for (const double accuracy : {0.5, 0.9, 0.7}) save(directory, 7, {{"accuracy", accuracy}});
  EXPECT_THAT(directory.numbers(), ElementsAre(2, 3));
}

TEST(CheckpointDirectory, DamageIsFoundNamedAndStepsAside) {
  const ScratchFolder folder;
  CheckpointDirectory directory(folder.path(), {.max_to_keep = 0});
  for (int value = 1; value <= 6; ++value) save(directory, value);
  flip_byte(folder / "ckpt-6/weights.safetensors", 3000);
  flip_byte(folder / "ckpt-5/manifest.json", 200);
  ASSERT_EQ(truncate((folder / "ckpt-4/state.safetensors").c_str(), 100), 0);
  real_files().remove(folder / "ckpt-3/state.safetensors");
  real_files().remove(folder / "ckpt-2/manifest.json");
  std::vector<std::string> damage;
  EXPECT_EQ(restored(directory, &damage), 1);
  EXPECT_THAT(damage, ElementsAre(HasSubstr("ckpt-6/weights.safetensors' is damaged: its checksum"),
                                  HasSubstr("ckpt-5/manifest.json' is damaged"), HasSubstr("it has 100 bytes of"),
                                  HasSubstr("ckpt-3/state.safetensors' is missing"), HasSubstr("ckpt-2/manifest.json")));
  save(directory, 7);  // never under the number of one that was there
  EXPECT_THAT(directory.numbers(), ElementsAre(1, 7));
}

TEST(CheckpointDirectory, AFolderInPlaceOfAFileIsDamage) {
  const ScratchFolder folder;
  CheckpointDirectory directory(folder.path(), {.max_to_keep = 0});
  for (int value = 1; value <= 3; ++value) save(directory, value);
  for (const char* name : {"ckpt-3/weights.safetensors", "ckpt-2/manifest.json"}) {
    real_files().remove(folder / name);
    folder.make_folder(name);
  }
  std::vector<std::string> damage;
  EXPECT_EQ(restored(directory, &damage), 1);
  EXPECT_THAT(damage, ElementsAre(HasSubstr("ckpt-3/weights.safetensors' is damaged: it is a folder"),
                                  HasSubstr("ckpt-2/manifest.json' is damaged: it is a folder")));
  save(directory, 4);
  EXPECT_THAT(directory.numbers(), ElementsAre(1, 4));
}

TEST(CheckpointDirectory, TwoWritersAreToldOfEachOther) {
  const ScratchFolder folder;
  CheckpointDirectory first(folder.path(), {});
  save(first, 1);
  CheckpointDirectory second(folder.path(), {});
  EXPECT_EQ(restored(second), 1);  // reading is free
  EXPECT_THAT([&] { second.prepare(); },
              ThrowsCode(ErrorCode::kFailedPrecondition, folder.path(), str("process ", getpid(), " on ")));
}

TEST(CheckpointDirectory, RemovesEverythingOnRequest) {
  const ScratchFolder folder;
  CheckpointDirectory directory(folder / "x", {});
  save(directory, 1);
  directory.remove_all();
  EXPECT_TRUE(real_files().list(folder.path()).empty());
  save(directory, 2);
  EXPECT_EQ(restored(directory), 2);
}

// A mount point cannot be removed, nor what stands in a folder that may not be written to.
TEST(CheckpointDirectory, WhatCannotBeRemovedStaysWithAWarning) {
  bool has_ended = true;
  for (int call = 0; has_ended; ++call) {
    const ScratchFolder folder;
    CrashingFiles files(folder.path());
    const LogCapture log;
    CheckpointDirectory directory(folder / "x", {}, files);
    save(directory, 1);
    files.end_at(call, CrashingFiles::End::kError);
    EXPECT_NO_THROW(directory.remove_all()) << call;
    has_ended = files.has_ended();
    EXPECT_TRUE(call > 0 || !log.warnings().empty());
    EXPECT_EQ(real_files().list(folder.path()).empty(), log.warnings().empty()) << call;
  }
}

// Whoever ends removes the file that others have opened and not locked yet.
TEST(DirectoryLock, OfAFileThatIsRemovedIsNone) {
  const ScratchFolder folder;
  std::atomic<int> holders = 0;
  std::atomic<int> most = 0;
  testing::on_threads(4, [&](int) {
    for (int i = 0; i < 400; ++i) {
      try {
        const DirectoryLock lock(folder.path());
        most = std::max(most.load(), ++holders);
        std::this_thread::yield();
        --holders;
        unlink((folder / DirectoryLock::kFileName).c_str());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
      }
    }
  });
  EXPECT_EQ(most, 1);
}

TEST(CheckpointDirectory, ShowsInTraces) {
  const ScratchFolder folder;
  CheckpointDirectory directory(folder.path(), {});
  trace::start();
  save(directory, 1);
  restored(directory);
  std::vector<std::string> names;
  for (const auto& thread : trace::stop().threads)
    for (const auto& span : thread.spans)
      if (span.category == trace::Category::kCheckpoint) names.push_back(str(span.name, " ", span.first.value));
  EXPECT_THAT(names, ElementsAre("write checkpoint 1", "read checkpoint 1"));
}

TEST(CheckpointDirectory, APlaceThatCannotBeWrittenIsNamed) {
  const ScratchFolder folder;
  const auto file = folder.write("file", "");
  CheckpointDirectory in_a_file(file + "/x", {});
  EXPECT_THAT([&] { in_a_file.prepare(); }, ThrowsCode(ErrorCode::kNotFound, file));
  CheckpointDirectory read_only("/sys/lockstep", {});
  EXPECT_THAT([&] { read_only.prepare(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "/sys/lockstep"));
  Content content(1);
  EXPECT_THAT([&] { write_checkpoint(real_files(), file, content.image); },
              ThrowsCode(ErrorCode::kFailedPrecondition, file, "is there already"));
}

// While it lives, no file can be larger.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(CheckpointDirectory, ADiskThatTakesNoMoreKeepsTheLastGoodOne) {
  const ScratchFolder folder;
  CheckpointDirectory directory(folder / "d", {.max_to_keep = 1});
  save(directory, 1);
  {
    const FileLimit limit(2000);
    EXPECT_THAT([&] { save(directory, 2); }, ThrowsCode(ErrorCode::kUnavailable, "d/ckpt-2.part/weights.safetensors"));
  }
  EXPECT_THAT(real_files().list(folder / "d"), ElementsAre(".lock", "ckpt-1"));
  EXPECT_EQ(restored(directory), 1);
  save(directory, 3);
  EXPECT_EQ(restored(directory), 3);
}

// Note [cut at every call]
// Three checkpoints are saved with room for two, so that writing, renaming and removing all happen; the third save ends at
// every call that it makes, in every way. Whatever is found then must be the second or the third, and the next save must work.
class CutSave : public ::testing::TestWithParam<std::pair<CrashingFiles::End, CrashingFiles::Loss>> {};

TEST_P(CutSave, AtEveryCallTheLastOrTheNewOneIsThere) {
  const auto [end, loss] = GetParam();
  bool has_ended = true;
  int cuts = 0;
  for (int call = 0; has_ended; ++call) {
    const ScratchFolder folder;
    CrashingFiles files(folder.path());
    bool is_saved = false;
    {
      CheckpointDirectory directory(folder / "d", {.max_to_keep = 2}, files);
      save(directory, 1);
      save(directory, 2);
      files.end_at(call, end);
      try {
        save(directory, 3);
        is_saved = true;
      } catch (const std::exception&) {
      }
      has_ended = files.has_ended();
      if (end == CrashingFiles::End::kError && !is_saved) {
        EXPECT_THAT(real_files().list(folder / "d"), ::testing::Not(::testing::Contains(HasSubstr(".part")))) << call;
      }
    }
    if (end == CrashingFiles::End::kCrash) files.start_again(loss);
    files.end_at(-1, end);
    CheckpointDirectory directory(folder / "d", {.max_to_keep = 2}, files);
    std::vector<std::string> damage;
    const auto value = restored(directory, &damage);
    EXPECT_TRUE(value == 3 || (value == 2 && !is_saved)) << "cut at call " << call << ": restored " << value;
    EXPECT_TRUE(damage.empty()) << call << damage[0];
    save(directory, 4);
    EXPECT_EQ(restored(directory), 4) << call;
    EXPECT_EQ(directory.numbers().size(), 2U) << call;
    for (const auto& name : real_files().list(folder / "d"))
      EXPECT_TRUE(name == ".lock" || name.find('.') == std::string::npos) << call << name;
    cuts += has_ended ? 1 : 0;
  }
  EXPECT_GE(cuts, 15);
}

using Ways = CrashingFiles;
INSTANTIATE_TEST_SUITE_P(Ways, CutSave,
                         ::testing::Values(std::pair(Ways::End::kError, Ways::Loss::kNothing),
                                           std::pair(Ways::End::kCrash, Ways::Loss::kNothing),
                                           std::pair(Ways::End::kCrash, Ways::Loss::kUnsynced),
                                           std::pair(Ways::End::kCrash, Ways::Loss::kUnsyncedData),
                                           std::pair(Ways::End::kCrash, Ways::Loss::kTorn)));

}  // namespace
}  // namespace lockstep
