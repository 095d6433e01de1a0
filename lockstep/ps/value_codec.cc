#include "lockstep/ps/value_codec.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::ps {
namespace {

constexpr std::size_t kMostDimensions = 64;

// The dtypes whose elements are their bytes and nothing else.
bool is_plain(at::ScalarType dtype) {
  return at::isFloatingType(dtype) || at::isIntegralType(dtype, /*includeBool=*/true) || at::isComplexType(dtype);
}

// Whether the bytes of `tensor` are nobody else's: no other handle on it, no other view of its memory. Memory that no tensor
// owns (torch::from_blob) is its caller's, who may use it again at once.
bool is_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.storage().data_ptr().get_context() != nullptr;
}

// In memory that stays as it is while it is sent.
at::Tensor to_send(const at::Tensor& tensor) {
  const bool is_shared = !is_alone(tensor);
  const auto plain = tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
  return is_shared && plain.is_alias_of(tensor) ? plain.clone() : plain;
}

// The bytes of a tensor of these sizes; nothing when there can be no such tensor.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& sizes, std::uint64_t element) {
  std::uint64_t bytes = element, extent = element;
  for (const auto size : sizes) {
    if (size < 0 || __builtin_mul_overflow(extent, std::max<std::uint64_t>(size, 1), &extent)) return std::nullopt;
    bytes *= static_cast<std::uint64_t>(size);
  }
  if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return bytes;
}

}  // namespace

Encoder::Level::Level(int& depth) : depth_(depth) {
  if (depth == kMostDepth)
    throw Error(ErrorCode::kInvalidArgument,
                str("a value with more than ", kMostDepth, " parts inside one another cannot be sent"));
  ++depth;
}

void Encoder::put_tensor(const at::Tensor& tensor) {
  writer_(tensor.defined());
  if (!tensor.defined()) return;
  if (tensor.layout() != at::kStrided || tensor.is_nested() || tensor.is_quantized() || !is_plain(tensor.scalar_type()))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("a tensor of layout ", tensor.layout(), " and dtype ", tensor.scalar_type(),
                              " cannot be sent: only dense numbers can; take it apart, or convert it"));
  auto sent = std::make_shared<const at::Tensor>(to_send(tensor));
  writer_(static_cast<std::int8_t>(sent->scalar_type()), sent->sizes().vec());
  const std::size_t bytes = sent->nbytes();
  if (bytes == 0) return;
  payload_bytes_ += bytes;
  const auto* data = static_cast<const std::byte*>(sent->data_ptr());
  payload_.push_back({{data, bytes}, std::move(sent)});
}

Decoder::Decoder(std::string_view fields, Incoming& payload, std::uint64_t bytes, WorkerContext* worker)
    : reader_(fields), payload_(payload), payload_left_(bytes), worker_(worker) {
  if (bytes > payload.left()) refuse("a value whose bytes are not there");
}

void Decoder::refuse(const char* what) { throw Error(ErrorCode::kInvalidArgument, str("a message of a task has ", what)); }

WorkerContext& Decoder::worker() const {
  if (worker_ == nullptr) refuse("a value that can only be received by a worker: closures cannot return it");
  return *worker_;
}

std::uint64_t Decoder::get_length() {
  const auto count = get_plain<std::uint64_t>();
  if (count > reader_.left()) refuse("a length that cannot be");  // every value has a byte at least
  return count;
}

at::Tensor Decoder::get_tensor() {
  if (!get_plain<bool>()) return {};
  const auto code = get_plain<std::int8_t>();
  const auto dtype = static_cast<at::ScalarType>(code);
  if (code < 0 || code >= static_cast<std::int8_t>(at::ScalarType::NumOptions) || !is_plain(dtype)) refuse("an unknown dtype");
  std::vector<std::int64_t> sizes;
  reader_(sizes);
  const auto bytes = bytes_of(sizes, at::elementSize(dtype));
  if (sizes.size() > kMostDimensions || !bytes) refuse("a shape that cannot be");
  if (*bytes > payload_left_) refuse("a tensor whose bytes are not there");
  auto tensor = at::empty(sizes, dtype);
  payload_left_ -= *bytes;
  payload_.read({static_cast<std::byte*>(tensor.data_ptr()), *bytes});
  return tensor;
}

void Decoder::require_end() {
  if (!reader_.is_at_end() || payload_left_ > 0) refuse("more bytes than values");
}

void Decoder::skip_payload() {
  std::array<std::byte, 4096> scratch;
  while (payload_left_ > 0) {
    const auto count = std::min<std::uint64_t>(payload_left_, scratch.size());
    payload_left_ -= count;
    payload_.read(std::span(scratch).first(count));
  }
}

IndexedSlices ValueCodec<IndexedSlices>::decode(Decoder& decoder) {
  auto values = decoder.get<at::Tensor>();
  auto indices = decoder.get<at::Tensor>();
  return {std::move(values), std::move(indices), decoder.get<std::vector<std::int64_t>>()};
}

}  // namespace lockstep::ps
