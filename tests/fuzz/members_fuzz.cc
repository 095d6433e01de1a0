#include <cstdlib>
#include <set>

#include "lockstep/cluster/members.h"
#include "tests/fuzz/fuzz.h"

// The coordinator's book under calls in any order, of members and of others. No wait: all deadlines have passed.

namespace {

using lockstep::Deadline;
using lockstep::ErrorCode;
using lockstep::Members;
using lockstep::Task;

// Takes what it needs from the bytes, zeros when there are none left.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool is_empty() const { return size_ == 0; }
  std::uint8_t next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::string text() {
    std::string text;
    for (auto left = next() % 8; left > 0; --left) text += static_cast<char>(next());
    return text;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

struct Model {
  Members members{{{"worker", 0}, {"worker", 1}, {"ps", 0}}, "secret", "spec", "build"};
  std::vector<std::uint64_t> ids = {0};  // that of nobody, then all that were given
  std::set<std::uint64_t> seen;

  std::uint64_t id(Bytes& bytes) const { return ids[bytes.next() % ids.size()]; }

  void join(Bytes& bytes) {
    const auto kind = bytes.next();
    const Task task{kind & 1 ? "worker" : "ps", bytes.next() % 3};
    const auto id = members.join({task, kind & 2 ? bytes.text() : "secret", kind & 4 ? bytes.text() : "spec",
                                  kind & 8 ? bytes.text() : "build", "h", 1});
    if (id == 0 || !seen.insert(id).second) std::abort();  // ids are never nobody's, and never used again
    ids.push_back(id);
  }

  void call(Bytes& bytes) {
    const auto passed = Deadline::after(std::chrono::nanoseconds(0));
    switch (bytes.next() % 11) {
      case 0: return join(bytes);
      case 1: return members.leave(id(bytes));
      case 2: return members.lose(id(bytes), bytes.text());
      case 3: return members.fail(id(bytes), ErrorCode::kInternal, bytes.text());
      case 4: return members.note(id(bytes), {bytes.next(), bytes.text(), bytes.next()});
      case 5: return put_and_get(bytes);
      case 6: members.get(id(bytes), bytes.text(), passed); return;
      case 7: return members.barrier(bytes.text(), id(bytes), passed);
      case 8: members.failure(passed); return;
      case 9: return members.wait_for_goodbyes(passed);
      default:
        if (bytes.next() == 0) members.close();
    }
  }

  void put_and_get(Bytes& bytes) {
    const auto whose = id(bytes);
    const auto key = bytes.text();
    const auto value = bytes.text();
    members.put(whose, key, value);
    if (members.get(whose, key, Deadline::after(std::chrono::nanoseconds(0))) != value) std::abort();
  }

  // The first failure stays the failure, and nobody has two places.
  void check(std::optional<lockstep::Failure>& first) {
    const auto now = members.failure();
    if (first && (!now || now->message != first->message || now->task != first->task)) std::abort();
    first = now;
    if (members.all().size() > 3) std::abort();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  Model model;
  std::optional<lockstep::Failure> first;
  constexpr int kMostCalls = 64;
  for (int calls = 0; calls < kMostCalls && !bytes.is_empty(); ++calls) {
    lockstep::fuzz::expect_typed_errors(data, 0, [&](const std::string&) { model.call(bytes); });
    model.check(first);
  }
  return 0;
}
