#include "lockstep/data/io/text_lines.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace lockstep::data {

bool LineReader::next(std::string_view& line) {
  file_.consume(std::exchange(to_consume_, 0));
  std::size_t searched = 0;
  auto there = file_.peek(1);
  const void* end = nullptr;
  while (there.size() > searched) {
    end = std::memchr(there.data() + searched, '\n', there.size() - searched);
    if (end != nullptr) break;
    searched = there.size();
    there = file_.peek(searched + 1);
  }
  if (there.empty()) return false;
  const auto length = end == nullptr ? there.size() : static_cast<std::size_t>(static_cast<const char*>(end) - there.data());
  to_consume_ = end == nullptr ? length : length + 1;
  line = there.substr(0, length);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (std::memchr(line.data(), '\r', line.size()) == nullptr) return true;
  without_returns_.clear();
  std::ranges::remove_copy(line, std::back_inserter(without_returns_), '\r');
  line = without_returns_;
  return true;
}

void LineReader::seek(std::uint64_t position) {
  file_.seek(position);
  to_consume_ = 0;
}

}  // namespace lockstep::data
