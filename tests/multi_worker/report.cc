#include "tests/multi_worker/report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <limits>
#include <sstream>

#include "lockstep/base/str.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kMostPrinted = 12;

// In memory as it reads, whatever its strides and conjugations were.
at::Tensor plain(const at::Tensor& value) { return value.detach().cpu().resolve_conj().resolve_neg().contiguous(); }

std::string elements_of(const at::Tensor& value) {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10);
  const auto flat = plain(value).view(-1);
  const auto real = flat.is_complex() ? at::view_as_real(flat).reshape(-1) : flat;
  const char* comma = "";
  for (std::int64_t i = 0; i < real.numel(); ++i) {
    out << comma;
    if (at::isIntegralType(real.scalar_type(), /*includeBool=*/true)) out << real[i].item<std::int64_t>();
    else out << real[i].item<double>();
    comma = " ";
  }
  return out.str();
}

double tolerance_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf: return 4e-3;
    case at::kBFloat16: return 3e-2;
    case at::kFloat:
    case at::kComplexFloat: return 1e-5;
    case at::kDouble:
    case at::kComplexDouble: return 1e-12;
    default: return 0;
  }
}

}  // namespace

std::uint64_t digest(const std::vector<at::Tensor>& tensors) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const auto& tensor : tensors) {
    const auto flat = plain(tensor);
    const auto* bytes = static_cast<const char*>(flat.data_ptr());
    for (std::size_t i = 0; i < flat.nbytes(); i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + i, std::min(sizeof word, flat.nbytes() - i));
      hash = (hash ^ word) * 1099511628211ULL;
      hash ^= hash >> 32;
    }
  }
  return hash;
}

std::string text_of(const at::Tensor& value) {
  if (!value.defined()) return "none";
  const bool is_short = value.numel() <= kMostPrinted;
  return lockstep::str(value.scalar_type(), value.sizes(), " ",
                       is_short ? elements_of(value) : lockstep::str("digest ", digest({value})));
}

std::string text_of(const IndexedSlices& value) {
  return lockstep::str("rows ", text_of(value.indices), " of ", at::IntArrayRef(value.dense_shape), ": ",
                       text_of(value.values));
}

std::string text_of(const std::vector<at::Tensor>& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(text_of(value));
  return str("[", join("; ", texts), "]");
}

std::string text_of(std::optional<ErrorCode> code) { return code ? name_of(*code) : "no error"; }

bool is_close(const at::Tensor& found, const at::Tensor& wanted) {
  if (found.scalar_type() != wanted.scalar_type() || found.sizes() != wanted.sizes()) return false;
  const double tolerance = tolerance_of(found.scalar_type());
  if (tolerance == 0) return at::equal(plain(found), plain(wanted));
  const auto wide = found.is_complex() ? at::kComplexDouble : at::kDouble;
  return at::allclose(plain(found).to(wide), plain(wanted).to(wide), tolerance, tolerance, /*equal_nan=*/true);
}

void Report::print(const std::string& what, const std::string& value) {
  std::cout << part_ << "/" << what << " = " << value << std::endl;
}

std::string Report::of_replica(const std::string& what, std::size_t local_replica) const {
  return str(what, " @", static_cast<std::size_t>(strategy_.replicas().first_replica()) + local_replica);
}

void Report::expect(const std::string& what, const at::Tensor& found, const at::Tensor& wanted) {
  if (found.defined() && is_close(found, wanted)) return print(what, text_of(found));
  ++wrong_;
  print(what, str(text_of(found), " WRONG: ", text_of(wanted), " was to come"));
}

void Report::expect(const std::string& what, const std::string& found, const std::string& wanted) {
  if (found == wanted) return print(what, found);
  ++wrong_;
  print(what, str(found, " WRONG: ", wanted, " was to come"));
}

void Report::expect_each(const std::string& what, const PerReplica<at::Tensor>& found,
                         const std::function<at::Tensor(int)>& wanted) {
  for (std::size_t r = 0; r < found.size(); ++r)
    expect(of_replica(what, r), found[r], wanted(strategy_.replicas().first_replica() + static_cast<int>(r)));
}

void Report::check(const std::string& what, const std::string& found, const std::string& wanted) {
  if (found == wanted) return print(what, "right");
  ++wrong_;
  print(what, str(found, " WRONG: ", wanted, " was to come"));
}

}  // namespace lockstep::testing
