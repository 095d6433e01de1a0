#include "lockstep/ps/stored_variable.h"

#include <ATen/ATen.h>

#include <cmath>
#include <mutex>
#include <shared_mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/combine.h"
#include "lockstep/ps/rows.h"

namespace lockstep::ps {
namespace {

using Kind = Operation::Kind;

constexpr std::size_t kLongestName = 1024;
constexpr std::size_t kLongestRule = 65'536;
constexpr std::size_t kMostDimensions = 16;

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Error(ErrorCode::kInvalidArgument, lockstep::str(parts...));
}

bool is_known(std::int8_t dtype) {
  switch (static_cast<at::ScalarType>(dtype)) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
    case at::kBool:
    case at::kBFloat16: return true;
    default: return false;
  }
}

std::size_t row_bytes_of(const Description& description) {
  auto row = description.shape;
  if (!row.empty()) row[0] = 1;
  return bytes_of(description.dtype, row, description.name);
}

std::span<const std::int64_t> ids_in(const at::Tensor& ids) {
  return {ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

bool is_gradient(Kind kind) { return kind == Kind::kGradient || kind == Kind::kGradientRows; }

void require_initial(const Description& description) {
  const auto& initial = description.initial;
  if (initial.kind > Initial::Kind::kNormal)
    refuse("variable '", description.name, "': there is no initial value of kind ", static_cast<int>(initial.kind));
  if (initial.kind != Initial::Kind::kUniform && initial.kind != Initial::Kind::kNormal) return;
  if (!at::isFloatingType(static_cast<at::ScalarType>(description.dtype)))
    refuse("variable '", description.name, "' of ", shown_shape(description.dtype, description.shape),
           ": random numbers are for floating types");
  if (!std::isfinite(initial.first) || !std::isfinite(initial.second))
    refuse("variable '", description.name, "': initial numbers of ", initial.first, " and ", initial.second,
           "; they must be finite");
}

}  // namespace

bool is_of_rows(Kind kind) noexcept { return kind >= Kind::kUpdateRows && kind <= Kind::kGradientRows; }

std::string shown_dtype(std::int8_t dtype) {
  const bool has_name = dtype >= 0 && dtype < static_cast<std::int8_t>(at::ScalarType::Undefined);
  return has_name ? lockstep::str(static_cast<at::ScalarType>(dtype)) : str("dtype ", static_cast<int>(dtype));
}

std::string shown_shape(std::int8_t dtype, const std::vector<std::int64_t>& shape) {
  return str(shown_dtype(dtype), " [", join(", ", shape), "]");
}

std::size_t bytes_of(std::int8_t dtype, const std::vector<std::int64_t>& shape, const std::string& what) {
  if (!is_known(dtype)) refuse(what, ": ", shown_dtype(dtype), " is not a dtype that a server holds");
  if (shape.size() > kMostDimensions) refuse(what, ": ", shape.size(), " dimensions; at most ", kMostDimensions);
  std::int64_t bytes = static_cast<std::int64_t>(at::elementSize(static_cast<at::ScalarType>(dtype)));
  bool is_empty = false;
  for (const auto size : shape) {
    if (size < 0) refuse(what, ": a shape of ", shown_shape(dtype, shape));
    is_empty = is_empty || size == 0;
    // Without the zeros, too: LibTorch multiplies sizes to strides.
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) refuse(what, ": ", shown_shape(dtype, shape), " is too large");
  }
  return is_empty ? 0 : static_cast<std::size_t>(bytes);
}

void require_possible(const Description& description) {
  const auto& shape = description.shape;
  const auto& whole = description.whole_shape;
  if (description.name.empty() || description.name.size() > kLongestName)
    refuse("a variable's name of ", description.name.size(), " bytes; it has 1 to ", kLongestName);
  if (description.rule.size() > kLongestRule)
    refuse("variable '", description.name, "': a rule of ", description.rule.size(), " bytes; at most ", kLongestRule);
  bytes_of(description.dtype, shape, str("variable '", description.name, "'"));
  bytes_of(description.dtype, whole, str("variable '", description.name, "'"));
  const bool is_part =
      shape.size() == whole.size() && (shape.empty() || std::equal(shape.begin() + 1, shape.end(), whole.begin() + 1));
  const auto rows = shape.empty() ? 0 : shape[0];
  const auto all_rows = whole.empty() ? 0 : whole[0];
  if (!is_part || description.first_row < 0 || rows > all_rows || description.first_row > all_rows - rows)
    refuse("variable '", description.name, "': ", shown_shape(description.dtype, shape), " from row ", description.first_row,
           " on is no part of ", shown_shape(description.dtype, whole));
  require_initial(description);
}

StoredVariable::StoredVariable(Description description, at::Tensor value, std::unique_ptr<UpdateRule> rule,
                               std::vector<Memory::Reservation> reserved)
    : description_(std::move(description)),
      bytes_(value.nbytes()),
      row_bytes_(row_bytes_of(description_)),
      reserved_(std::move(reserved)),
      value_(std::move(value)),
      rule_(std::move(rule)) {}

void StoredVariable::require_fits(const Operation& operation) const {
  const auto wanted = [&] { return shown_shape(description_.dtype, description_.shape); };
  const auto kind = operation.kind;
  if (kind > Operation::kLast) refuse("variable '", name(), "': there is no operation ", static_cast<int>(kind));
  if ((is_gradient(kind) || kind == Kind::kSetLearningRate) && rule_ == nullptr)
    throw Error(
        ErrorCode::kFailedPrecondition,
        str("variable '", name(),
            "' has no optimizer; create it with one to send gradients or a learning rate (a hosted module: set_optimizer())"));
  if (kind == Kind::kSetLearningRate) {
    if (!operation.shape.empty()) refuse("variable '", name(), "': a learning rate has no values");
    if (!(operation.number >= 0 && std::isfinite(operation.number)))
      refuse("variable '", name(), "': a learning rate of ", operation.number, "; it is a number from 0 on");
    if (rule_->has_schedule())
      refuse("variable '", name(), "': a schedule gives its learning rate; make the optimizer with a number to set it");
    return;
  }
  if (operation.dtype != description_.dtype)
    refuse("variable '", name(), "' is ", wanted(), "; given were ", shown_shape(operation.dtype, operation.shape));
  if (description_.dtype == static_cast<std::int8_t>(at::kBool) && kind != Kind::kAssign && kind != Kind::kUpdateRows)
    refuse("variable '", name(), "' is ", wanted(), ", which can only be assigned");
  if (!is_of_rows(kind)) {
    if (operation.shape != description_.shape)
      refuse("variable '", name(), "' is ", wanted(), "; given were ", shown_shape(operation.dtype, operation.shape));
    return;
  }
  const auto& given = operation.shape;
  const auto& own = description_.shape;
  if (own.empty() || given.size() != own.size() || given[0] < 0 || !std::equal(own.begin() + 1, own.end(), given.begin() + 1))
    refuse("variable '", name(), "' is ", wanted(), "; given were rows ", shown_shape(operation.dtype, given),
           ", which must fit its dimensions after the first");
}

void StoredVariable::require_fits(const Operation& operation, const Given& given) const {
  if (is_of_rows(operation.kind)) require_rows(ids_in(given.ids));
  if (operation.kind == Kind::kDivRows && has_zero_divisor(given.values))
    refuse("variable '", name(), "': rows of ", shown_shape(operation.dtype, operation.shape), " would be divided by 0");
}

void StoredVariable::require_rows(std::span<const std::int64_t> ids) const {
  if (description_.shape.empty() && !ids.empty()) refuse("variable '", name(), "' is one number; it has no rows");
  const auto rows = description_.shape.empty() ? 0 : description_.shape[0];
  const auto wrong = std::ranges::find_if(ids, [&](std::int64_t id) { return id < 0 || id >= rows; });
  if (wrong == ids.end()) return;
  throw Error(ErrorCode::kOutOfRange, str("variable '", name(), "': row ", *wrong, " of rows 0 to ", rows - 1,
                                          description_.shape == description_.whole_shape
                                              ? ""
                                              : str(", which are rows from ", description_.first_row, " on of the whole")));
}

std::size_t StoredVariable::room_for(const Operation& operation) const {
  if (!is_gradient(operation.kind)) return 0;
  const std::shared_lock lock(mu_);
  return rule_->room_for(bytes_of(operation.dtype, operation.shape, name()));
}

std::uint64_t StoredVariable::apply(const Operation& operation, const Given& given) {
  const std::lock_guard lock(mu_);
  switch (operation.kind) {
    case Kind::kAssign:
      if (bytes_ > 0) std::memcpy(value_.data_ptr(), given.values.data_ptr(), bytes_);
      break;
    case Kind::kAdd:
    case Kind::kSub: combine(operation.kind, value_, given.values); break;
    case Kind::kGradient: rule_->apply(value_, given.values); break;
    case Kind::kGradientRows: rule_->apply_rows(value_, given.ids, given.values); break;
    case Kind::kUpdateRows:
      scatter_rows(static_cast<std::byte*>(value_.data_ptr()), row_bytes_, ids_in(given.ids),
                   static_cast<const std::byte*>(given.values.data_ptr()));
      break;
    case Kind::kSetLearningRate: rule_->set_learning_rate(operation.number); break;
    default: combine_rows(operation.kind, value_, ids_in(given.ids), given.values);
  }
  return ++version_;
}

std::optional<std::uint64_t> StoredVariable::read(std::size_t first, std::span<std::byte> into,
                                                  std::optional<std::uint64_t> newer_than) const {
  const std::shared_lock lock(mu_);
  if (newer_than && version_ <= *newer_than) return std::nullopt;
  if (!into.empty()) std::memcpy(into.data(), static_cast<const std::byte*>(value_.data_ptr()) + first, into.size());
  return version_;
}

std::uint64_t StoredVariable::read_rows(std::span<const std::int64_t> ids, std::byte* into) const {
  const std::shared_lock lock(mu_);
  gather_rows(static_cast<const std::byte*>(value_.data_ptr()), row_bytes_, ids, into);
  return version_;
}

void StoredVariable::look(
    const std::function<void(const at::Tensor& value, const UpdateRule* rule, std::uint64_t version)>& fn) const {
  const std::shared_lock lock(mu_);
  fn(value_, rule_.get(), version_);
}

void StoredVariable::change(const Work& fn) {
  const std::lock_guard lock(mu_);
  version_ = fn(value_, rule_.get(), version_);
}

}  // namespace lockstep::ps
