#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/on_exit.h"
#include "lockstep/collective/engine_plugin.h"
#include "tests/support/testing.h"

// How engines are found.

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ThrowsCode;

TEST(EnginePlugin, AnUnknownEngineIsAnErrorThatNamesTheKnownOnes) {
  EXPECT_THAT([] { make_engine("carrier_pigeon", {}); },
              ThrowsCode(ErrorCode::kUnimplemented, "engine carrier_pigeon", "no engine_carrier_pigeon.so in", "gloo, mpi"));
  EXPECT_THAT([] { make_engine("../gloo", {}); }, ThrowsCode(ErrorCode::kUnimplemented));
  std::string why;
  EXPECT_FALSE(has_engine("carrier_pigeon", &why));
  EXPECT_THAT(why, HasSubstr("no engine_carrier_pigeon.so"));
  EXPECT_FALSE(has_engine("carrier_pigeon"));
}

TEST(EnginePlugin, ARankOutsideTheJobIsAnError) {
  EXPECT_THAT([] { make_engine("gloo", {.rank = 2, .size = 2, .put = {}, .get = {}}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "no rank 2 of 2"));
}

TEST(EnginePlugin, TheFolderCanBeGiven) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / str("lockstep_engines_", getpid());
  std::filesystem::create_directories(folder);
  setenv("LOCKSTEP_ENGINES", folder.c_str(), 1);
  const OnExit clean([&] {
    unsetenv("LOCKSTEP_ENGINES");
    std::filesystem::remove_all(folder);
  });
  EXPECT_THAT([] { make_engine("gloo", {}); },
              ThrowsCode(ErrorCode::kUnimplemented, str("in ", folder.string()), "install libgloo-dev"));
  std::ofstream(folder / "engine_gloo.so") << "not a library";
  std::string why;
  EXPECT_FALSE(has_engine("gloo", &why));
  EXPECT_THAT(why, AllOf(HasSubstr((folder / "engine_gloo.so").string()), HasSubstr("file too short")));
}

TEST(EnginePlugin, EnginesOfThisBuildAreThere) {
  for (const std::string& engine : std::vector<std::string>{LOCKSTEP_BUILT_ENGINES}) {
    std::string why;
    EXPECT_TRUE(has_engine(engine, &why)) << why;
    EXPECT_EQ(why, "");
  }
}

}  // namespace
}  // namespace lockstep
