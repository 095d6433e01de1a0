#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/value_codec.h"

namespace lockstep {

enum class RemoteValueStatus {
  kNotReady,
  kAborted,  // the coordinator ended before the closure did
  kReady,    // there is a result, or an error
};

namespace ps {

// Where the result of one closure arrives. Thread-safe.
class ResultSlot {
 public:
  virtual ~ResultSlot() = default;

  // Keeps the result; set_ready() shows it.
  virtual void read(Decoder& decoder) = 0;
  void set_ready() noexcept { set(RemoteValueStatus::kReady, nullptr); }
  void set_error(std::exception_ptr error) noexcept { set(RemoteValueStatus::kReady, std::move(error)); }
  void set_cancelled() noexcept;
  void set_aborted() noexcept;

  RemoteValueStatus status() const;
  // Waits for the result. Throws its error; kDeadlineExceeded.
  void wait(const Deadline& deadline) const;

 private:
  void set(RemoteValueStatus status, std::exception_ptr error) noexcept;

  // Guarded by mu_.
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  RemoteValueStatus status_ = RemoteValueStatus::kNotReady;
  std::exception_ptr error_;
};

template <typename T>
class ResultOf : public ResultSlot {
 public:
  void read(Decoder& decoder) override {
    if constexpr (!std::is_void_v<T>) value_.emplace(decoder.get<T>());
  }
  // After wait().
  T value() const {
    if constexpr (!std::is_void_v<T>) return *value_;
  }

 private:
  std::conditional_t<std::is_void_v<T>, std::monostate, std::optional<T>> value_;
};

}  // namespace ps

// The result of a scheduled function, once it has one. It comes to the coordinator with the end of the function, and stays when
// the worker is lost later. Cheap to copy; thread-safe.
template <typename T>
class RemoteValue {
 public:
  using value_type = T;

  explicit RemoteValue(std::shared_ptr<const ps::ResultOf<T>> slot) : slot_(std::move(slot)) {}

  RemoteValueStatus status() const { return slot_->status(); }

  // Waits for the result. Throws the function's error; kCancelled when it was not run because another one failed first, or the
  // coordinator ended: schedule it again. A function ends when the coordinator's options say so at the latest; with a deadline
  // of one's own it is kDeadlineExceeded after that.
  T get() const { return get(Deadline::after(std::chrono::hours(24 * 365))); }
  T get(const Deadline& deadline) const {
    slot_->wait(deadline);
    return slot_->value();
  }
  T fetch() const { return get(); }

 private:
  std::shared_ptr<const ps::ResultOf<T>> slot_;
};

namespace ps {

template <typename T>
struct IsRemoteValue : std::false_type {};
template <typename T>
struct IsRemoteValue<RemoteValue<T>> : std::true_type {};

// `value` with every RemoteValue in it replaced by its result: itself, in a vector, a map, a tuple or a pair, nested at will.
template <typename T>
auto fetch_all(const T& value) {
  if constexpr (IsRemoteValue<T>::value) {
    return value.fetch();
  } else if constexpr (nest::IsVector<T>::value) {
    std::vector<decltype(fetch_all(std::declval<const typename T::value_type&>()))> fetched;
    for (const auto& item : value) fetched.push_back(fetch_all(static_cast<const typename T::value_type&>(item)));
    return fetched;
  } else if constexpr (nest::IsMap<T>::value) {
    std::map<typename T::key_type, decltype(fetch_all(value.begin()->second))> fetched;
    for (const auto& [key, item] : value) fetched.emplace(key, fetch_all(item));
    return fetched;
  } else if constexpr (requires { []<typename... A>(const std::tuple<A...>&) {}(value); }) {
    return std::apply([](const auto&... items) { return std::tuple<decltype(fetch_all(items))...>(fetch_all(items)...); },
                      value);
  } else if constexpr (requires { []<typename A, typename B>(const std::pair<A, B>&) {}(value); }) {
    return std::make_pair(fetch_all(value.first), fetch_all(value.second));
  } else {
    return value;
  }
}

}  // namespace ps
}  // namespace lockstep
