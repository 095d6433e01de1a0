#include <unistd.h>

#include <condition_variable>
#include <future>
#include <map>

#include "lockstep/collective/engine_plugin.h"
#include "tests/engines/engine_cases.h"
#include "tests/support/testing.h"

// The ranks of a job as threads of one process. gloo_process_test.cc has those that need processes.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::code_of;
using testing::on_threads;
using testing::ThrowsCode;
using Engines = std::vector<std::unique_ptr<Transport>>;

class Store {
 public:
  void put(const std::string& key, const std::string& value) {
    const std::scoped_lock lock(mu_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mu_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); }))
      throw Error(ErrorCode::kDeadlineExceeded, str("nobody wrote ", key));
    return values_[key];
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // guarded by mu_
};

class Gloo : public ::testing::Test {
 protected:
  // A wait that does not end ends the program.
  Gloo() { alarm(120); }
  ~Gloo() override { alarm(0); }

  EngineSetup setup(int rank, int size) {
    return {.rank = rank,
            .size = size,
            .timeout = 20s,
            .put = [this](const std::string& key, const std::string& value) { store_.put(key, value); },
            .get = [this](const std::string& key) { return store_.get(key, 10s); },
            .check = [] {}};
  }

  Engines engines(int size, const std::string& name = "job") {
    Engines engines(size);
    on_threads(size, [&](int rank) {
      auto mine = setup(rank, size);
      mine.name = name;
      engines[rank] = make_engine("gloo", mine);
    });
    return engines;
  }

  Store store_;
};

// Calls that cannot end while another rank of the same size has not made them.
using Call = std::function<void(Transport&)>;
std::map<std::string, Call> waiting_calls() {
  static std::vector<std::byte> data(1 << 20);
  return {{"all_to_all",
           [](Transport& engine) {
             std::vector<std::vector<std::byte>> in(engine.size(), data);
             engine.all_to_all(std::vector<ConstBytes>(engine.size(), data), std::vector<Bytes>(in.begin(), in.end()));
           }},
          {"all_gather",
           [](Transport& engine) {
             std::vector<std::vector<std::byte>> parts(engine.size(), data);
             engine.all_gather(std::vector<Bytes>(parts.begin(), parts.end()));
           }},
          {"broadcast",
           [](Transport& engine) {
             auto copy = data;
             engine.broadcast(copy, engine.size() - 1);
           }},
          {"barrier", [](Transport& engine) { engine.barrier(); }},
          {"all_reduce", [](Transport& engine) {
             auto copy = data;
             engine.all_reduce(SumType::kFloat, copy);
           }}};
}

TEST_F(Gloo, EveryCallWithEverySize) {
  for (const int size : {1, 2, 3, 4}) {
    auto all = engines(size, str("job of ", size));
    on_threads(size, [&](int rank) {
      EXPECT_EQ(all[rank]->name(), "gloo");
      EXPECT_EQ(all[rank]->rank(), rank);
      EXPECT_EQ(all[rank]->size(), size);
      EXPECT_NO_THROW(testing::check_calls(*all[rank]));
    });
  }
}

// Every wait of a start can end before it has begun.
TEST_F(Gloo, ConnectsAgainAndAgain) {
  for (int round = 0; round < 150; ++round) EXPECT_EQ(engines(2, str("round ", round)).size(), 2U);
}

// The one whose address Gloo finds smaller waits for the other to come, without end; the other one connects, since its
// peer's system answers. Which one that is, is chance.
TEST_F(Gloo, WaitingForAPeerThatStopsWhileConnectingEndsWithTheJob) {
  for (int attempt = 0; attempt < 6; ++attempt) {
    const auto name = str("attempt", attempt);
    std::promise<void> is_over;
    on_threads(2, [&](int rank) {
      auto mine = setup(rank, 2);
      mine.name = name;
      const auto start = std::chrono::steady_clock::now();
      if (rank == 0)
        mine.check = [&] {
          if (std::chrono::steady_clock::now() - start > 200ms) throw Error(ErrorCode::kAborted, "worker 1 is gone");
        };
      else
        mine.put = [&](const std::string& key, const std::string& value) {
          store_.put(key, value);
          if (key != name + "/gloo/1") return;
          is_over.get_future().wait_for(10s);
          throw Error(ErrorCode::kCancelled, "was stopped");
        };
      const auto code = code_of([&] { make_engine("gloo", mine); });
      if (rank == 0) is_over.set_value();
      if (rank == 1) EXPECT_EQ(code, ErrorCode::kCancelled);
      else EXPECT_TRUE(!code || code == ErrorCode::kAborted) << name_of(*code);
      EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
    });
  }
}

TEST_F(Gloo, TwoEnginesOfAJobDoNotHearEachOther) {
  auto first = engines(2, "first");
  auto second = engines(2, "second");
  on_threads(4, [&](int i) {
    auto& engine = i < 2 ? *first[i] : *second[i - 2];
    for (int round = 0; round < 20; ++round) EXPECT_NO_THROW(testing::check_broadcast(engine, round % 2, i < 2 ? 1000 : 2000));
  });
}

TEST_F(Gloo, AbortEndsTheCallThatWaitsAndAllLaterOnes) {
  for (const auto& [name, call] : waiting_calls()) {
    auto all = engines(2, name);
    std::jthread aborter([&] {
      std::this_thread::sleep_for(100ms);
      all[0]->abort(Error(ErrorCode::kDeadlineExceeded, "it took too long"));
    });
    const auto time = testing::time_of(
        [&] { EXPECT_THAT([&] { call(*all[0]); }, ThrowsCode(ErrorCode::kDeadlineExceeded, "it took too long")) << name; });
    EXPECT_GT(time, 90ms) << name;
    EXPECT_LT(time, 1s) << name;
    aborter.join();
    all[0]->abort(Error(ErrorCode::kAborted, "once more"));
    for (const auto& [later, next] : waiting_calls())
      EXPECT_THAT([&] { next(*all[0]); }, ThrowsCode(ErrorCode::kDeadlineExceeded, "it took too long"))
          << name << ", " << later;
    // The others find out without a deadline of their own.
    EXPECT_EQ(code_of([&] { call(*all[1]); }), ErrorCode::kUnavailable) << name;
  }
}

TEST_F(Gloo, AnEngineThatGoesAwayEndsTheCallsOfTheOthers) {
  for (const auto& [name, call] : waiting_calls()) {
    auto all = engines(3, name);
    on_threads(3, [&](int rank) {
      if (rank == 2) {
        std::this_thread::sleep_for(100ms);
        all[2].reset();
        return;
      }
      const auto time =
          testing::time_of([&] { EXPECT_EQ(code_of([&] { call(*all[rank]); }), ErrorCode::kUnavailable) << name; });
      EXPECT_LT(time, 1s) << name;
      EXPECT_EQ(code_of([&] { all[rank]->barrier(); }), ErrorCode::kUnavailable) << name;
    });
  }
}

TEST_F(Gloo, ARankThatHasDoneItsPartMayLeaveBeforeTheOthers) {
  auto all = engines(3);
  // Ranks 1 and 2 have nothing to say to each other; 2 comes late.
  const auto bytes = [](int from, int to) { return from + to == 3 ? std::size_t{0} : std::size_t{100'000}; };
  on_threads(3, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(300ms);
    std::vector<std::vector<std::byte>> out(3), in(3);
    for (int peer = 0; peer < 3; ++peer) {
      out[peer] = testing::letter(rank, peer, bytes(rank, peer));
      in[peer].resize(bytes(peer, rank));
    }
    EXPECT_NO_THROW(
        all[rank]->all_to_all(std::vector<ConstBytes>(out.begin(), out.end()), std::vector<Bytes>(in.begin(), in.end())));
    const int peer = rank == 0 ? 2 : 0;
    EXPECT_TRUE(in[peer] == testing::letter(peer, rank, bytes(peer, rank)));
    if (rank == 1) all[1].reset();
  });
}

TEST_F(Gloo, PartsMustBeOneForEachRank) {
  auto all = engines(2);
  EXPECT_THAT([&] { all[0]->all_to_all({}, {}); }, ThrowsCode(ErrorCode::kInvalidArgument, "0 parts for 2 ranks"));
  EXPECT_THAT([&] { all[0]->all_gather(std::vector<Bytes>(3)); }, ThrowsCode(ErrorCode::kInvalidArgument, "3 parts"));
  // No harm was done.
  on_threads(2, [&](int rank) { EXPECT_NO_THROW(testing::check_all_gather(*all[rank], 1)); });
}

TEST_F(Gloo, AHostWithoutAddressIsAnError) {
  auto lost = setup(0, 2);
  lost.host = "no-such-host.invalid";
  EXPECT_THAT([&] { make_engine("gloo", lost); }, ThrowsCode(ErrorCode::kUnavailable, "no-such-host.invalid", "IP address"));
  lost.host = "203.0.113.7";
  EXPECT_THAT([&] { make_engine("gloo", lost); }, ThrowsCode(ErrorCode::kUnavailable, "203.0.113.7"));
}

TEST_F(Gloo, ASetupWithoutStoreIsAnError) {
  EXPECT_THAT([] { make_engine("gloo", {}); }, ThrowsCode(ErrorCode::kInvalidArgument, "no store"));
}

TEST_F(Gloo, WhatTheStoreThrowsComesThrough) {
  auto alone = setup(1, 2);
  alone.get = [this](const std::string& key) { return store_.get(key, 50ms); };
  EXPECT_THAT([&] { make_engine("gloo", alone); }, ThrowsCode(ErrorCode::kDeadlineExceeded, "nobody wrote job/gloo/"));
}

// Rank 0 publishes where it listens, and dies before rank 1 comes.
TEST_F(Gloo, APeerThatNeverConnectsIsAnErrorInTime) {
  auto dead = setup(0, 2);
  dead.get = [](const std::string&) -> std::string { throw Error(ErrorCode::kCancelled, "dead"); };
  EXPECT_EQ(code_of([&] { make_engine("gloo", dead); }), ErrorCode::kCancelled);
  auto alive = setup(1, 2);
  alive.timeout = 500ms;
  const auto time = testing::time_of([&] {
    EXPECT_THAT(code_of([&] { make_engine("gloo", alive); }),
                ::testing::AnyOf(ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded));
  });
  EXPECT_LT(time, 2s);
}

}  // namespace
}  // namespace lockstep
