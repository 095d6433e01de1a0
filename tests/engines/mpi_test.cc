#include <cstdlib>

#include "lockstep/collective/engine_plugin.h"
#include "tests/engines/children.h"
#include "tests/engines/engine_cases.h"
#include "tests/support/shell.h"
#include "tests/support/testing.h"

// This program, started by mpirun.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

testing::Result mpirun(const std::string& child) {
  return testing::shell(str("timeout 60 ", LOCKSTEP_MPIRUN, " --allow-run-as-root --oversubscribe -n 3 ",
                            testing::this_program(), " --child=", child, " 2>&1"));
}

// Open MPI tells its processes who they are before MPI starts.
int number(const char* variable) {
  const char* text = std::getenv(variable);
  testing::must(text != nullptr, str("no ", variable, " in the environment"));
  return std::atoi(text);
}
EngineSetup setup() {
  return {.rank = number("OMPI_COMM_WORLD_RANK"), .size = number("OMPI_COMM_WORLD_SIZE"), .timeout = 30s, .put = {}, .get = {}};
}

const testing::Child calls("mpi_calls", [](const std::vector<std::string>&) {
  const auto first = make_engine("mpi", setup());
  const auto second = make_engine("mpi", setup());
  testing::must(first->name() == "mpi" && first->rank() == setup().rank && first->size() == 3, "who am I");
  testing::check_calls(*first);
  testing::check_calls(*second);
  // At the same time, in other orders: they do not hear each other.
  testing::on_threads(2, [&](int i) {
    for (int round = 0; round < 20; ++round)
      testing::check_broadcast(i == 0 ? *first : *second, round % 3, i == 0 ? 1000 : 2000);
  });
  testing::must(testing::code_of([&] { first->all_gather({}); }) == ErrorCode::kInvalidArgument, "no parts");
  first->barrier();
  return 0;
});

TEST(Mpi, EveryCallWithEverySize) {
  const auto result = mpirun("mpi_calls");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

const testing::Child wrong_place("mpi_wrong_place", [](const std::vector<std::string>&) {
  auto other = setup();
  other.size = 5;
  try {
    make_engine("mpi", other);
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
    return e.code() == ErrorCode::kFailedPrecondition ? 0 : 1;
  }
  return 1;
});

TEST(Mpi, AJobThatMpiSeesOtherwiseIsAnError) {
  const auto result = mpirun("mpi_wrong_place");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 1 of 5 in the job, and 1 of 3 in MPI; start the job with mpirun -n 5"));
}

// Rank 0 waits for the others, which do not call.
const testing::Child aborts("mpi_aborts", [](const std::vector<std::string>&) {
  const auto engine = make_engine("mpi", setup());
  if (engine->rank() != 0) {
    std::this_thread::sleep_for(30s);  // mpirun ends it when rank 0 is done
    return 0;
  }
  const auto wait = [&] {
    std::vector<std::vector<std::byte>> in(3, std::vector<std::byte>(1 << 20));
    engine->all_to_all(std::vector<ConstBytes>(3, in[0]), std::vector<Bytes>(in.begin(), in.end()));
  };
  std::jthread aborter([&] {
    std::this_thread::sleep_for(200ms);
    engine->abort(Error(ErrorCode::kDeadlineExceeded, "it took too long"));
  });
  const auto time = testing::time_of(
      [&] { testing::must(testing::code_of(wait) == ErrorCode::kDeadlineExceeded, "the error of the aborted call"); });
  testing::must(testing::code_of([&] { engine->barrier(); }) == ErrorCode::kDeadlineExceeded, "the error of a later call");
  if (time > 190ms && time < 1200ms) std::printf("aborted in time\n");
  std::fflush(stdout);
  return 0;
});

TEST(Mpi, AbortEndsTheCallThatWaitsAndTheProcessCanEnd) {
  const auto time = testing::time_of([] { EXPECT_THAT(mpirun("mpi_aborts").output, HasSubstr("aborted in time")); });
  EXPECT_LT(time, 20s);
}

}  // namespace
}  // namespace lockstep
