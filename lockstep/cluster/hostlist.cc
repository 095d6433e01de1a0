#include "lockstep/cluster/hostlist.h"

#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostHosts = 20'000;

// Reads one of the notations from left to right.
class Reader {
 public:
  Reader(const std::string& text, const char* what, const char* example) : text_(text), what_(what), example_(example) {}

  bool at_end() const { return position_ == text_.size(); }
  bool accept(char c) {
    if (at_end() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(str("'", c, "' is expected"));
  }
  // Up to the first of `stops`, or the end.
  std::string until(const char* stops) {
    const auto end = std::min(text_.find_first_of(stops, position_), text_.size());
    auto word = text_.substr(position_, end - position_);
    position_ = end;
    return word;
  }
  std::string digits() {
    const auto begin = position_;
    while (!at_end() && text_[position_] >= '0' && text_[position_] <= '9') ++position_;
    if (position_ == begin) fail("a number is expected");
    return text_.substr(begin, position_ - begin);
  }
  std::int64_t number(const std::string& word) {
    const auto value = whole_number(word);
    if (!value) fail("the number is too large");
    return *value;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::kInvalidArgument,
                str(what_, " '", text_, "': at character ", position_ + 1, " ", why, "; the form is ", example_));
  }

 private:
  const std::string& text_;
  const char* const what_;
  const char* const example_;
  std::size_t position_ = 0;
};

// The hosts of "first-last" or "first" with a prefix, numbers as wide as the first one is written.
void add_range(Reader& reader, const std::string& prefix, std::vector<std::string>& hosts) {
  const auto first = reader.digits();
  const auto last = reader.accept('-') ? reader.digits() : first;
  const auto begin = reader.number(first);
  const auto end = reader.number(last);
  if (end < begin) reader.fail(str("the range ", first, "-", last, " goes backwards"));
  if (end - begin >= kMostHosts || static_cast<std::int64_t>(hosts.size()) > kMostHosts)
    reader.fail("there are too many hosts");
  for (auto k = begin; k <= end; ++k) {
    const auto digits = std::to_string(k);
    hosts.push_back(str(prefix, std::string(first.size() - std::min(first.size(), digits.size()), '0'), digits));
  }
}

// One comma-separated part. A bracket may be followed by another ("r[1-2]n[1-3]"): every combination counts.
std::vector<std::string> read_hosts(Reader& reader) {
  std::vector<std::string> hosts = {reader.until("[],")};
  while (reader.accept('[')) {
    std::vector<std::string> longer;
    std::vector<std::string> numbers;
    do add_range(reader, "", numbers);
    while (reader.accept(','));
    reader.expect(']');
    const auto rest = reader.until("[],");
    if (static_cast<std::int64_t>(hosts.size() * numbers.size()) > kMostHosts) reader.fail("there are too many hosts");
    for (const auto& host : hosts)
      for (const auto& number : numbers) longer.push_back(str(host, number, rest));
    hosts = std::move(longer);
  }
  if (hosts.front().empty()) reader.fail("a host name is expected");
  return hosts;
}

}  // namespace

std::vector<std::string> expand_hostlist(const std::string& hostlist) {
  Reader reader(hostlist, "the host list", "n[1-2],m5,o[3-4,6]");
  std::vector<std::string> hosts;
  do {
    for (auto& host : read_hosts(reader)) hosts.push_back(std::move(host));
    if (static_cast<std::int64_t>(hosts.size()) > kMostHosts) reader.fail("there are too many hosts");
  } while (reader.accept(','));
  if (!reader.at_end()) reader.fail("this is not understood");
  return hosts;
}

std::vector<int> expand_tasks_per_node(const std::string& tasks) {
  Reader reader(tasks, "the list of tasks per node", "3(x2),2,1");
  std::vector<int> counts;
  do {
    const auto count = reader.number(reader.digits());
    std::int64_t times = 1;
    if (reader.accept('(')) {
      reader.expect('x');
      times = reader.number(reader.digits());
      reader.expect(')');
    }
    if (count > kMostHosts || times > kMostHosts || static_cast<std::int64_t>(counts.size()) > kMostHosts)
      reader.fail("the number is too large");
    counts.insert(counts.end(), static_cast<std::size_t>(times), static_cast<int>(count));
  } while (reader.accept(','));
  if (!reader.at_end()) reader.fail("this is not understood");
  return counts;
}

}  // namespace lockstep
