#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collective/indexed_slices.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/message.h"
#include "lockstep/replica/nest.h"

// Arguments and results of closures, as bytes: tensors of any dtype and shape, numbers, enums, strings, and tuples, pairs,
// arrays, vectors, maps, optionals and plain structs of them, nested at will. Tensors travel as raw bytes beside the fields.

namespace lockstep {

class WorkerContext;

namespace ps {

class Encoder;
class Decoder;

// How a type of one's own travels, such as a handle that names something which the other task finds by itself:
//
//   template <>
//   struct ValueCodec<Handle> {
//     static void encode(const Handle& handle, Encoder& encoder) { encoder.put(handle.name()); }
//     static Handle decode(Decoder& decoder) { return Handle(decoder.get<std::string>(), decoder.worker()); }
//   };
//
// It must write a byte at least.
template <typename T>
struct ValueCodec;

template <typename T>
concept HasCodec = requires {
  sizeof(ValueCodec<T>);
};

template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename... T>
struct TypeList {};
template <typename Tuple>
struct ElementTypes;
template <template <typename...> typename Tuple, typename... T>
struct ElementTypes<Tuple<T...>> {
  using type = TypeList<std::remove_reference_t<T>...>;
};

// The types of a plain struct's fields.
template <typename T>
using FieldTypes = typename ElementTypes<decltype(nest::detail::tie_fields(std::declval<T&>()))>::type;

// Whether a value of this type can be sent. `Inside`: the types it stands in; a type may have itself inside a vector.
template <typename T, typename... Inside>
consteval bool is_sendable() {
  constexpr auto all = []<typename... Part>(TypeList<Part...>) { return (is_sendable<Part, T, Inside...>() && ...); };
  if constexpr (std::is_const_v<T> || std::is_reference_v<T> || std::is_pointer_v<T>) return false;
  else if constexpr ((std::is_same_v<T, Inside> || ...) || HasCodec<T> || Scalar<T> || std::is_same_v<T, std::string>)
    return true;
  else if constexpr (std::is_same_v<T, at::Tensor>) return true;
  else if constexpr (IsOptional<T>::value || nest::IsVector<T>::value)
    return is_sendable<typename T::value_type, T, Inside...>();
  else if constexpr (nest::IsMap<T>::value) return all(TypeList<typename T::key_type, typename T::mapped_type>());
  else if constexpr (requires {
                       typename T::value_type;
                       std::tuple_size<T>::value;
                     })  // an array
    return is_sendable<typename T::value_type, T, Inside...>();
  else if constexpr (nest::TupleLike<T>) return all(typename ElementTypes<T>::type());
  else if constexpr (nest::PlainStruct<T> && std::is_empty_v<T>) return true;
  else if constexpr (nest::PlainStruct<T>) return all(FieldTypes<T>());
  else return false;
}

template <typename T>
concept Sendable = is_sendable<T>();

// No value has parts inside parts inside parts so often.
constexpr int kMostDepth = 64;

// Writes values one after the other. Throws kInvalidArgument for a tensor that cannot be sent (sparse, quantized) and for
// what is nested too deep.
//
// A tensor's bytes are sent from where they lie when nobody else holds it or what it looks at (it was moved here); otherwise,
// and where no tensor owns them (torch::from_blob), they are copied, so that whoever has them may change them at once.
class Encoder {
 public:
  template <Sendable T>
  void put(const T& value) {
    const Level level(depth_);
    if constexpr (HasCodec<T>) {
      ValueCodec<T>::encode(value, *this);
    } else if constexpr (Scalar<T> || std::is_same_v<T, std::string>) {
      writer_(value);
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      put_tensor(value);
    } else if constexpr (IsOptional<T>::value) {
      writer_(value.has_value());
      if (value) put(*value);
    } else if constexpr (nest::IsVector<T>::value) {
      writer_(static_cast<std::uint64_t>(value.size()));
      for (const auto& item : value) put(static_cast<const typename T::value_type&>(item));
    } else if constexpr (nest::IsMap<T>::value) {
      writer_(static_cast<std::uint64_t>(value.size()));
      for (const auto& [key, item] : value) put_all(key, item);
    } else if constexpr (nest::TupleLike<T>) {
      std::apply([&](const auto&... items) { put_all(items...); }, value);
    } else if constexpr (std::is_empty_v<T>) {
      put_all();
    } else {
      std::apply([&](const auto&... items) { put_all(items...); }, nest::detail::tie_fields(value));
    }
  }

  // Something that must live until the value has arrived.
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }

  std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }
  std::string take_fields() { return writer_.take(); }
  std::vector<Piece> take_payload() { return std::move(payload_); }
  std::vector<std::shared_ptr<const void>> take_kept() { return std::move(kept_); }

 private:
  // Counts how deep the writer or reader is.
  class Level {
   public:
    explicit Level(int& depth);
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };
  friend class Decoder;

  template <typename... Parts>
  void put_all(const Parts&... parts) {
    if constexpr (sizeof...(parts) == 0) writer_(false);  // every value has a byte at least
    (put(parts), ...);
  }
  void put_tensor(const at::Tensor& tensor);

  FieldWriter writer_;
  std::vector<Piece> payload_;
  std::uint64_t payload_bytes_ = 0;
  std::vector<std::shared_ptr<const void>> kept_;
  int depth_ = 0;
};

// Reads what an Encoder wrote. Throws kInvalidArgument for anything else: cut, too long, a dtype or a shape that cannot be.
// Takes no more memory than a few times the bytes there are.
class Decoder {
 public:
  // `payload`, of which `bytes` bytes are this value's, and `worker` (null: not on a worker) must stay.
  Decoder(std::string_view fields, Incoming& payload, std::uint64_t bytes, WorkerContext* worker = nullptr);

  template <Sendable T>
  T get() {
    const Encoder::Level level(depth_);
    if constexpr (HasCodec<T>) {
      return ValueCodec<T>::decode(*this);
    } else if constexpr (Scalar<T> || std::is_same_v<T, std::string>) {
      return get_plain<T>();
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      return get_tensor();
    } else if constexpr (IsOptional<T>::value) {
      if (!get_plain<bool>()) return std::nullopt;
      return get<typename T::value_type>();
    } else if constexpr (nest::IsVector<T>::value) {
      T values;
      for (auto left = get_length(); left > 0; --left) values.push_back(get<typename T::value_type>());
      return values;
    } else if constexpr (nest::IsMap<T>::value) {
      T values;
      for (auto left = get_length(); left > 0; --left) {
        auto key = get<typename T::key_type>();
        if (!values.emplace(std::move(key), get<typename T::mapped_type>()).second) refuse("a map with a key twice");
      }
      return values;
    } else if constexpr (requires {
                           typename T::value_type;
                           std::tuple_size<T>::value;
                         }) {
      return get_array<T>(std::make_index_sequence<std::tuple_size_v<T>>());
    } else if constexpr (nest::TupleLike<T>) {
      return get_all<T>(typename ElementTypes<T>::type());
    } else if constexpr (std::is_empty_v<T>) {
      return get_all<T>(TypeList<>());
    } else {
      return get_all<T>(FieldTypes<T>());
    }
  }

  // The worker that this is read on. Throws kInvalidArgument elsewhere.
  WorkerContext& worker() const;

  // Throws kInvalidArgument when something has not been read.
  void require_end();
  // Passes over the payload that has not been read, so that the next value's can be.
  void skip_payload();

  [[noreturn]] static void refuse(const char* what);

 private:
  template <typename T>
  T get_plain() {
    T value{};
    reader_(value);
    return value;
  }
  template <typename T, std::size_t... I>
  T get_array(std::index_sequence<I...>) {
    if constexpr (sizeof...(I) == 0) return get_all<T>(TypeList<>());
    else return T{((void)I, get<typename T::value_type>())...};
  }
  template <typename T, typename... Parts>
  T get_all(TypeList<Parts...>) {
    if constexpr (sizeof...(Parts) == 0) get_plain<bool>();
    return T{get<Parts>()...};  // braces: from left to right
  }
  std::uint64_t get_length();
  at::Tensor get_tensor();

  FieldReader reader_;
  Incoming& payload_;
  std::uint64_t payload_left_;
  WorkerContext* const worker_;
  int depth_ = 0;
};

template <>
struct ValueCodec<IndexedSlices> {
  static void encode(const IndexedSlices& slices, Encoder& encoder) {
    encoder.put(slices.values);
    encoder.put(slices.indices);
    encoder.put(slices.dense_shape);
  }
  static IndexedSlices decode(Decoder& decoder);
};

}  // namespace ps
}  // namespace lockstep
