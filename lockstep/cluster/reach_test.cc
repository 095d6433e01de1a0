#include "lockstep/cluster/reach.h"

#include <sys/socket.h>

#include <thread>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto kSilence = 900ms;

// What came last.
std::string look_for(Reach& reach, std::chrono::milliseconds duration, const Doorstep* doorstep = nullptr) {
  std::string last;
  for (const auto end = Deadline::after(duration); !end.has_passed(); std::this_thread::sleep_for(20ms)) {
    last = reach.look(/*is_wanted=*/true);
    if (doorstep != nullptr) doorstep->clear();
  }
  return last;
}

// A port whose system answers until it is full, and then drops what comes, as a broken link would.
class Full {
 public:
  Full() : listener_(internal::Socket::listen({"127.0.0.1", 0})) { ::listen(listener_.descriptor(), 0); }

  Address address() const { return {"127.0.0.1", listener_.port()}; }
  void fill() {
    for (int k = 0; k < 8; ++k) visitors_.push_back(internal::Socket::begin_connect(address()));
  }

 private:
  internal::Socket listener_;
  std::vector<internal::Socket> visitors_;
};

TEST(Reach, APeerThatAnswersIsNotLost) {
  const Doorstep doorstep("127.0.0.1");
  Reach reach({{"worker 1", {"127.0.0.1", doorstep.port()}}}, kSilence);
  EXPECT_EQ(look_for(reach, kSilence + 300ms, &doorstep), "");
}

TEST(Reach, ARefusalIsAnAnswer) {
  const auto port = Doorstep("127.0.0.1").port();
  Reach reach({{"worker 1", {"127.0.0.1", port}}}, kSilence);
  EXPECT_EQ(look_for(reach, kSilence + 300ms), "") << "the machine is there; the coordinator knows about the process";
}

TEST(Reach, APeerThatStopsAnsweringIsNamed) {
  Full full;
  Reach reach({{"worker 1", full.address()}}, kSilence);
  reach.greet();
  full.fill();
  EXPECT_EQ(look_for(reach, kSilence - 200ms), "");
  EXPECT_THAT(look_for(reach, 1s), HasSubstr(str("worker 1 (127.0.0.1:", full.address().port, ")")));
  EXPECT_EQ(reach.look(/*is_wanted=*/false), "") << "nobody wants to know";
}

TEST(Reach, APeerThatNeverAnsweredIsNotJudged) {
  Full full;
  full.fill();
  Reach reach({{"worker 1", full.address()}}, kSilence);
  EXPECT_EQ(look_for(reach, kSilence + 300ms), "");
}

TEST(Reach, AProcessThatWasStoppedAsksAnew) {
  Full full;
  Reach reach({{"worker 1", full.address()}}, kSilence);
  EXPECT_EQ(look_for(reach, 200ms), "");
  full.fill();
  EXPECT_EQ(look_for(reach, kSilence - 200ms), "");
  std::this_thread::sleep_for(600ms);
  EXPECT_EQ(look_for(reach, 200ms), "");
}

}  // namespace
}  // namespace lockstep
