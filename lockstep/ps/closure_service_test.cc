#include "lockstep/ps/closure_service.h"

#include <ATen/ATen.h>

#include <atomic>
#include <latch>

#include "lockstep/ps/remote_function.h"
#include "lockstep/ps/task_error.h"
#include "tests/support/parcel.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using closures::Batch;
using closures::Ending;
using closures::Outcomes;
using closures::Work;
using testing::code_of;
using testing::Parcel;
using testing::ThrowsCode;

at::Tensor twice(const at::Tensor& x) { return x * 2; }
int count_letters(WorkerContext& worker, const std::string& text) {
  return static_cast<int>(text.size()) + 100 * worker.worker_index();
}

const auto kTwice = remote_function("service_test.twice", twice);
const auto kLetters = remote_function("service_test.letters", count_letters);
const auto kFail = remote_function("service_test.fail", [](int code) { throw Error(ErrorCode(code), "as asked"); });
const auto kPsGone =
    remote_function("service_test.ps_gone", [] { throw TaskError(ErrorCode::kUnavailable, "/job:ps/task:1", "gone"); });
const auto kForeign = remote_function("service_test.foreign", [] { throw std::runtime_error("not ours"); });
const auto kCounter =
    remote_function("service_test.counter", [](int start) { return std::make_unique<std::atomic<int>>(start); });
const auto kNext = remote_function("service_test.next", [](std::atomic<int>& counter) { return ++counter; });
const auto kIndex = remote_function("service_test.index", [](const InputContext& input) {
  return std::pair(input.input_pipeline_id, input.num_input_pipelines);
});

// A closure that a test holds.
struct Hold {
  std::latch begun{1};
  std::latch released{1};
  std::atomic<bool> was_cancelled = false;
};
std::atomic<Hold*> g_hold = nullptr;
const auto kHold = remote_function("service_test.hold", [](WorkerContext& worker) {
  auto& hold = *g_hold.load();
  hold.begun.count_down();
  hold.released.wait();
  hold.was_cancelled = worker.is_cancelled();
  if (hold.was_cancelled) throw Error(ErrorCode::kCancelled, "interrupted");
});

// Talks to a service as a coordinator does.
class Coordinator {
 public:
  explicit Coordinator(ClosureService& service, std::uint64_t id = 7) : methods_(service.methods()), id_(id) { hello(); }

  void hello() {
    incarnation_ =
        from_bytes<closures::Welcome>(ask(closures::kHello, {to_bytes(closures::Hello{id_, number_ + 1}), {}}).fields())
            .incarnation;
  }

  template <typename... Args>
  Work work(const std::string& function, const Args&... args) {
    Encoder encoder;
    (put(encoder, args), ...);
    for (auto& piece : encoder.take_payload()) payload_.push_back(std::move(piece));
    return {0, function, encoder.take_fields(), encoder.payload_bytes()};
  }
  template <typename... Args>
  Work creation(std::uint64_t id, const std::string& function, const Args&... args) {
    auto made = work(function, args...);
    made.id = id;
    return made;
  }

  Outcomes run(std::vector<Work> calls, std::vector<Work> creations = {}, std::vector<std::uint64_t> drops = {}) {
    const Batch batch{id_, incarnation_, ++number_, std::move(drops), std::move(creations), std::move(calls)};
    reply_ = std::make_unique<Parcel>(ask(closures::kRun, {to_bytes(batch), std::exchange(payload_, {})}));
    return from_bytes<Outcomes>(reply_->fields());
  }
  template <typename T>
  T result(const closures::Outcome& outcome) {
    EXPECT_EQ(outcome.ending, Ending::kDone) << outcome.text;
    return Decoder(outcome.result, *reply_, outcome.payload_bytes).get<T>();
  }
  void cancel(std::uint64_t batch) { ask(closures::kCancel, {to_bytes(closures::Cancel{id_, batch}), {}}); }
  std::uint64_t last_batch() const { return number_; }
  std::uint64_t incarnation() const { return incarnation_; }

 private:
  // A number alone stands for a per-worker value.
  static void put(Encoder& encoder, std::uint64_t id) {
    encoder.put(ArgumentKind::kPerWorker);
    encoder.put(id);
  }
  template <typename T>
  static void put(Encoder& encoder, const T& value) {
    encoder.put(ArgumentKind::kValue);
    encoder.put(value);
  }
  Parcel ask(const char* method, const Outgoing& request) {
    Parcel parcel(request);
    Outgoing reply;
    methods_.at(method).handler(parcel, reply);
    return Parcel(reply);
  }

  std::map<std::string, Method> methods_;
  const std::uint64_t id_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t number_ = 0;
  std::vector<Piece> payload_;
  std::unique_ptr<Parcel> reply_;
};

std::vector<Ending> endings(const std::vector<closures::Outcome>& outcomes) {
  std::vector<Ending> all;
  for (const auto& outcome : outcomes) all.push_back(outcome.ending);
  return all;
}

TEST(ClosureService, RunsABatchInOrderAndReturnsResultsAndErrors) {
  ClosureService service({.index = 2, .num_workers = 5}, {.batch_time = std::chrono::seconds(10)});
  Coordinator coordinator(service);
  const auto outcomes = coordinator.run(
      {coordinator.work(kTwice.name(), at::ones({3})), coordinator.work(kFail.name(), static_cast<int>(ErrorCode::kDataLoss)),
       coordinator.work(kLetters.name(), std::string("four")), coordinator.work("no such closure", at::ones({9})),
       coordinator.work(kTwice.name(), std::string("no tensor")), coordinator.work(kTwice.name(), at::full({2}, 5.0)),
       coordinator.work(kIndex.name()), coordinator.work(kForeign.name()), coordinator.work(kPsGone.name())});
  const auto& calls = outcomes.calls;
  EXPECT_TRUE(at::equal(coordinator.result<at::Tensor>(calls[0]), at::full({3}, 2.0F)));
  EXPECT_EQ(calls[1].ending, Ending::kFailed);
  EXPECT_EQ(calls[1].code, ErrorCode::kDataLoss);
  EXPECT_EQ(calls[1].text, "as asked");
  EXPECT_EQ(coordinator.result<int>(calls[2]), 204);
  EXPECT_EQ(calls[3].code, ErrorCode::kNotFound);
  EXPECT_THAT(calls[3].text, ::testing::HasSubstr("no such closure"));
  EXPECT_EQ(calls[4].code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(at::equal(coordinator.result<at::Tensor>(calls[5]), at::full({2}, 10.0)));
  EXPECT_EQ((coordinator.result<std::pair<int, int>>(calls[6])), std::pair(2, 5));
  EXPECT_EQ(calls[7].code, ErrorCode::kInternal);
  EXPECT_EQ(calls[7].task, "");
  EXPECT_EQ(calls[8].code, ErrorCode::kUnavailable);
  EXPECT_EQ(calls[8].task, "/job:ps/task:1");
  EXPECT_EQ(service.status().finished, 4U);
  EXPECT_EQ(service.status().failed, 5U);
}

TEST(ClosureService, GivesBackWhatComesAfterASlowClosure) {
  ClosureService service({}, {.batch_time = std::chrono::nanoseconds(0)});
  Coordinator coordinator(service);
  const auto outcomes = coordinator.run(
      {coordinator.work(kLetters.name(), std::string("a")), coordinator.work(kLetters.name(), std::string("b"))});
  EXPECT_EQ(endings(outcomes.calls), (std::vector{Ending::kDone, Ending::kNotRun}));
}

TEST(ClosureService, GivesBackWhatComesAfterALargeResult) {
  ClosureService service({}, {.batch_time = std::chrono::seconds(10), .batch_bytes = 1'000});
  Coordinator coordinator(service);
  const auto outcomes =
      coordinator.run({coordinator.work(kTwice.name(), at::ones({100})), coordinator.work(kTwice.name(), at::ones({200})),
                       coordinator.work(kTwice.name(), at::ones({1}))});
  EXPECT_EQ(endings(outcomes.calls), (std::vector{Ending::kDone, Ending::kDone, Ending::kNotRun}));
  EXPECT_EQ(service.status().finished, 2U);
}

TEST(ClosureService, KeepsWhatItMadeUntilItIsDropped) {
  ClosureService service({});
  Coordinator coordinator(service);
  auto outcomes =
      coordinator.run({coordinator.work(kNext.name(), std::uint64_t{1})}, {coordinator.creation(1, kCounter.name(), 10)});
  EXPECT_EQ(endings(outcomes.creations), (std::vector{Ending::kDone}));
  EXPECT_EQ(coordinator.result<int>(outcomes.calls[0]), 11);
  EXPECT_EQ(service.status().resources, 1U);

  // The same again: it is there, and is not made anew.
  outcomes =
      coordinator.run({coordinator.work(kNext.name(), std::uint64_t{1})}, {coordinator.creation(1, kCounter.name(), 10)});
  EXPECT_EQ(coordinator.result<int>(outcomes.calls[0]), 12);

  coordinator.run({}, {}, {1});
  EXPECT_EQ(service.status().resources, 0U);
}

TEST(ClosureService, SaysWhyAnInputCouldNotBeMadeToWhoeverUsesIt) {
  ClosureService service({.name = "/job:worker/task:4"}, {.batch_time = std::chrono::seconds(10)});
  Coordinator coordinator(service);
  const auto outcomes = coordinator.run(
      {coordinator.work(kNext.name(), std::uint64_t{1}), coordinator.work(kNext.name(), std::uint64_t{2}),
       coordinator.work(kNext.name(), std::uint64_t{3})},
      {coordinator.creation(1, kCounter.name(), std::string("no number")), coordinator.creation(2, kCounter.name(), 5),
       coordinator.creation(3, kLetters.name(), std::string("another type"))});
  EXPECT_EQ(endings(outcomes.creations), (std::vector{Ending::kFailed, Ending::kDone, Ending::kDone}));
  EXPECT_EQ(outcomes.calls[0].code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(outcomes.calls[0].text,
              ::testing::AllOf(::testing::HasSubstr("/job:worker/task:4"), ::testing::HasSubstr("kInvalidArgument")));
  EXPECT_EQ(coordinator.result<int>(outcomes.calls[1]), 6);
  EXPECT_EQ(outcomes.calls[2].code, ErrorCode::kInvalidArgument);
}

TEST(ClosureService, ServesTheLastCoordinatorThatSaidHello) {
  ClosureService service({});
  Coordinator first(service, 1);
  first.run({}, {first.creation(1, kCounter.name(), 10)});
  Coordinator second(service, 2);
  EXPECT_EQ(code_of([&] { first.run({}); }), ErrorCode::kAborted);
  second.run({});
  EXPECT_EQ(service.status().resources, 0U);

  ClosureService restarted({});
  EXPECT_NE(Coordinator(restarted).incarnation(), second.incarnation());
}

TEST(ClosureService, CancelsABatchThatRunsOrHasNotCome) {
  ClosureService service({}, {.batch_time = std::chrono::seconds(10)});
  Coordinator coordinator(service);
  Hold hold;
  g_hold = &hold;
  Outcomes outcomes;
  std::jthread running([&] {
    outcomes = coordinator.run({coordinator.work(kHold.name()), coordinator.work(kLetters.name(), std::string("later"))});
  });
  hold.begun.wait();
  EXPECT_THAT(service.status().function, ::testing::HasSubstr("hold"));
  coordinator.cancel(1);
  hold.released.count_down();
  running.join();
  EXPECT_EQ(endings(outcomes.calls), (std::vector{Ending::kFailed, Ending::kFailed}));
  EXPECT_EQ(outcomes.calls[1].code, ErrorCode::kCancelled);
  EXPECT_EQ(service.status().function, "");

  coordinator.cancel(coordinator.last_batch() + 1);  // is there before the batch
  outcomes = coordinator.run({coordinator.work(kLetters.name(), std::string("x"))});
  EXPECT_EQ(outcomes.calls[0].code, ErrorCode::kCancelled);
  outcomes = coordinator.run({coordinator.work(kLetters.name(), std::string("x"))});
  EXPECT_EQ(coordinator.result<int>(outcomes.calls[0]), 1);
}

TEST(ClosureService, GivesABatchBackWhileAnotherStillRuns) {
  ClosureService service({}, {.patience = std::chrono::milliseconds(10)});
  Coordinator coordinator(service);
  Hold hold;
  g_hold = &hold;
  Outcomes outcomes;
  std::jthread running([&] { outcomes = coordinator.run({coordinator.work(kHold.name())}); });
  hold.begun.wait();
  Coordinator next(service);  // the line was lost; the old batch is no longer wanted
  EXPECT_EQ(endings(next.run({next.work(kIndex.name())}).calls), (std::vector{Ending::kNotRun}));
  hold.released.count_down();
  running.join();
  EXPECT_TRUE(hold.was_cancelled);
  EXPECT_EQ(endings(next.run({next.work(kIndex.name())}).calls), (std::vector{Ending::kDone}));
}

TEST(ClosureService, EndsWhatRunsWhenItIsStopped) {
  ClosureService service({});
  Coordinator coordinator(service);
  Hold hold;
  g_hold = &hold;
  Outcomes outcomes;
  std::jthread running([&] { outcomes = coordinator.run({coordinator.work(kHold.name()), coordinator.work(kIndex.name())}); });
  hold.begun.wait();
  service.stop();
  hold.released.count_down();
  running.join();
  EXPECT_TRUE(hold.was_cancelled);
  // It is not their coordinator that does not want them: they can run elsewhere.
  EXPECT_EQ(endings(outcomes.calls), (std::vector{Ending::kNotRun, Ending::kNotRun}));
  EXPECT_EQ(code_of([&] { coordinator.run({coordinator.work(kIndex.name())}); }), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of([&] { coordinator.hello(); }), ErrorCode::kUnavailable);
}

TEST(ClosureService, RefusesABatchWhoseBytesAreNotAsItSays) {
  ClosureService service({});
  Coordinator coordinator(service);
  const auto short_of = coordinator.work(kTwice.name(), at::ones({3}));
  auto too_long = short_of;
  too_long.payload_bytes = ~std::uint64_t{0};
  EXPECT_EQ(code_of([&] { coordinator.run({too_long}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { coordinator.run({short_of}); }), ErrorCode::kInvalidArgument);
}

TEST(RemoteFunction, IsFoundByItsNameAndAsAFunction) {
  auto& registry = FunctionRegistry::global();
  EXPECT_EQ(Named<decltype(&twice)>::name(twice), "service_test.twice");
  EXPECT_THAT([&] { Named<double (*)(double)>::name([](double x) { return x; }); },
              ThrowsCode(ErrorCode::kInvalidArgument, "remote_function"));
  EXPECT_THAT([&] { registry.find("service_test.twise"); }, ThrowsCode(ErrorCode::kNotFound, "service_test.twise"));
}

TEST(RemoteFunction, WithoutANameIsNamedByItsType) {
  const auto one = [](int x) { return x + 1; };
  const auto two = [](int x) { return x + 2; };
  using One = std::remove_const_t<decltype(one)>;
  using Two = std::remove_const_t<decltype(two)>;
  EXPECT_NE(Named<One>::name(one), Named<Two>::name(two));
  EXPECT_TRUE(FunctionRegistry::global().find(Named<One>::name(one)).call);
}

TEST(RemoteFunction, MayComeAgainButNotAnotherOfTheSameName) {
  FunctionRegistry registry;
  registry.add(describe_function(&twice, "f"));
  registry.add(describe_function(&twice, "f"));
  registry.require_sound();
  registry.add(describe_function(&count_letters, "f"));
  EXPECT_THAT([&] { registry.require_sound(); }, ThrowsCode(ErrorCode::kInvalidArgument, "'f'"));
}

TEST(RemoteFunction, OfATypeWhoseNameIsTakenIsNumbered) {
  FunctionRegistry registry;
  const auto one = [](int x) { return x + 1; };
  const auto two = [](int x) { return x + 2; };
  EXPECT_EQ(registry.add_by_type(describe_function(one, "type")), "type");
  EXPECT_EQ(registry.add_by_type(describe_function(two, "type")), "type#2");
  EXPECT_EQ(registry.add_by_type(describe_function(one, "type")), "type");
  registry.require_sound();
}

}  // namespace
}  // namespace lockstep::ps
