#include <ATen/ATen.h>
#include <sys/resource.h>

#include <cstdlib>

#include "lockstep/ps/closure_service.h"
#include "lockstep/ps/remote_function.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/store.h"
#include "tests/support/mutations.h"
#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

// Requests that are almost right: every field is drawn from what there is and what there cannot be, and then bytes of some are
// changed. A server answers or refuses each with a typed error, takes no more memory than it may, and goes on.
// LOCKSTEP_FUZZ_RUNS: how many, 20000 unless it is set; LOCKSTEP_FUZZ_SEED: which.

namespace lockstep::ps {
namespace {

using testing::MethodTable;
using testing::Mutations;
using Kind = Operation::Kind;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr std::size_t kMostBytes = 1 << 20;

Piece piece_of(const std::string& bytes) {
  const auto kept = std::make_shared<std::string>(bytes);
  return {{reinterpret_cast<const std::byte*>(kept->data()), kept->size()}, kept};  // NOLINT: bytes of a string
}

// A request to a store, before its bytes are spoiled.
class Requests {
 public:
  explicit Requests(Mutations& lot) : lot_(lot) {}

  struct Request {
    std::string method;
    std::string fields;
    std::string payload;
  };

  Request draw() {
    switch (lot_.below(12)) {
      case 0: return create();
      case 1: return {methods::kRemove, to_bytes(RemoveRequest{sender(), {name(), name()}}), ""};
      case 2: return stage();
      case 3: return read();
      case 4: return read_rows();
      case 5: return {methods::kDescribe, "", ""};
      case 6: return {methods::kStatistics, "", ""};
      case 7: return {methods::kClientState, to_bytes(ClientStateRequest{sender().client}), ""};
      default: return update();
    }
  }

 private:
  std::string name() { return lot_.one_of<std::string>({"a", "b", "c", "table", "", "no such"}); }
  std::int8_t dtype() {
    return lot_.happens(5)
               ? static_cast<std::int8_t>(lot_.below(256))
               : static_cast<std::int8_t>(lot_.one_of<at::ScalarType>({at::kFloat, at::kLong, at::kBool, at::kHalf}));
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> sizes;
    for (auto count = lot_.happens(3) ? lot_.below(40) : lot_.below(3); count > 0; --count) sizes.push_back(lot_.number(6));
    return sizes;
  }
  Sender sender() {
    const auto client = lot_.below(20);
    auto& last = last_[client];
    const auto sequence = lot_.happens(10) ? static_cast<std::uint64_t>(lot_.number(1000)) : ++last;
    return {client, sequence, lot_.happens(10) ? static_cast<std::uint64_t>(lot_.number(1000)) : last};
  }
  // As many bytes as such values have, if that is a number one can send.
  std::string values(std::int8_t type, const std::vector<std::int64_t>& sizes) {
    std::uint64_t count = type == static_cast<std::int8_t>(at::kLong)    ? 8
                          : type == static_cast<std::int8_t>(at::kFloat) ? 4
                                                                         : 2;
    for (const auto size : sizes) count *= static_cast<std::uint64_t>(size);
    return lot_.bytes(count < 4096 ? count : lot_.below(64));
  }

  Request create() {
    Description description{name(), dtype(), shape()};
    description.whole_shape = lot_.happens(90) ? description.shape : shape();
    description.first_row = lot_.happens(80) ? 0 : lot_.number(9);
    description.rule = lot_.one_of<std::string>({"", "0.5", "bad"});
    description.initial.kind = static_cast<Initial::Kind>(lot_.below(5));
    const bool is_staged = lot_.happens(20);
    const bool is_given = description.initial.kind == Initial::Kind::kGiven && !is_staged;
    return {methods::kCreate, to_bytes(CreateRequest{sender(), description, is_staged}),
            is_given ? values(description.dtype, description.shape) : ""};
  }
  Request stage() {
    const auto total = static_cast<std::uint64_t>(lot_.number(200));
    const StageRequest request{sender(), static_cast<std::uint32_t>(lot_.number(3)), total,
                               lot_.happens(50) ? 0 : static_cast<std::uint64_t>(lot_.number(200))};
    return {methods::kStage, to_bytes(request), lot_.bytes(total < 300 ? total : lot_.below(64))};
  }
  Request update() {
    UpdateRequest request{sender()};
    std::string payload;
    for (auto count = lot_.below(4); count > 0; --count) {
      Operation one{name(), static_cast<Kind>(lot_.below(15)), dtype(), shape(), lot_.happens(50) ? 0.25 : std::nan("")};
      one.is_staged = lot_.happens(15);
      one.wants_value = lot_.happens(30);
      const bool is_of_rows = one.kind >= Kind::kUpdateRows && one.kind <= Kind::kGradientRows;
      if (!one.is_staged && is_of_rows && !one.shape.empty())
        for (auto row = one.shape[0]; row > 0 && row < 20; --row) put(payload, lot_.number(6));
      if (!one.is_staged && one.kind != Kind::kSetLearningRate) payload += values(one.dtype, one.shape);
      request.operations.push_back(std::move(one));
    }
    return {methods::kUpdate, to_bytes(request), payload};
  }
  Request read() {
    ReadRequest request;
    for (auto count = lot_.below(3); count > 0; --count) {
      Reading one{name()};
      if (lot_.happens(50)) one.range.emplace(lot_.number(64), lot_.number(64));
      if (lot_.happens(30)) one.newer_than = static_cast<std::uint64_t>(lot_.number(9));
      if (lot_.happens(30)) one.as.emplace(dtype(), shape());
      request.readings.push_back(std::move(one));
    }
    return {methods::kRead, to_bytes(request), ""};
  }
  Request read_rows() {
    ReadRowsRequest request;
    std::string ids;
    for (auto count = lot_.below(3); count > 0; --count) {
      const auto rows = static_cast<std::uint64_t>(lot_.number(5));
      request.tables.emplace_back(name(), rows);
      for (std::uint64_t row = 0; row < rows && row < 20; ++row) put(ids, lot_.number(6));
    }
    return {methods::kReadRows, to_bytes(request), ids};
  }
  static void put(std::string& payload, std::int64_t id) {
    payload.append(reinterpret_cast<const char*>(&id), sizeof id);
  }  // NOLINT

  Mutations& lot_;
  std::map<std::uint64_t, std::uint64_t> last_;
};

std::size_t most_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

// What a function is not called with fails with a typed error, too.
void expect_typed_failures(const closures::Outcomes& outcomes) {
  for (const auto* const list : {&outcomes.creations, &outcomes.calls})
    for (const auto& outcome : *list)
      if (outcome.ending == closures::Ending::kFailed) {
        EXPECT_NE(outcome.code, ErrorCode::kInternal) << outcome.text;
      }
}

// Whether it was answered; a refusal must be a typed error, and not our bug.
bool is_answered(const MethodTable& server, const std::string& method, const Outgoing& request) {
  try {
    const auto reply = server.call(method, request);
    if (method == closures::kRun) expect_typed_failures(from_bytes<closures::Outcomes>(reply->fields()));
    return true;
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << method << ": " << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << method << " threw what is no Error: " << error.what();
  }
  return false;
}

// A variable that no request names, in a store that has had them all: it is there, and is what it should be.
class Untouched {
 public:
  explicit Untouched(const MethodTable& store) : store_(store) {
    Description description{kName, static_cast<std::int8_t>(at::kLong), {3}, {3}};
    store_.call<CreateReply>(methods::kCreate, CreateRequest{next(), description}, {at::zeros({3}, at::kLong)});
  }
  // Spoiled names leave variables behind, until there is no memory for an honest request: they are removed.
  void remove_others() {
    RemoveRequest request{next(), {}};
    for (const auto& one : from_bytes<DescribeReply>(store_.call(methods::kDescribe, Outgoing{})->fields()).variables)
      if (one.description.name != kName) request.names.push_back(one.description.name);
    store_.call(methods::kRemove, Outgoing{to_bytes(request)});
  }
  void check() {
    ++count_;
    Operation add{kName, Kind::kAdd, static_cast<std::int8_t>(at::kLong), {3}};
    store_.call<UpdateReply>(methods::kUpdate, UpdateRequest{next(), {add}}, {at::ones({3}, at::kLong)});
    const auto reply = store_.call(methods::kRead, Outgoing{to_bytes(ReadRequest{{{kName}}})});
    ASSERT_TRUE(testing::read_tensor(*reply, {3}, at::kLong).equal(at::full({3}, count_, at::kLong)));
  }

 private:
  static constexpr const char* kName = "a name that is not drawn";
  Sender next() {
    ++sequence_;
    return {~0ULL - 1, sequence_, sequence_};
  }

  const MethodTable& store_;
  std::uint64_t sequence_ = 0;
  std::int64_t count_ = 0;
};

// As a real factory: refuses a spoiled text, and values that have no gradients.
std::unique_ptr<UpdateRule> half_rule(const std::string& spec, const at::Tensor& value) {
  if (spec != "0.5" || !value.is_floating_point()) throw Error(ErrorCode::kInvalidArgument, "no such rule");
  return testing::plain_rule(spec, value);
}

TEST(StoreFuzz, AnswersOrRefusesWhateverComes) {
  const auto runs = setting("LOCKSTEP_FUZZ_RUNS", 20'000);
  Mutations lot(setting("LOCKSTEP_FUZZ_SEED", 1));
  VariableStore store({.rules = half_rule, .most_bytes = kMostBytes, .most_clients = 16, .pieces_idle = {}});
  const MethodTable server(store.methods());
  Untouched untouched(server);
  Requests requests(lot);
  std::uint64_t answered = 0;
  const auto memory = most_memory();
  for (std::uint64_t run = 0; run < runs && !::testing::Test::HasFailure(); ++run) {
    auto request = requests.draw();
    if (lot.happens(30)) lot.spoil(request.fields);
    if (lot.happens(15)) lot.spoil(request.payload);
    const Outgoing outgoing{request.fields, {piece_of(request.payload)}};
    if (is_answered(server, request.method, outgoing)) ++answered;
    if (run % 500 != 0) continue;
    if (store.statistics().bytes > kMostBytes / 4) untouched.remove_others();
    untouched.check();
    const auto statistics = store.statistics();
    EXPECT_LE(statistics.bytes + statistics.staged_bytes, kMostBytes);
    EXPECT_LE(statistics.clients, 17U);
  }
  EXPECT_GT(answered, runs / 10) << "so few were answered that little was tried";
  EXPECT_LT(answered, runs) << "nothing was refused";
  EXPECT_LT(most_memory() - memory, std::size_t{256} << 20);
}

const auto kFuzzTensor = remote_function("fuzz.tensor", [](const at::Tensor& x) { return x.numel(); });
const auto kFuzzStructure = remote_function(
    "fuzz.structure", [](const std::vector<std::string>& texts, std::pair<int, double> numbers,
                         const std::vector<at::Tensor>& x) { return std::pair(texts.size() + x.size(), numbers.first); });
const auto kFuzzObject = remote_function("fuzz.object", [](int start) { return std::make_unique<std::vector<int>>(1, start); });
const auto kFuzzUse = remote_function("fuzz.use", [](std::vector<int>& object) {
  object[0] += 1;
  return object[0];
});
const auto kFuzzVariable = remote_function("fuzz.variable", [](const Variable& v) { return v.name(); });

closures::Work work_of(Mutations& lot, std::vector<Piece>& payload) {
  Encoder encoder;
  const auto put = [&](const auto& value) {
    encoder.put(ArgumentKind::kValue);
    encoder.put(value);
  };
  const auto name = lot.one_of<std::string>({kFuzzTensor.name(), kFuzzStructure.name(), kFuzzObject.name(), kFuzzUse.name(),
                                             kFuzzVariable.name(), "no such function"});
  const auto tensor = [&] { return at::ones({static_cast<std::int64_t>(lot.below(4)), 2}); };
  switch (lot.below(5)) {
    case 0: put(tensor()); break;
    case 1:
      put(std::vector<std::string>{"a", lot.bytes(lot.below(20))});
      put(std::pair(3, 0.5));
      put(std::vector<at::Tensor>{tensor(), tensor()});
      break;
    case 2: put(static_cast<int>(lot.number(5))); break;
    case 3:
      encoder.put(ArgumentKind::kPerWorker);
      encoder.put(lot.below(4));
      break;
    default:
      put(to_bytes(VariableAddress{"v", {lot.number(4)}, at::kFloat, true, VariableAggregation::kNone, {}, lot.happens(50)}));
  }
  closures::Work work{lot.below(4), name, "", encoder.payload_bytes()};
  work.arguments = encoder.take_fields();
  for (auto& piece : encoder.take_payload()) payload.push_back(std::move(piece));
  if (lot.happens(40)) lot.spoil(work.arguments);
  if (lot.happens(5)) work.payload_bytes = static_cast<std::uint64_t>(lot.number(64));
  return work;
}

TEST(ClosureFuzz, AnswersOrRefusesWhateverComes) {
  const auto runs = setting("LOCKSTEP_FUZZ_RUNS", 20'000) / 4;
  Mutations lot(setting("LOCKSTEP_FUZZ_SEED", 1));
  ClosureService service(WorkerTask{});
  const MethodTable server(service.methods());
  const auto hello = [&] { return server.call<closures::Welcome>(closures::kHello, closures::Hello{7, 1}).incarnation; };
  const auto incarnation = hello();
  std::uint64_t answered = 0;
  for (std::uint64_t run = 0; run < runs && !::testing::Test::HasFailure(); ++run) {
    closures::Batch batch{7, incarnation, run + 1, {lot.below(6)}};
    Outgoing request;
    for (auto count = lot.below(2); count > 0; --count) batch.creations.push_back(work_of(lot, request.payload));
    for (auto count = lot.below(3); count > 0; --count) batch.calls.push_back(work_of(lot, request.payload));
    request.fields = to_bytes(batch);
    if (lot.happens(20)) lot.spoil(request.fields);
    const auto method = lot.one_of<std::string>(
        {closures::kRun, closures::kRun, closures::kRun, closures::kRun, closures::kStatus, closures::kCancel});
    if (method == closures::kCancel) request.fields = to_bytes(closures::Cancel{lot.below(9), lot.below(9)});
    if (is_answered(server, method, request)) ++answered;
  }
  EXPECT_GT(answered, runs / 10);
  hello();
  Encoder encoder;
  encoder.put(ArgumentKind::kValue);
  encoder.put(at::ones({5}));
  const closures::Work work{0, kFuzzTensor.name(), encoder.take_fields(), encoder.payload_bytes()};
  const auto reply = server.call(
      closures::kRun, Outgoing{to_bytes(closures::Batch{7, incarnation, runs + 1, {}, {}, {work}}), encoder.take_payload()});
  const auto outcomes = from_bytes<closures::Outcomes>(reply->fields());
  ASSERT_EQ(outcomes.calls.size(), 1U);
  EXPECT_EQ(outcomes.calls[0].ending, closures::Ending::kDone) << outcomes.calls[0].text;
}

}  // namespace
}  // namespace lockstep::ps
