#include "lockstep/observe/trace_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/whole_file.h"

namespace lockstep {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds with the nanoseconds behind the point.
std::string microseconds(std::int64_t nanoseconds) {
  std::array<char, 40> buffer{};
  const bool is_negative = nanoseconds < 0;
  const auto size = is_negative ? -nanoseconds : nanoseconds;
  std::snprintf(buffer.data(), buffer.size(), "%s%lld.%03d", is_negative ? "-" : "", static_cast<long long>(size / 1000),
                static_cast<int>(size % 1000));
  return buffer.data();
}

// What a reader of the trace calls a thread.
std::string title_of(const std::string& thread) {
  const std::string prefix = "lockstep:";
  if (!thread.starts_with(prefix)) return thread;
  const auto rest = thread.substr(prefix.size());
  const bool is_replica = rest.size() > 1 && rest[0] == 'r' && rest.find_first_not_of("0123456789", 1) == std::string::npos;
  return is_replica ? "replica " + rest.substr(1) : rest;
}

// The thread that the program begins with comes first, then the replicas.
int rank_of(const std::string& title) { return title == "main" ? 0 : title.starts_with("replica ") ? 1 : 2; }

class Writer {
 public:
  explicit Writer(std::int64_t origin) : origin_(origin) {}

  void add(std::size_t process, const WorkerTrace& worker) {
    process_ = str("\"pid\":", process);
    name("process_name", "", quoted(worker.name));
    number("process_sort_index", "", static_cast<int>(process));
    for (const auto& thread : worker.recording.threads) {
      thread_ = str(",\"tid\":", thread.id);
      const auto title = title_of(thread.name);
      name("thread_name", thread_, quoted(title));
      number("thread_sort_index", thread_, rank_of(title));
      for (const auto& span : thread.spans) add(span, worker.clock_offset);
    }
  }

  const std::string& text() const { return text_; }

 private:
  void begin() { text_ += text_.empty() ? "\n{" : ",\n{"; }

  void name(const char* what, const std::string& thread, const std::string& json) {
    begin();
    text_ += str("\"ph\":\"M\",\"name\":\"", what, "\",", process_, thread, ",\"args\":{\"name\":", json, "}}");
  }
  void number(const char* what, const std::string& thread, int value) {
    begin();
    text_ += str("\"ph\":\"M\",\"name\":\"", what, "\",", process_, thread, ",\"args\":{\"sort_index\":", value, "}}");
  }

  void add(const trace::SpanRecord& span, std::int64_t offset) {
    begin();
    text_.append("\"ph\":\"X\",\"name\":").append(quoted(span.name));
    text_.append(",\"cat\":\"").append(trace::name_of(span.category)).append("\",").append(process_).append(thread_);
    text_.append(",\"ts\":").append(microseconds(span.begin + offset - origin_));
    text_.append(",\"dur\":").append(microseconds(span.duration));
    if (span.first.name != nullptr) {
      text_.append(",\"args\":{").append(quoted(span.first.name)).append(":").append(std::to_string(span.first.value));
      if (span.second.name != nullptr)
        text_.append(",").append(quoted(span.second.name)).append(":").append(std::to_string(span.second.value));
      text_.append("}");
    }
    text_.append("}");
  }

  const std::int64_t origin_;
  std::string text_;
  std::string process_;
  std::string thread_;
};

// Bytes one after the other.
class Packer {
 public:
  void put(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put(std::string_view text) {
    put(static_cast<std::int64_t>(text.size()));
    bytes_.append(text);
  }
  void put(const trace::Argument& argument) {
    put(std::string_view(argument.name == nullptr ? "" : argument.name));
    put(argument.value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : left_(bytes) {}

  std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(static_cast<std::size_t>(number())); }
  // How many follow, each of at least 8 bytes.
  std::size_t count() {
    const auto count = static_cast<std::size_t>(number());
    if (count > left_.size() / sizeof(std::int64_t)) fail();
    return count;
  }
  trace::Argument argument() {
    const auto name = text();
    return {name.empty() ? nullptr : trace::intern(name), number()};
  }
  void require_end() const {
    if (!left_.empty()) fail();
  }

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorCode::kDataLoss, "another worker's trace cannot be read; do all workers run one version of Lockstep?");
  }
  std::string_view take(std::size_t bytes) {
    if (bytes > left_.size()) fail();
    const auto taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  std::string_view left_;
};

}  // namespace

std::string chrome_trace(std::span<const WorkerTrace> workers) {
  Writer writer(workers.empty() ? 0 : workers[0].recording.begin);
  nlohmann::ordered_json about = nlohmann::ordered_json::array();
  for (std::size_t w = 0; w < workers.size(); ++w) {
    writer.add(w, workers[w]);
    std::uint64_t dropped = 0;
    for (const auto& thread : workers[w].recording.threads) dropped += thread.dropped;
    about.push_back({{"worker", workers[w].name},
                     {"clock_offset_us", static_cast<double>(workers[w].clock_offset) / 1000},
                     {"clock_error_us", static_cast<double>(workers[w].clock_error) / 1000},
                     {"dropped_spans", dropped}});
    if (dropped > 0)
      log_warning(str("the trace of ", workers[w].name, " lacks ", dropped,
                      " spans for which there was no room; record fewer steps, or more spans a thread (trace::Options)"));
  }
  const auto other = about.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return str("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"made_by\":\"lockstep\",\"workers\":", other, "},\"traceEvents\":[",
             writer.text(), "\n]}\n");
}

void write_trace(const std::string& path, const trace::Recording& recording) {
  const WorkerTrace worker{"this process", recording};
  data::write_whole_file(path, {chrome_trace({&worker, 1})});
}

std::string internal::to_bytes(const trace::Recording& recording) {
  Packer to;
  to.put(recording.begin);
  to.put(recording.end);
  to.put(static_cast<std::int64_t>(recording.threads.size()));
  for (const auto& thread : recording.threads) {
    to.put(std::string_view(thread.name));
    to.put(thread.id);
    to.put(static_cast<std::int64_t>(thread.dropped));
    to.put(static_cast<std::int64_t>(thread.spans.size()));
    for (const auto& span : thread.spans) {
      to.put(std::string_view(span.name));
      to.put(span.begin);
      to.put(span.duration);
      to.put(static_cast<std::int64_t>(span.category));
      to.put(span.first);
      to.put(span.second);
    }
  }
  return to.take();
}

trace::Recording internal::recording_from_bytes(std::string_view bytes) {
  constexpr std::int64_t kCategories = static_cast<std::int64_t>(trace::Category::kOther) + 1;
  Unpacker from(bytes);
  trace::Recording recording;
  recording.begin = from.number();
  recording.end = from.number();
  recording.threads.resize(from.count());
  for (auto& thread : recording.threads) {
    thread.name = from.text();
    thread.id = from.number();
    thread.dropped = static_cast<std::uint64_t>(from.number());
    thread.spans.resize(from.count());
    for (auto& span : thread.spans) {
      span.name = trace::intern(from.text());
      span.begin = from.number();
      span.duration = from.number();
      span.category = static_cast<trace::Category>(std::clamp<std::int64_t>(from.number(), 0, kCategories - 1));
      span.first = from.argument();
      span.second = from.argument();
    }
  }
  from.require_end();
  return recording;
}

}  // namespace lockstep
