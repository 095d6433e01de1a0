#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "lockstep/base/on_exit.h"
#include "lockstep/collective/engine_plugin.h"
#include "tests/engines/children.h"
#include "tests/engines/engine_cases.h"
#include "tests/engines/folder_store.h"
#include "tests/support/testing.h"

// Peers that die, or stop, in the middle of a large message.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

using testing::setup_in_folder;

// Calls without end, each of 64 MB or more, so that a moment is nearly always in the middle of a message.
void call_for_ever(Transport& engine, bool is_sum) {
  std::vector<std::byte> data(std::size_t{64} << 20), other(data.size());
  for (;;) {
    if (is_sum) engine.all_reduce(SumType::kFloat, data);
    else engine.all_to_all(std::vector<ConstBytes>(2, data), std::vector<Bytes>(2, other));
  }
}

const testing::Child peer("gloo_peer", [](const std::vector<std::string>& arguments) {
  call_for_ever(*make_engine("gloo", setup_in_folder(1, 2, arguments[0])), arguments[1] == "sum");
  return 1;
});

// This process is rank 0, another is rank 1.
class GlooProcesses : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    alarm(60);
    folder_ = fs::path(::testing::TempDir()) / str("lockstep_gloo_", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    peer_ = testing::start_child("gloo_peer", {folder_.string(), GetParam()});
    engine_ = make_engine("gloo", setup_in_folder(0, 2, folder_));
  }
  void TearDown() override {
    end_peer();
    fs::remove_all(folder_);
    alarm(0);
  }

  void end_peer() {
    if (peer_ == 0) return;
    kill(peer_, SIGKILL);
    waitpid(peer_, nullptr, 0);
    peer_ = 0;
  }

  // What the calls end with, and that they do in time, when `happening` begins after they were under way for `delay`.
  std::optional<ErrorCode> end_by(std::chrono::milliseconds delay, const std::function<void()>& happening) {
    std::atomic<Clock::time_point> begun = Clock::time_point::max();
    std::jthread other([&] {
      std::this_thread::sleep_for(delay);
      begun = Clock::now();
      happening();
    });
    const auto code = testing::code_of([&] { call_for_ever(*engine_, GetParam() == "sum"); });
    EXPECT_LT(Clock::now(), begun.load() + 1s);
    return code;
  }

  fs::path folder_;
  pid_t peer_ = 0;
  std::unique_ptr<Transport> engine_;
};

TEST_P(GlooProcesses, APeerThatIsKilledInTheMiddleOfAMessageIsNoticed) {
  EXPECT_EQ(end_by(300ms, [&] { end_peer(); }), ErrorCode::kUnavailable);
  EXPECT_EQ(testing::code_of([&] { engine_->barrier(); }), ErrorCode::kUnavailable);
}

TEST_P(GlooProcesses, AbortEndsACallWhosePeerStopsInTheMiddleOfAMessage) {
  std::jthread stopper([&] {
    std::this_thread::sleep_for(300ms);
    kill(peer_, SIGSTOP);
  });
  const Error why(ErrorCode::kDeadlineExceeded, "it took too long");
  EXPECT_EQ(end_by(500ms, [&] { engine_->abort(why); }), ErrorCode::kDeadlineExceeded);
}

INSTANTIATE_TEST_SUITE_P(, GlooProcesses, ::testing::Values("exchange", "sum"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
