#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/ps/fields.h"
#include "tests/support/replicated.h"

// What replicated groups keep when servers are lost. Note [replication]

namespace lockstep::ps {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::ThrowsCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Operation::Kind;

TEST_F(Replicated, BothServersHaveTheSameBits) {
  const auto large = at::rand({3, 1 << 20});  // three pieces
  make(0, "a", at::rand({4, 3}), "0.5");
  make(1, "table", at::rand({10, 2}), "0.1");
  make(1, "large", large);
  make(0, "gone", at::ones({2}));
  for (int i = 0; i < 5; ++i) {
    client->update({{0, "a", Kind::kGradient, at::rand({4, 3})},
                    {1, "table", Kind::kGradientRows, at::rand({3, 2}), at::tensor({1, 7, 1}, at::kLong)},
                    {1, "large", Kind::kAdd, large}});
  }
  client->update({{0, "a", Kind::kSetLearningRate, {}, {}, 0.25}});
  client->update({{0, "a", Kind::kGradient, at::rand({4, 3})}});
  client->remove(0, {"gone"});
  expect_same_on_both(0, "a", 7);
  expect_same_on_both(1, "table", 5);
  expect_same_on_both(1, "large", 5);
  EXPECT_EQ(servers[0].host->store(0)->find("gone"), nullptr);
  EXPECT_EQ(servers[1].host->store(0)->find("gone"), nullptr);
  for (const std::uint32_t group : {0U, 1U}) {
    const auto id = client->id_at(group);
    EXPECT_EQ(servers[0].host->store(group)->client_state(id).last_done,
              servers[1].host->store(group)->client_state(id).last_done);
  }
  // What is refused changes nothing anywhere.
  EXPECT_EQ(code_of([&] {
              client->update({{1, "table", Kind::kAddRows, at::ones({1, 2}), at::tensor({10}, at::kLong)}});
            }),
            ErrorCode::kOutOfRange);
  expect_same_on_both(1, "table", 5);
}

// What is wrong with it the servers find in its values, each by itself: it must be the same for both.
TEST_F(Replicated, AnUpdateThatIsRefusedChangesNothingOnBoth) {
  make(0, "table", at::zeros({10, 2}));
  make(0, "numbers", at::ones({4, 1}, at::kLong));
  const auto id = client->id_at(0);
  const auto bad_row = [&] {
    client->update({{0, "table", Kind::kAddRows, at::ones({1, 2}), at::tensor({3}, at::kLong)},
                    {0, "table", Kind::kAddRows, at::ones({1, 2}), at::tensor({10}, at::kLong)}});
  };
  const auto by_zero = [&] {
    client->update({{0, "numbers", Kind::kDivRows, at::zeros({1, 1}, at::kLong), at::tensor({0}, at::kLong)}});
  };
  EXPECT_EQ(code_of(bad_row), ErrorCode::kOutOfRange);
  EXPECT_EQ(code_of(by_zero), ErrorCode::kInvalidArgument);
  expect_same_on_both(0, "table", 0);
  expect_same_on_both(0, "numbers", 0);
  client->update({{0, "table", Kind::kAddRows, at::ones({2, 2}), at::tensor({3, 9}, at::kLong)}});
  expect_same_on_both(0, "table", 1);
  EXPECT_EQ(copy(1, 0, "table").value.sum().item<double>(), 4);
  EXPECT_EQ(servers[0].host->store(0)->client_state(id).last_done, servers[1].host->store(0)->client_state(id).last_done);
  EXPECT_EQ(keeper->views()[0].epoch, 1U);  // nobody has lost touch
}

TEST_F(Replicated, PiecesArePassedOnAsTheyCome) {
  const auto large = at::rand({3, 1 << 20});  // three pieces
  auto& way = *servers[0].ways[1];
  make(0, "large", large);
  EXPECT_EQ(way.pieces, 3);
  // Beside what is small: some of it goes before the update, some in it.
  make(0, "rows", at::zeros({1000, 8}));
  const auto ids = at::arange(500, at::kLong);
  client->update({{0, "rows", Kind::kAddRows, at::rand({500, 8}), ids},
                  {0, "large", Kind::kAdd, large},
                  {0, "rows", Kind::kAddRows, at::rand({500, 8}), ids}});
  EXPECT_EQ(way.pieces, 6);
  expect_same_on_both(0, "large", 1);
  expect_same_on_both(0, "rows", 2);
  EXPECT_TRUE(copy(1, 0, "large").value.equal(large + large));
  EXPECT_EQ(servers[0].host->store(0)->statistics().staged_bytes, 0U);
  EXPECT_EQ(servers[1].host->store(0)->statistics().staged_bytes, 0U);
}

TEST_F(Replicated, PiecesThatDidNotReachTheBackupAreSentWithTheirUpdate) {
  const auto large = at::rand({3, 1 << 20});
  auto& way = *servers[0].ways[1];
  make(0, "large", large);
  way.refused_pieces = 1;
  client->update({{0, "large", Kind::kAdd, large}});
  EXPECT_EQ(way.pieces, 3 + 3 + 3);
  expect_same_on_both(0, "large", 1);
  // The backup says only when the update comes that it has not got all.
  way.swallowed_pieces = 1;
  client->update({{0, "large", Kind::kAdd, large}});
  EXPECT_EQ(way.pieces, 9 + 3 + 3);
  expect_same_on_both(0, "large", 2);
  EXPECT_TRUE(copy(1, 0, "large").value.equal(large + large + large));
  EXPECT_EQ(keeper->views()[0].epoch, 1U);
}

// The pieces are at the old primary and its backup, the update comes to the new one.
TEST_F(Replicated, AnUpdateInPiecesIsDoneOnceWhenThePrimaryIsLostInBetween) {
  const auto large = at::rand({3, 1 << 20});
  make(0, "large", at::zeros_like(large));
  std::atomic<int> done{0};
  std::atomic<bool> is_over{false};
  {
    const auto writer = start_thread("writes", [&](std::stop_token) {
      for (; !is_over; ++done) client->update({{0, "large", Kind::kAdd, large}});
    });
    for (const std::size_t victim : {0U, 1U, 0U}) {
      for (const int seen = done; done < seen + 3;) std::this_thread::yield();
      stop(victim);
      for (const int seen = done; done < seen + 3;) std::this_thread::yield();
      start(victim);
      EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
    }
    is_over = true;
  }
  expect_same_on_both(0, "large", static_cast<std::uint64_t>(done));
  auto wanted = at::zeros_like(large);
  for (int i = 0; i < done; ++i) wanted.add_(large);
  EXPECT_TRUE(copy(0, 0, "large").value.equal(wanted));
}

// Each thread counts what was acknowledged to it.
TEST_F(Replicated, NothingAcknowledgedIsLostWithAServer) {
  constexpr int kThreads = 4;
  make(0, "count", at::zeros({4}, at::kLong));
  make(1, "count", at::zeros({4}, at::kLong));
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> is_over{false};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.push_back(start_thread("counts", [&](std::stop_token) {
        const auto mine = make_client();
        for (; !is_over; ++done)
          mine->update(
              {{0, "count", Kind::kAdd, at::ones({4}, at::kLong)}, {1, "count", Kind::kAdd, at::ones({4}, at::kLong)}});
      }));
    for (const std::size_t victim : {0U, 1U, 0U}) {
      for (const auto seen = done.load(); done < seen + 50;) std::this_thread::yield();
      stop(victim);
      for (const auto seen = done.load(); done < seen + 50;) std::this_thread::yield();  // the other one goes on
      start(victim);
      EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
    }
    is_over = true;
  }
  for (const std::size_t group : {0U, 1U}) {
    const auto count = at::empty({4}, at::kLong);
    EXPECT_EQ(client->read({{group, "count", count}})[0].version, static_cast<std::uint64_t>(done));
    EXPECT_TRUE(count.equal(at::full({4}, done.load(), at::kLong)));
    expect_same_on_both(static_cast<std::uint32_t>(group), "count", static_cast<std::uint64_t>(done));
  }
}

// The coordinator does not see server 0 any more, and replaces it; server 0 lives, and has not heard of it.
TEST_F(Replicated, APrimaryThatWasReplacedAcknowledgesNothing) {
  make(0, "v", at::zeros({2}));
  from_keeper[0]->is_cut = true;
  ASSERT_TRUE(comes_true([&] { return keeper->views()[0].primary == 1; }));
  // Straight to the old primary, as a client does that knows nothing.
  const UpdateRequest request{{77, 1, 1},
                              {{.name = "v", .kind = Kind::kAdd, .dtype = static_cast<std::int8_t>(at::kFloat), .shape = {2}}}};
  const auto ones = at::ones({2});
  const auto call = [&] {
    ways()[0]
        ->start(methods::kGroupCall,
                {to_bytes(GroupCall{0, 1, methods::kUpdate, to_bytes(request)}), {testing::piece_of(ones)}}, soon())
        ->wait();
  };
  EXPECT_EQ(code_of(call), ErrorCode::kUnavailable);
  client->update({{0, "v", Kind::kAdd, at::full({2}, 5.0F)}});
  EXPECT_TRUE(copy(1, 0, "v").value.equal(at::full({2}, 5.0F)));
  from_keeper[0]->is_cut = false;
  EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
  expect_same_on_both(0, "v", 1);
}

// It may answer reads a little longer than it acknowledges changes: for half a second.
TEST_F(Replicated, APrimaryThatWasReplacedSoonAnswersNoReads) {
  make(0, "v", at::zeros({2}));
  const auto read_at_old = [&] {
    const GroupCall call{0, 1, methods::kRead, to_bytes(ReadRequest{{{.name = "v"}}})};
    ways()[0]->start(methods::kGroupCall, {to_bytes(call)}, soon())->wait();
  };
  read_at_old();
  from_keeper[0]->is_cut = true;
  ASSERT_TRUE(comes_true([&] { return keeper->views()[0].primary == 1; }));
  client->update({{0, "v", Kind::kAdd, at::ones({2})}});
  for (const auto later = Deadline::after(milliseconds(500)); !later.has_passed();) std::this_thread::yield();
  EXPECT_THAT(read_at_old, ThrowsCode(ErrorCode::kUnavailable, "is not the primary of group 0"));
}

// Whether it is the primary still, only its backup could tell it.
TEST_F(Replicated, APrimaryThatCannotAskItsBackupAnswersNoReads) {
  make(0, "v", at::zeros({2}));
  keeper.reset();
  const auto read = [&] { client->read({{0, "v", at::empty({2})}}, Deadline::after(milliseconds(300))); };
  servers[0].ways[1]->is_cut = true;
  EXPECT_TRUE(comes_true([&] { return code_of(read) != std::nullopt; }));
  const auto code = code_of(read);
  EXPECT_TRUE(code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded);
  servers[0].ways[1]->is_cut = false;
  client->read({{0, "v", at::empty({2})}});
}

// Its backup hears of a view before it does, in which it is the primary as before.
TEST_F(Replicated, APrimaryThatIsNotReplacedStaysThat) {
  make(0, "v", at::zeros({2}));
  keeper.reset();
  const GroupView next{.group = 0, .epoch = 2, .primary = 0, .primary_incarnation = servers[0].host->incarnation()};
  const auto install = [&](std::size_t server) {
    ways()[server]->start(methods::kGroupInstall, {to_bytes(InstallRequest{2, {next}})}, soon())->wait();
  };
  install(1);
  const auto update = [&](const Deadline& deadline) { client->update({{0, "v", Kind::kAdd, at::ones({2})}}, deadline); };
  const auto code = code_of([&] { update(Deadline::after(milliseconds(300))); });
  EXPECT_TRUE(code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded);
  install(0);
  update(soon());
  EXPECT_TRUE(copy(0, 0, "v").value.equal(at::full({2}, 2.0F)));  // the first was done, and nobody has it in another way
}

TEST_F(Replicated, AServerThatComesBackIsFilledWhileOthersWrite) {
  std::vector<at::Tensor> values;
  for (int i = 0; i < 20; ++i) {
    values.push_back(at::rand({100, 7}));
    make(0, str("v", i), values.back(), "0.5");
    client->update({{0, str("v", i), Kind::kGradient, at::rand({100, 7})}});
  }
  make(0, "large", at::rand({3, 1 << 20}));
  std::atomic<int> done{0};
  std::atomic<bool> is_over{false};
  {
    const auto writer = start_thread("writes", [&](std::stop_token) {
      for (; !is_over; ++done) {
        client->update({{0, str("v", done % 20), Kind::kGradient, at::rand({100, 7})}});
        if (done % 10 == 5) make(0, str("later", done.load()), at::rand({3}));
      }
    });
    // The backup has v0 early, and v9 late: it cannot see what is wrong, and must not do the half of it.
    const auto refused = start_thread("is refused", [&](std::stop_token) {
      const auto mine = make_client();
      const auto update = [&] {
        mine->update({{0, "v0", Kind::kAddRows, at::ones({1, 7}), at::tensor({3}, at::kLong)},
                      {0, "v9", Kind::kAddRows, at::ones({1, 7}), at::tensor({100}, at::kLong)}});
      };
      while (!is_over) EXPECT_EQ(code_of(update), ErrorCode::kOutOfRange);
    });
    stop(1);
    for (const int seen = done; done < seen + 20;) std::this_thread::yield();
    start(1);
    EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
    for (const int seen = done; done < seen + 20;) std::this_thread::yield();
    is_over = true;
  }
  for (const auto& variable : servers[0].host->store(0)->variables())
    expect_same_on_both(0, variable->name(), variable->version());
  EXPECT_EQ(servers[1].host->store(0)->variables().size(), servers[0].host->store(0)->variables().size());
  const auto id = client->id_at(0);
  EXPECT_EQ(servers[0].host->store(0)->client_state(id).last_done, servers[1].host->store(0)->client_state(id).last_done);
}

// The backup is at it when it becomes the primary, and the client repeats it there.
TEST_F(Replicated, WhatALostPrimaryHasSentIsDoneOnce) {
  make(0, "w", at::zeros({2}));
  std::jthread writer;
  servers[1].host->store(0)->find("w")->look([&](const at::Tensor&, const UpdateRule*, std::uint64_t) {
    writer = start_thread("writes", [&](std::stop_token) { client->update({{0, "w", Kind::kAdd, at::ones({2})}}); });
    EXPECT_TRUE(comes_true([&] { return servers[0].host->store(0)->find("w")->version() == 1; }));
    stop(0);
    const auto until = Deadline::after(seconds(2));  // longer than it takes to notice that it is lost
    EXPECT_TRUE(comes_true([&] { return until.has_passed(); }));
  });
  writer.join();
  const auto value = at::empty({2});
  EXPECT_EQ(client->read({{0, "w", value}})[0].version, 1U);
  EXPECT_TRUE(value.equal(at::ones({2})));
}

TEST_F(Replicated, WhenBothAreLostItIsSaidWhichVariablesAre) {
  make(0, "weights", at::ones({2}));
  ASSERT_TRUE(comes_true([&] {  // the keeper has heard their names
    return servers[0].host->store(0)->names_changed() > 0 && keeper->is_complete();
  }));
  from_keeper[0]->is_cut = from_keeper[1]->is_cut = true;
  stop(0);
  stop(1);
  start(0);
  start(1);
  from_keeper[0]->is_cut = from_keeper[1]->is_cut = false;
  const auto read = [&] { client->read({{0, "weights", at::empty({2})}}, soon()); };
  EXPECT_THAT(read, ThrowsCode(ErrorCode::kDataLoss, "group 0", "are lost"));
  EXPECT_EQ(code_of([&] { make(0, "weights", at::ones({2})); }), ErrorCode::kDataLoss);
}

TEST_F(Replicated, ARestartedCoordinatorFindsTheViews) {
  make(0, "v", at::zeros({2}));
  stop(0);
  ASSERT_TRUE(comes_true([&] { return keeper->views()[0].primary == 1; }));
  keeper.reset();
  start(0);
  keeper = make_keeper();
  EXPECT_EQ(keeper->views()[0].primary, 1U);
  client->update({{0, "v", Kind::kAdd, at::ones({2})}});
  expect_same_on_both(0, "v", 1);
}

// Without a coordinator nobody decides: a primary whose backup is gone acknowledges nothing.
TEST_F(Replicated, APrimaryDoesNotGoOnAloneByItself) {
  make(0, "v", at::zeros({2}));
  keeper.reset();
  stop(1);
  const auto update = [&] { client->update({{0, "v", Kind::kAdd, at::ones({2})}}, Deadline::after(milliseconds(500))); };
  const auto code = code_of(update);
  EXPECT_TRUE(code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded);
  start(1);
  keeper = make_keeper();
  client->update({{0, "v", Kind::kAdd, at::ones({2})}});
  expect_same_on_both(0, "v", 2);  // the first one was done, and is kept now
}

TEST(Replication, IsOneNumberForAllCoordinators) {
  ReplicaHost host(
      {.server = 0, .servers = {target_of(std::make_shared<RpcChannel>("/job:ps/task:0", Address{"127.0.0.1", 1}))}});
  const testing::MethodTable methods(host.methods());
  const auto install = [&](std::uint32_t replication) {
    return [&methods, replication] {
      methods.call(methods::kGroupInstall, Outgoing{to_bytes(InstallRequest{replication, {}})});
    };
  };
  install(1)();
  EXPECT_EQ(code_of(install(2)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(host.status().replication, 1U);
}

}  // namespace
}  // namespace lockstep::ps
