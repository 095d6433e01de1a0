#include "lockstep/cluster/reach.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>

#include "lockstep/base/on_exit.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using internal::Socket;
using ::testing::HasSubstr;

constexpr auto kSilence = 900ms;

// What came last.
std::string look_for(Reach& reach, std::chrono::milliseconds duration) {
  std::string last;
  for (const auto end = Deadline::after(duration); !end.has_passed(); std::this_thread::sleep_for(20ms))
    last = reach.look(/*is_wanted=*/true);
  return last;
}

// A port whose system answers until it is full, and then drops what comes, as a broken link would.
class Full {
 public:
  Full() : listener_(Socket::listen({"127.0.0.1", 0})) { ::listen(listener_.descriptor(), 0); }

  Address address() const { return {"127.0.0.1", listener_.port()}; }
  void fill() {
    auto ignored = Socket::Answer::kNotYet;
    for (int k = 0; k < 8; ++k) visitors_.push_back(Socket::begin_connect(address(), ignored));
  }

 private:
  Socket listener_;
  std::vector<Socket> visitors_;
};

TEST(Reach, APeerThatStopsAnsweringIsNamedAndOneThatHoldsItsPortIsNot) {
  Full full;
  const auto held = Socket::hold_port("127.0.0.1");
  Reach reach({{"worker 1", full.address()}, {"worker 2", {"127.0.0.1", held.port()}}}, kSilence);
  reach.greet();
  full.fill();
  EXPECT_EQ(look_for(reach, kSilence - 200ms), "");
  EXPECT_EQ(look_for(reach, 1s), str("worker 1 (127.0.0.1:", full.address().port, ")"));
  EXPECT_EQ(reach.look(/*is_wanted=*/false), "") << "nobody wants to know";
}

TEST(Reach, APortThatIsHeldAnswers) {
  const auto held = Socket::hold_port("127.0.0.1");
  auto answer = Socket::Answer::kNotYet;
  const auto socket = Socket::begin_connect({"127.0.0.1", held.port()}, answer);
  EXPECT_TRUE(socket.is_open());
  EXPECT_EQ(answer == Socket::Answer::kNotYet ? socket.answer() : answer, Socket::Answer::kYes);
}

// A broadcast address is one to which TCP knows no way: it is said at once.
TEST(Reach, NoWayIsNoAnswer) {
  auto answer = Socket::Answer::kNotYet;
  Socket::begin_connect({"255.255.255.255", 9}, answer);
  EXPECT_EQ(answer, Socket::Answer::kNo);
}

TEST(Reach, APeerThatNeverAnsweredIsNotJudged) {
  Full full;
  full.fill();
  Reach reach({{"worker 1", full.address()}}, kSilence);
  reach.greet();
  EXPECT_EQ(look_for(reach, kSilence + 300ms), "");
}

TEST(Reach, AProcessThatWasStoppedAsksAnew) {
  Full full;
  Reach reach({{"worker 1", full.address()}}, kSilence);
  reach.greet();
  full.fill();
  EXPECT_EQ(look_for(reach, kSilence - 200ms), "");
  std::this_thread::sleep_for(600ms);
  EXPECT_EQ(look_for(reach, 200ms), "");
  EXPECT_THAT(look_for(reach, kSilence), HasSubstr("worker 1"));
}

TEST(Reach, AProcessWithoutDescriptorsBlamesNobody) {
  Full full;
  Reach reach({{"worker 1", full.address()}}, kSilence);
  reach.greet();
  full.fill();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const OnExit restore([&] { setrlimit(RLIMIT_NOFILE, &before); });
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(look_for(reach, kSilence + 500ms), "");
}

}  // namespace
}  // namespace lockstep
