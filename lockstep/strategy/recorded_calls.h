#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/collective/indexed_slices.h"
#include "lockstep/data/element.h"
#include "lockstep/replica/function_ref.h"
#include "lockstep/replica/nest.h"
#include "lockstep/replica/recording.h"

namespace lockstep {

struct FunctionOptions {
  // On a GPU steps are recorded. An experiment so far: docs/gpu.md lists what a recording does not follow. Without it each call
  // is a run().
  bool is_recorded = false;
  // Calls with a new signature that run as they are before it is recorded, at least 1.
  int warm_up = 3;
  // Signatures that are recorded, each with memory of its own; calls with further ones run as they are.
  int most_recordings = 8;
};

namespace internal {

// What two calls must have in common to share a recording, and the tensors of a call.
class SignatureOf {
 public:
  explicit SignatureOf(const std::type_info& arguments) { add(arguments.hash_code()); }

  void begin_replica() { add(tensors_.size()); }
  void operator()(at::Tensor& leaf);
  void operator()(IndexedSlices& leaf);
  template <nest::Number N>
  void operator()(N& leaf) {
    std::uint64_t bits = 0;
    if constexpr (sizeof(N) <= sizeof(bits)) std::memcpy(&bits, &leaf, sizeof(N));
    else bits = std::hash<N>()(leaf);
    add(bits);
  }
  void branch(const std::string& text) { add(std::hash<std::string>()(text)); }

  void bytes(const data::Bytes&) { has_bytes_ = true; }

  bool has_bytes() const noexcept { return has_bytes_; }
  const std::vector<std::uint64_t>& numbers() const noexcept { return numbers_; }
  // Those of all replicas, one after the other. They point into the arguments.
  const std::vector<at::Tensor*>& tensors() const noexcept { return tensors_; }

 private:
  template <typename N>
  void add(N number) {
    numbers_.push_back(static_cast<std::uint64_t>(number));
  }

  std::vector<std::uint64_t> numbers_;
  std::vector<at::Tensor*> tensors_;
  bool has_bytes_ = false;
};

// Types all of whose values a SignatureOf sees.
template <typename T>
struct HasSignature : std::bool_constant<std::is_same_v<T, at::Tensor> || std::is_same_v<T, IndexedSlices> ||
                                         std::is_same_v<T, data::Element> || nest::Number<T>> {};
template <typename... A>
struct HasSignature<std::vector<A...>> : HasSignature<typename std::vector<A...>::value_type> {};
template <typename K, typename V, typename... A>
struct HasSignature<std::map<K, V, A...>> : HasSignature<V> {};
template <typename... T>
struct HasSignature<std::tuple<T...>> : std::conjunction<HasSignature<T>...> {};
template <typename A, typename B>
struct HasSignature<std::pair<A, B>> : std::conjunction<HasSignature<A>, HasSignature<B>> {};
template <typename T, std::size_t n>
struct HasSignature<std::array<T, n>> : HasSignature<T> {};
template <typename T>
inline constexpr bool has_signature_v = HasSignature<T>::value;

class RecordedCall;

// Replace the tensors of a structure by what a recording may keep, and by what a caller may have.
struct DetachLeaves {
  void operator()(at::Tensor& leaf) const;
  void operator()(IndexedSlices& leaf) const;
  template <nest::Number N>
  void operator()(N&) const {}
};
struct HandOutLeaves {
  RecordedCall& call;
  void operator()(at::Tensor& leaf) const;
  void operator()(IndexedSlices& leaf) const;
  template <nest::Number N>
  void operator()(N&) const {}
};

// A signature's recording, once it was called often enough.
class RecordedCall {
 public:
  explicit RecordedCall(std::vector<std::uint64_t> numbers) : numbers_(std::move(numbers)) {}

  bool is_recorded() const noexcept { return is_recorded_; }
  // The tensors of the arguments become tensors of the recording's own.
  void take_inputs(const SignatureOf& signature);
  // The same memory as another tensor, which gets memory of its own before the next replay.
  at::Tensor hand_out(const at::Tensor& result);
  Recording& recording() noexcept { return *recording_; }
  // What the function has returned when it was recorded.
  std::any& results() noexcept { return results_; }

 private:
  friend class RecordedCalls;

  void rescue_handed_out();

  const std::vector<std::uint64_t> numbers_;
  int calls_ = 0;
  int recorded_ = 0;  // how often
  bool is_recorded_ = false;
  std::string refused_;  // why; empty: it is not
  std::unique_ptr<Recording> recording_;
  std::vector<at::Tensor> inputs_;  // the recording's own
  std::vector<at::Tensor> given_;   // what they were made of
  std::any results_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> handed_out_;
};

// All recordings of one function. One call at a time.
class RecordedCalls {
 public:
  // Throws kInvalidArgument for options that cannot be.
  RecordedCalls(Strategy& strategy, const FunctionOptions& options);
  ~RecordedCalls();

  // Whether anything can be recorded.
  bool is_possible() const noexcept { return is_possible_; }
  // Says so in the log, the first time.
  void refuse(const std::string& why);

  // The signature's call, when it is recorded or shall be now. Null: the call runs as it is.
  RecordedCall* find(const SignatureOf& signature);
  // True: it was recorded. False: it cannot be, and nothing is left of it. Arguments of the wrong kind, and what the function
  // throws, show when the call runs as it is.
  bool record(RecordedCall& call, FunctionRef<void()> run);
  void replay(RecordedCall& call, const SignatureOf& signature);

  const std::string& why_not() const noexcept { return why_not_; }
  std::size_t size() const noexcept;

 private:
  RecordedCall* refuse(RecordedCall& call, const std::string& why);
  std::string unusable_input(const SignatureOf& signature) const;

  Strategy& strategy_;
  const FunctionOptions options_;
  bool is_possible_ = true;
  std::string why_not_;
  std::vector<std::unique_ptr<RecordedCall>> calls_;  // the last used first
};

}  // namespace internal
}  // namespace lockstep
