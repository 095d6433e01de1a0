#include "lockstep/data/io/fixed_records.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {

void validate(const FixedLengths& lengths) {
  if (lengths.record < 1 || lengths.header < 0 || lengths.footer < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("records of ", lengths.record, " bytes with a header of ", lengths.header, " and a footer of ",
                    lengths.footer, "; a record has at least one byte, the others none or more"));
}

FixedReader::FixedReader(const std::string& path, const FixedLengths& lengths, Compression compression)
    : file_(path, compression), lengths_(lengths), to_consume_(static_cast<std::size_t>(lengths.header)) {
  validate(lengths_);
  if (compression == Compression::kNone) require_whole_records(file_.size());
  const auto there = file_.peek(to_consume_).size();
  if (there >= to_consume_) return;
  require_whole_records(there);
  to_consume_ = there;  // nothing: the file is empty
}

void FixedReader::require_whole_records(std::uint64_t bytes) const {
  const auto around = static_cast<std::uint64_t>(lengths_.header + lengths_.footer);
  if (bytes == 0) return;
  if (bytes < around)
    throw Error(ErrorCode::kDataLoss,
                str("the file '", file_.path(), "' has ", bytes, " bytes, which is less than its header (", lengths_.header,
                    ") and footer (", lengths_.footer, ")"));
  if ((bytes - around) % static_cast<std::uint64_t>(lengths_.record) != 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("the file '", file_.path(), "' has ", bytes, " bytes; without its header (", lengths_.header,
                    ") and footer (", lengths_.footer, ") that is no whole number of records of ", lengths_.record, " bytes"));
}

bool FixedReader::next(std::string_view& record) {
  file_.consume(std::exchange(to_consume_, 0));
  const auto size = static_cast<std::size_t>(lengths_.record);
  const auto footer = static_cast<std::size_t>(lengths_.footer);
  const auto there = file_.peek(size + footer);
  if (there.size() < size + footer) {
    if (there.size() != footer && file_.position() + there.size() > 0) require_whole_records(file_.position() + there.size());
    return false;
  }
  record = there.substr(0, size);
  to_consume_ = size;
  return true;
}

void FixedReader::seek(std::uint64_t position) {
  file_.seek(position);
  to_consume_ = 0;
}

}  // namespace lockstep::data
