#include "tools/lockstep/messages.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kHeadBytes = 1 + kLengthBytes;
constexpr std::string_view kKinds = "HPRSXOEGTWCAB";

Error damaged(const std::string& what) {
  return Error(ErrorCode::kDataLoss, str("launcher and node: ", what, "; is the other side a Lockstep of the same version?"));
}

void append_length(std::string& to, std::size_t length) {
  for (std::size_t k = 0; k < kLengthBytes; ++k) to += static_cast<char>((length >> (8 * k)) & 0xff);
}

std::size_t length_at(std::string_view bytes) {
  std::size_t length = 0;
  for (std::size_t k = 0; k < kLengthBytes; ++k)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[k])) << (8 * k);
  return length;
}

// Bodies are fields one after the other: each its length and its bytes, so that any byte may stand in it.
class Writer {
 public:
  Writer& text(std::string_view field) {
    append_length(bytes_, field.size());
    bytes_ += field;
    return *this;
  }
  Writer& number(std::int64_t value) { return text(std::to_string(value)); }
  template <typename Texts>
  Writer& list(const Texts& texts) {
    number(static_cast<std::int64_t>(texts.size()));
    for (const auto& one : texts) text(one);
    return *this;
  }
  Writer& map(const Variables& variables) {
    number(static_cast<std::int64_t>(variables.size()));
    for (const auto& [name, value] : variables) text(name).text(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string text() {
    if (rest_.size() < kLengthBytes) throw damaged("a message ends too early");
    const auto length = length_at(rest_);
    rest_.remove_prefix(kLengthBytes);
    if (length > rest_.size()) throw damaged("a field is longer than its message");
    std::string field(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return field;
  }
  template <typename T = std::int64_t>
  T number() {
    const auto value = whole_number<T>(text());
    if (!value) throw damaged("a number is expected");
    return *value;
  }
  // Of fields that follow: no more than there are bytes for.
  std::size_t count() {
    const auto value = number();
    if (value < 0 || static_cast<std::size_t>(value) > rest_.size() / kLengthBytes) throw damaged("a list is too long");
    return static_cast<std::size_t>(value);
  }
  std::vector<std::string> list() {
    std::vector<std::string> texts(count());
    for (auto& one : texts) one = text();
    return texts;
  }
  Variables map() {
    Variables variables;
    for (auto left = count(); left > 0; --left) {
      auto name = text();
      variables.insert_or_assign(std::move(name), text());
    }
    return variables;
  }
  void expect_end() const {
    if (!rest_.empty()) throw damaged("a message has more in it than it should");
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string to_bytes(const Message& message) {
  std::string bytes(1, static_cast<char>(message.kind));
  append_length(bytes, message.body.size());
  return bytes + message.body;
}

std::optional<Message> MessageReader::next() {
  const auto rest = std::string_view(bytes_).substr(read_);
  if (rest.size() < kHeadBytes) return std::nullopt;
  const auto length = length_at(rest.substr(1));
  if (kKinds.find(rest[0]) == std::string_view::npos) throw damaged("there is no such message");
  if (length > most_bytes_) throw damaged(str("a message of ", length, " bytes is too large"));
  if (rest.size() < kHeadBytes + length) return std::nullopt;
  Message message{static_cast<MessageKind>(rest[0]), std::string(rest.substr(kHeadBytes, length))};
  read_ += kHeadBytes + length;
  if (read_ * 2 > bytes_.size()) bytes_.erase(0, std::exchange(read_, 0));
  return message;
}

std::string pack(const Hello& hello) {
  return Writer()
      .text(hello.build)
      .text(hello.host)
      .number(hello.rank)
      .number(hello.nodes)
      .number(hello.workers)
      .text(hello.secret)
      .text(hello.address)
      .take();
}

Hello unpack_hello(const std::string& body) {
  Reader reader(body);
  Hello hello;
  hello.build = reader.text();
  hello.host = reader.text();
  hello.rank = reader.number();
  hello.nodes = reader.number();
  hello.workers = reader.number();
  hello.secret = reader.text();
  hello.address = reader.text();
  reader.expect_end();
  return hello;
}

std::string pack(const Work& work) {
  Writer writer;
  writer.number(static_cast<std::int64_t>(work.tasks.size()));
  for (const auto& planned : work.tasks) writer.text(planned.task.type).number(planned.task.index).map(planned.environment);
  writer.list(work.command).text(work.folder).map(work.variables).number(work.attempt);
  return writer.number(work.grace.count()).number(work.save_grace.count()).take();
}

Work unpack_work(const std::string& body) {
  Reader reader(body);
  Work work;
  for (auto left = reader.count(); left > 0; --left) {
    PlannedTask planned;
    planned.task.type = reader.text();
    planned.task.index = reader.number();
    planned.environment = reader.map();
    work.tasks.push_back(std::move(planned));
  }
  work.command = reader.list();
  work.folder = reader.text();
  work.variables = reader.map();
  work.attempt = reader.number<int>();
  work.grace = std::chrono::milliseconds(reader.number<int>());
  work.save_grace = std::chrono::milliseconds(reader.number<int>());
  reader.expect_end();
  return work;
}

std::string pack(const Report& report) {
  return Writer()
      .number(static_cast<std::int64_t>(report.task))
      .number(report.ending.exit_code)
      .number(report.ending.signal)
      .text(report.ending.lost)
      .list(report.last_lines)
      .take();
}

Report unpack_report(const std::string& body) {
  Reader reader(body);
  Report report;
  report.task = reader.number<std::size_t>();
  report.ending.exit_code = reader.number<int>();
  report.ending.signal = reader.number<int>();
  report.ending.lost = reader.text();
  report.last_lines = reader.list();
  reader.expect_end();
  return report;
}

std::string pack(const Farewell& farewell) { return Writer().number(farewell.exit_code).text(farewell.reason).take(); }

Farewell unpack_farewell(const std::string& body) {
  Reader reader(body);
  Farewell farewell;
  farewell.exit_code = reader.number<int>();
  farewell.reason = reader.text();
  reader.expect_end();
  return farewell;
}

std::string pack_numbers(const std::vector<int>& numbers) {
  Writer writer;
  for (const int number : numbers) writer.number(number);
  return Writer().number(static_cast<std::int64_t>(numbers.size())).take() + writer.take();
}

std::vector<int> unpack_numbers(const std::string& body) {
  Reader reader(body);
  std::vector<int> numbers(reader.count());
  for (auto& number : numbers) number = reader.number<int>();
  reader.expect_end();
  return numbers;
}

std::string pack_output(std::size_t task, std::string_view bytes) {
  return Writer().number(static_cast<std::int64_t>(task)).text(bytes).take();
}

std::pair<std::size_t, std::string> unpack_output(const std::string& body) {
  Reader reader(body);
  const auto task = reader.number<std::size_t>();
  std::pair<std::size_t, std::string> result(task, reader.text());
  reader.expect_end();
  return result;
}

}  // namespace lockstep::tool
