#include <cstdlib>
#include <cstring>
#include <vector>

#include "lockstep/cluster/lifeline_bytes.h"
#include "tests/fuzz/fuzz.h"

// What anybody may send to a coordinator's lifeline port: in one piece or byte by byte, the news are the same.

namespace {

using lockstep::internal::LifelineBytes;
using News = LifelineBytes::News;

void take(LifelineBytes& bytes, std::vector<News>& news) {
  for (auto next = bytes.next(); next != News::kNothing; next = bytes.next()) news.push_back(next);
}

void check(const std::string& text) {
  LifelineBytes whole;
  std::vector<News> at_once;
  whole.add(text);
  take(whole, at_once);
  LifelineBytes pieces;
  std::vector<News> one_by_one;
  for (const char byte : text) {
    pieces.add({&byte, 1});
    take(pieces, one_by_one);
  }
  if (at_once != one_by_one || at_once.size() > 2) std::abort();
  const bool has_ticket = !at_once.empty() && at_once[0] == News::kTicket;
  if (has_ticket && !text.starts_with(LifelineBytes::show(whole.ticket()))) std::abort();
  if (at_once.size() == 2 && !has_ticket) std::abort();  // a good-bye needs a ticket before it
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& text) {
    check(text);
    if (text.size() >= sizeof(std::uint64_t)) {  // and with a whole ticket before it
      std::uint64_t ticket = 0;
      std::memcpy(&ticket, text.data(), sizeof ticket);
      check(LifelineBytes::show(ticket) + text.substr(sizeof ticket));
    }
  });
}
