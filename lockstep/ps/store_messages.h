#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What clients and the variable store of a parameter server send each other, as ps/fields.h writes it. Values travel as
// payload: their bytes as they lie in memory, one after the other.
//
// Note [exactly once]
// 1. A client has a random number, and numbers its requests that change something: 1, 2, 3, ... With each it says below which
//    number it needs no answer any more: it has them, or has given up. From there to its last number are at most
//    kMostUnanswered.
// 2. The store remembers, by client, the answers from that mark on. A request that comes again gets the first answer, and
//    changes nothing; while the first is still worked on, it waits for it.
// 3. A request below the mark is late, and refused. What was refused for a reason that may pass (kUnavailable, kAborted)
//    changed nothing and is not remembered: it may come again.
// 4. So a client repeats a request whose answer was lost until it has one; and each is done once.
// The store remembers so many clients; when one more comes it forgets the one that has been silent longest. A client that was
// forgotten in the middle of repeating could be served twice: there must be more places than processes of a job.

namespace lockstep::ps {

namespace methods {
inline constexpr const char* kCreate = "store.create";
inline constexpr const char* kRemove = "store.remove";
inline constexpr const char* kStage = "store.stage";
inline constexpr const char* kUpdate = "store.update";
inline constexpr const char* kRead = "store.read";
inline constexpr const char* kReadRows = "store.read_rows";
inline constexpr const char* kDescribe = "store.describe";
inline constexpr const char* kStatistics = "store.statistics";
inline constexpr const char* kClientState = "store.client_state";
}  // namespace methods

inline constexpr std::size_t kMostUnanswered = 1'024;

// See Note [exactly once].
struct Sender {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
  std::uint64_t answered_below = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(client, sequence, answered_below);
  }
};

// How a variable begins. Random numbers depend on the seed and on where in the whole variable they are: not on how many parts
// it has.
struct Initial {
  enum class Kind : std::uint8_t { kGiven, kZeros, kUniform, kNormal };
  Kind kind = Kind::kGiven;
  double first = 0;   // the least; the mean
  double second = 1;  // what all are below; the standard deviation
  std::uint64_t seed = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(kind, first, second, seed);
  }
  friend bool operator==(const Initial&, const Initial&) = default;
};

// A variable, or one part of a larger one: rows first_row, first_row + 1, ... of it.
struct Description {
  std::string name = "";
  std::int8_t dtype = 0;                       // at::ScalarType
  std::vector<std::int64_t> shape = {};        // of this part
  std::vector<std::int64_t> whole_shape = {};  // equal, but for the first
  std::int64_t first_row = 0;
  bool is_trainable = true;
  std::string rule = "";  // UpdateRule's spec; "": none, and no gradients
  Initial initial = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, dtype, shape, whole_shape, first_row, is_trainable, rule, initial);
  }
  friend bool operator==(const Description&, const Description&) = default;
};

// Payload: the value, when it is kGiven and was not staged as part 0.
struct CreateRequest {
  Sender sender = {};
  Description description = {};
  bool is_staged = false;
  template <typename Fields>
  void list(Fields& fields) {
    fields(sender, description, is_staged);
  }
};
struct CreateReply {
  bool is_new = false;  // false: it was there, and is as it was
  std::uint64_t version = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(is_new, version);
  }
};

struct RemoveRequest {
  Sender sender = {};
  std::vector<std::string> names = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(sender, names);
  }
};

// A piece of what a request with this number will need, sent before it: of operation `part`, which has so many bytes in all.
// Payload: the piece.
struct StageRequest {
  Sender sender = {};
  std::uint32_t part = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t first_byte = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(sender, part, total_bytes, first_byte);
  }
};

struct Operation {
  enum class Kind : std::uint8_t {
    kAssign,
    kAdd,
    kSub,
    kGradient,
    // Rows: an id may repeat, and they are taken in the order they come.
    kUpdateRows,
    kAddRows,
    kSubRows,
    kMulRows,
    kDivRows,
    kMinRows,
    kMaxRows,
    kGradientRows,
    kSetLearningRate,  // to `number`
  };
  static constexpr Kind kLast = Kind::kSetLearningRate;

  std::string name = "";  // of the variable
  Kind kind = Kind::kAssign;
  std::int8_t dtype = 0;
  std::vector<std::int64_t> shape = {};  // of what is given: the variable's, or [rows, ...]
  double number = 0;
  bool is_staged = false;    // as part i, when this is operation i
  bool wants_value = false;  // the variable as it is then, in the reply
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, kind, dtype, shape, number, is_staged, wants_value);
  }
};

// All of it is looked at before any is done; operations are done in their order. Payload: what each operation is given, in
// their order, but for what was staged: of rows the ids (int64), then the values.
struct UpdateRequest {
  Sender sender = {};
  std::vector<Operation> operations = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(sender, operations);
  }
};
// A version is the number of operations on a variable since it was made.
struct UpdateReply {
  std::vector<std::uint64_t> versions = {};        // of each operation's variable after it
  std::vector<std::uint64_t> value_versions = {};  // of the values in the payload; newer, when others update too
  template <typename Fields>
  void list(Fields& fields) {
    fields(versions, value_versions);
  }
};

struct Reading {
  std::string name = "";
  std::optional<std::pair<std::uint64_t, std::uint64_t>> range = std::nullopt;  // first byte, number of bytes; absent: all
  std::optional<std::uint64_t> newer_than = std::nullopt;                       // a version; otherwise nothing is sent
  std::optional<std::pair<std::int8_t, std::vector<std::int64_t>>> as = std::nullopt;  // the dtype and shape it must have
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, range, newer_than, as);
  }
};
struct ReadRequest {
  std::vector<Reading> readings = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(readings);
  }
};
// Payload: what is newer, in order.
struct ReadReply {
  std::vector<std::uint64_t> versions = {};
  std::vector<bool> is_newer = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(versions, is_newer);
  }
};

// Payload: the ids of each table, int64, in order. Of the reply: their rows.
struct ReadRowsRequest {
  std::vector<std::pair<std::string, std::uint64_t>> tables = {};  // a name, and how many ids
  template <typename Fields>
  void list(Fields& fields) {
    fields(tables);
  }
};
struct ReadRowsReply {
  std::vector<std::uint64_t> versions = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(versions);
  }
};

struct Described {
  Description description = {};
  std::uint64_t bytes = 0;
  std::uint64_t state_bytes = 0;  // of its rule
  std::uint64_t version = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(description, bytes, state_bytes, version);
  }
};
struct DescribeReply {
  std::vector<Described> variables = {};  // by name
  template <typename Fields>
  void list(Fields& fields) {
    fields(variables);
  }
};

struct StoreStatistics {
  std::uint64_t variables = 0;
  std::uint64_t bytes = 0;         // of variables
  std::uint64_t staged_bytes = 0;  // of pieces that wait for their request
  std::uint64_t updates = 0;       // operations done since the start
  std::uint64_t reads = 0;         // variables or parts of them that were read
  double updates_per_second = 0;   // in the last ten seconds
  std::uint64_t requests = 0;      // being worked on, or waiting for a variable
  std::uint64_t clients = 0;
  // How many gradients found so many updates of their variable since the values that they were made of: [0] none, [1] one,
  // [2] 2 or 3, [3] 4 to 7, [k] from 2^(k-1) to 2^k - 1. As long as it must be.
  std::vector<std::uint64_t> staleness = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(variables, bytes, staged_bytes, updates, reads, updates_per_second, requests, clients, staleness);
  }
};

struct ClientStateRequest {
  std::uint64_t client = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(client);
  }
};
struct ClientState {
  bool is_known = false;
  std::uint64_t last_done = 0;  // the highest number of a request that was done
  std::uint64_t answered_below = 0;
  std::uint64_t answers = 0;  // that are remembered
  template <typename Fields>
  void list(Fields& fields) {
    fields(is_known, last_done, answered_below, answers);
  }
};

}  // namespace lockstep::ps
