#include "lockstep/cluster/json.h"

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

// Long enough for a cluster of thousands, short enough for a line of a log.
constexpr std::size_t kShownText = 60;

std::pair<std::size_t, std::size_t> line_and_column(const std::string& text, std::size_t position) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i + 1 < position && i < text.size(); ++i) {
    if (text[i] == '\n') ++line, column = 1;
    else ++column;
  }
  return {line, column};
}

std::string address_of(const OrderedJson& value, const std::string& job) {
  if (value.is_string()) return value.get<std::string>();
  throw Error(ErrorCode::kInvalidArgument,
              str("job '", job, "': the address ", value.dump(), " is not a text; write \"host:port\""));
}

std::int64_t index_of(const std::string& text, const std::string& job) {
  if (const auto index = whole_number(text)) return *index;
  throw Error(ErrorCode::kInvalidArgument, str("job '", job, "': '", text, "' is not a task number"));
}

}  // namespace

OrderedJson parse_json(const std::string& text, const std::string& what) {
  constexpr int kDeepest = 100;  // what reads and writes it calls itself for every level
  const auto is_flat = [&](int depth, OrderedJson::parse_event_t, OrderedJson&) {
    if (depth <= kDeepest) return true;
    throw Error(ErrorCode::kInvalidArgument, str(what, " is nested more than ", kDeepest, " levels deep"));
  };
  try {
    return OrderedJson::parse(text, is_flat);
  } catch (const OrderedJson::out_of_range&) {
    throw Error(ErrorCode::kInvalidArgument, str(what, " has a number that is too large for any use"));
  } catch (const OrderedJson::parse_error& error) {
    const auto [line, column] = line_and_column(text, error.byte);
    throw Error(ErrorCode::kInvalidArgument,
                str(what, " is not valid JSON: line ", line, ", column ", column, " of ",
                    text.empty() ? str("an empty text")
                                 : str("'", text.substr(0, kShownText), text.size() > kShownText ? "..." : "", "'"),
                    "; names and texts stand in double quotes, and the last item has no comma after it"));
  }
}

ClusterSpec cluster_spec_from(const OrderedJson& value) {
  if (!value.is_object())
    throw Error(ErrorCode::kInvalidArgument, str("a cluster spec is ", value.dump().substr(0, kShownText),
                                                 "; it must be an object of jobs, {\"worker\": [\"host:port\", ...]}"));
  ClusterSpec spec;
  for (const auto& [job, tasks] : value.items()) {
    ClusterSpec::Tasks addresses;
    if (tasks.is_array()) {
      for (const auto& address : tasks)
        addresses.emplace(static_cast<std::int64_t>(addresses.size()), address_of(address, job));
    } else if (tasks.is_object()) {
      for (const auto& [index, address] : tasks.items()) addresses[index_of(index, job)] = address_of(address, job);
    } else {
      throw Error(ErrorCode::kInvalidArgument, str("job '", job, "' is ", tasks.dump().substr(0, kShownText),
                                                   "; it must be a list of addresses, or an object {index: address}"));
    }
    spec.set_job(job, std::move(addresses));
  }
  return spec;
}

OrderedJson to_json(const ClusterSpec& spec) {
  OrderedJson result = OrderedJson::object();
  for (const auto& job : spec.jobs()) {
    const bool is_list = spec.is_dense(job);
    OrderedJson tasks = is_list ? OrderedJson::array() : OrderedJson::object();
    for (const auto& [index, address] : spec.tasks(job)) {
      if (is_list) tasks.push_back(address);
      else tasks[std::to_string(index)] = address;
    }
    result[job] = std::move(tasks);
  }
  return result;
}

}  // namespace lockstep::internal
